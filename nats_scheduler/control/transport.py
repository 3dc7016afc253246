"""What the requests to JetStream need of a connection: the port that the client and the sidecar implement.

The rule: a transport sends what it is given or refuses to, and returns the first answer that is accepted. It interprets
none, and repeats a request only because no answer came.
"""

import json
from collections.abc import Callable
from typing import NamedTuple, Protocol

from nats_scheduler.control.errors import NoAnswerError, NoRespondersError
from nats_scheduler.message.foreign_json import Object, read_object

ANSWER_SECONDS = 5.0
"""Longest wait for an answer, unless the caller sets another one."""

RESEND_INTERVAL_SECONDS = 0.5
"""A repeatable request without an answer is sent again at this interval: *Live* allows 3 s."""

NO_RESPONDERS = b"NATS/1.0 503"
"""The beginning of the header block by which a server says that nothing subscribes to a subject."""

Accepts = Callable[[bytes, bytes], bool]
"""Returns whether an answer with this header block and body can be that of the one who was asked."""


class Reply(NamedTuple):
    """An answer: its header block (`b""` without one) and its body."""

    block: bytes
    body: bytes


def is_bare(block: bytes, _body: bytes) -> bool:
    """Return whether an answer has no headers, as those of JetStream's API."""
    return not block


def accept_all(_block: bytes, _body: bytes) -> bool:
    """Return that an answer counts, whatever it is."""
    return True


def nobody_answers(subject: str) -> NoRespondersError:
    """Return the error of a request on a subject that nothing subscribes to."""
    return NoRespondersError(f"{subject}: nothing answers there: is JetStream enabled for this account?")


class Transport(Protocol):
    """Requests over one connection of one user."""

    @property
    def server_version(self) -> str:
        """The version of the server that it is connected to."""

    async def request(
        self,
        subject: str,
        body: bytes = b"",
        block: bytes = b"",
        deadline: float = ANSWER_SECONDS,
        *,
        is_repeatable: bool = False,
        accepts: Accepts = accept_all,
    ) -> Reply:
        """Send a request and return the first answer that it `accepts`: another client may answer too.

        A request that may be repeated is sent again every `RESEND_INTERVAL_SECONDS` while no answer comes: a group of
        servers without a leader drops requests without an answer.

        Raises `NoRespondersError` if nothing subscribes to the subject, and `ForbiddenError` without the permission:
        nothing was done. Raises `DeadlineError` after `deadline` (seconds), and another `NoAnswerError` if the
        connection has ended. Raises `RefusedError` or `NotPossibleError` if the server would close the connection over
        the request: it is not sent.
        """


async def request_json(
    transport: Transport,
    subject: str,
    body: object = None,
    deadline: float = ANSWER_SECONDS,
    *,
    is_repeatable: bool = False,
) -> Object:
    """Send a request with a JSON body and return the JSON object that is the answer.

    Raises as `Transport.request` does, and `NoAnswerError` if the answer is anything else.
    """
    payload = b"" if body is None else json.dumps(body).encode()
    reply = await transport.request(subject, payload, deadline=deadline, is_repeatable=is_repeatable, accepts=is_bare)
    answer = read_object(reply.body)
    if answer is None:
        raise NoAnswerError(f"{subject}: the answer is not a JSON object: {reply.body[:80]!r}")
    return answer
