"""Requests to the servers themselves (`$SYS.REQ…`), which several of them may answer.

Rule: an answer counts for the server that it names. Beside a leaf node, a gateway or other nodes of a cluster the first
answer may be that of another server, which describes another user: the leaf node's own, for instance.
Cost: one request. Limit: a server without a name for its cluster counts as a single one.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from nats_scheduler.control.errors import DeadlineError, NoRespondersError, SchedulerError
from nats_scheduler.control.transport import NO_RESPONDERS
from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.jetstream.denials import Denial, forbidden
from nats_scheduler.message.foreign_json import Object, inner, read_object

ANSWER_DEADLINE_SECONDS = 2.0
"""Longest wait for the answers of all servers that are asked."""

MAX_ANSWERS = 1_000
"""Answers that are kept: more servers than an account reaches."""


class ServerAnswer(NamedTuple):
    """The answer of one server."""

    server: str
    """Its identity, as in the INFO line that it sends to its clients."""
    cluster: str
    """The name of its cluster, "" if it has none."""
    data: Object


async def own_answer(connection: Connection, subject: str) -> Object:
    """Return what the server of the connection answers, whatever others do; raises `SchedulerError` if it does not."""
    found = await server_answers(connection, subject, b"", lambda answers: connection.server.id in _servers(answers))
    return next(one.data for one in found if one.server == connection.server.id)


async def cluster_answers(connection: Connection, subject: str, body: bytes) -> list[Object]:
    """Return what all servers of the connection's cluster answer, and others that answer meanwhile.

    Raises `SchedulerError` if one of the cluster does not.
    """
    own = connection.server
    servers = max(len(connection.known_addresses), 1) if own.cluster else 1

    def is_complete(answers: Sequence[ServerAnswer]) -> bool:
        known = _servers(one for one in answers if one.cluster == own.cluster)
        return own.id in known and len(known) >= servers

    return [one.data for one in await server_answers(connection, subject, body, is_complete)]


async def server_answers(
    connection: Connection, subject: str, body: bytes, is_complete: Callable[[Sequence[ServerAnswer]], bool]
) -> list[ServerAnswer]:
    """Return the answers to a request, once they are complete; raises `SchedulerError` if they are not in time."""
    answers: list[ServerAnswer] = []
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(error: SchedulerError) -> None:
        if not done.done():
            done.set_exception(error)

    def take(_subject: bytes, _reply: bytes, block: bytes, answer: bytes) -> None:
        if block.startswith(NO_RESPONDERS):
            fail(NoRespondersError(f"{subject}: nothing answers there"))
        elif len(answers) < MAX_ANSWERS:
            answers.append(_read(answer))
            if is_complete(answers) and not done.done():
                done.set_result(None)

    def denied(denial: Denial) -> None:
        if denial == Denial(publishes=True, subject=subject):
            fail(forbidden(subject))

    inbox = connection.inbox("system")
    end_listening = connection.when_denied(denied)
    number = connection.subscribe(inbox, take)
    try:
        connection.write(frame(subject, inbox, b"", body))
        async with asyncio.timeout(ANSWER_DEADLINE_SECONDS):
            await done
    except TimeoutError:
        heard = f"{len(_servers(answers))} of the servers answered"
        raise DeadlineError(f"{subject}: {heard} within {ANSWER_DEADLINE_SECONDS} s") from None
    finally:
        connection.unsubscribe(number)
        end_listening()
    return answers


def _read(body: bytes) -> ServerAnswer:
    answer = read_object(body) or {}
    server = inner(answer.get("server"))
    return ServerAnswer(str(server.get("id") or ""), str(server.get("cluster") or ""), inner(answer.get("data")))


def _servers(answers: Iterable[ServerAnswer]) -> set[str]:
    return {one.server for one in answers}
