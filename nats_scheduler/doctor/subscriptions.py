"""Which subjects the clients of the account subscribe to.

The servers list the connections of an account with their subscriptions on `$SYS.REQ.ACCOUNT.PING.CONNZ`, to every user
who may publish there. Each server of a cluster answers for itself.

Rule: an incomplete list is no list, because a subscriber that is missing in it would be reported as absent.
Limit: clients behind leaf nodes and gateways are not listed.
"""

import asyncio
import json
from collections.abc import Sequence

from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.jetstream.errors import NoAnswerError
from nats_scheduler.jetstream.foreign_json import Object, inner, integer, read_object

CONNECTIONS = "$SYS.REQ.ACCOUNT.PING.CONNZ"
MAX_CONNECTIONS = 10_000
"""Connections that one answer lists; of an account with more on one server, subscribers are not judged."""

ANSWER_DEADLINE_SECONDS = 2.0
"""Longest wait for the answers of all servers."""

SIDECARS_MARK = "$JS.API.STREAM.CREATE.*"
"""A connection with this subscription is that of a sidecar; on work queues it receives what it fires itself."""

INBOXES = "_INBOX."
"""Subjects of answers, of which each client has one; no schedule has a target among them."""

REQUEST = json.dumps({"subscriptions": True, "limit": MAX_CONNECTIONS}).encode()


async def read_subscriptions(connection: Connection) -> Sequence[str]:
    """Return what clients other than sidecars subscribe to; raises `JetStreamError` if the servers do not list it."""
    first = read_object((await connection.request(CONNECTIONS, REQUEST, deadline=ANSWER_DEADLINE_SECONDS)).body)
    servers = max(len(connection.known_addresses), 1) if connection.server.cluster else 1
    answers = [first or {}] if servers == 1 else await _of_all(connection, servers)
    subjects: set[str] = set()
    for answer in answers:
        data = inner(answer.get("data"))
        listed = data.get("connections")
        if not isinstance(listed, list) or integer(data.get("total")) > len(listed):
            raise NoAnswerError(f"{CONNECTIONS}: the list of connections is not complete")
        for one in listed:
            subscribed = inner(one).get("subscriptions_list")
            if isinstance(subscribed, list) and SIDECARS_MARK not in subscribed:
                subjects.update(str(one) for one in subscribed if not str(one).startswith(INBOXES))
    return sorted(subjects)


async def _of_all(connection: Connection, servers: int) -> list[Object]:
    """Return the answers of so many servers."""
    answers: list[Object] = []
    complete = asyncio.Event()

    def take(_subject: bytes, _reply: bytes, _block: bytes, body: bytes) -> None:
        answers.append(read_object(body) or {})
        if len(answers) >= servers:
            complete.set()

    inbox = connection.inbox("doctor")
    number = connection.subscribe(inbox, take)
    try:
        connection.write(frame(CONNECTIONS, inbox, b"", REQUEST))
        async with asyncio.timeout(ANSWER_DEADLINE_SECONDS):
            await complete.wait()
    except TimeoutError:
        raise NoAnswerError(f"{CONNECTIONS}: {len(answers)} of {servers} servers answered") from None
    finally:
        connection.unsubscribe(number)
    return answers
