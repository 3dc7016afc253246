"""The answer of a stream to a publish: the message is stored, or refused.

A publish with a reply subject is received by core subscribers too, and one of them may answer before the server.
Each answer of a server names the stream, refusals too, and gives a sequence or an error with its two codes
(`test_every_answer_of_a_server_names_the_stream`). It has no headers, as the answer to a direct get has, whose body a
user chooses.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from nats_scheduler.message.foreign_json import inner, integer, read_object

TEMPORARY_STATUS = 503
"""The server's status for "not now": no leader, a shutdown, a lack of resources."""

ID_IN_PROCESS = 10158
"""The server's code for an identity that it knows, but not whether its message is stored.

In a cluster the replicas may still be agreeing on the first attempt. An attempt that was refused leaves its identity in
this state until the duplicate window is over. A server of 2.10 calls it a duplicate of sequence 0.
"""


class Published(NamedTuple):
    """A message is stored."""

    sequence: int
    is_duplicate: bool = False
    """True if the server knew its `Nats-Msg-Id` and stored nothing."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The server refused a message: nothing was stored."""

    status: int
    code: int
    """The server's error code (`err_code`), 0 if it has none for this."""
    description: str


IN_PROCESS = Refusal(409, ID_IN_PROCESS, "duplicate message id is in process")


def publish_answer(stream: str, block: bytes, body: bytes) -> Published | Refusal | None:
    """Return what a stream says of a message; None if it is not the server that answers.

    A leader that could not propose a message to its replicas, because it leads no more, has no code for that.
    """
    answer = {} if block else read_object(body) or {}
    if answer.get("stream") != stream:
        return None
    if answer.get("error") is not None:
        error = inner(answer["error"])
        status, code = integer(error.get("code")), integer(error.get("err_code"))
        is_servers = status > 0 and (code > 0 or (status, code) == (TEMPORARY_STATUS, 0))
        return Refusal(status, code, str(error.get("description", ""))) if is_servers else None
    sequence, is_duplicate = integer(answer.get("seq"), -1), answer.get("duplicate") is True
    if sequence > 0:
        return Published(sequence, is_duplicate)
    return IN_PROCESS if is_duplicate and sequence == 0 else None


def answer_of(stream: str) -> Callable[[bytes, bytes], bool]:
    """Return what finds whether an answer to a publish can be that of a stream."""
    return lambda block, body: publish_answer(stream, block, body) is not None
