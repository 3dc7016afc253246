"""A requester of the endpoints that change schedules, as a test uses it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.service.change_endpoints import CONTROL_SUBJECTS, LAST_SEQUENCE, SERVER_ERROR_CODE
from nats_scheduler.service.endpoints import CONTROL_ENDPOINTS
from nats_scheduler.service.micro import error_of
from tests.harness.account import Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.servers import NATIVE_VERSIONS
from tests.harness.waiting import PATIENCE_SECONDS
from tests.service.asking import fault_of

ENDPOINTS = [one.name.partition(".")[2] for one in CONTROL_ENDPOINTS]
"""The operations: `pause`, `add` and so on."""


@dataclass(frozen=True)
class Refused:
    """An error of one of these endpoints."""

    code: int
    sentence: str
    server_code: int | None = None
    last_sequence: int | None = None


async def request(connection: Connection, endpoint: str, body: object, **more: Any) -> dict[str, Any] | Refused:
    """Send a request to `nats_scheduler.control.v1.schedules.<endpoint>`, or to that of the rule `by`.

    The answer is as its schema says.
    """
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    deadline = more.get("deadline", PATIENCE_SECONDS)
    own = f".for.{more['by']}" if more.get("by") else ""
    reply = await connection.request(f"{CONTROL_SUBJECTS}{own}.schedules.{endpoint}", sent, deadline=deadline)
    if reply.block:
        assert reply.body == b""
        return Refused(
            *error_of(reply.block),
            _number(reply.block, SERVER_ERROR_CODE),
            _number(reply.block, LAST_SEQUENCE),
        )
    answer = json.loads(reply.body)
    assert isinstance(answer, dict)
    assert fault_of(f"schedules.{endpoint}", answer) == ""
    return answer


def _number(block: bytes, name: bytes) -> int | None:
    value = header_value(block, name)
    return None if value is None else int(value)


@dataclass
class Controlled:
    """A sidecar that serves the stream `O`, and a requester that changes its schedules."""

    server: EmbeddedServer
    account: Account
    running: Running
    version: str

    @property
    def is_native(self) -> bool:
        """True if the server itself fires the schedules."""
        return self.version in NATIVE_VERSIONS

    async def change(self, endpoint: str, subject: str = "O.s", **more: Any) -> dict[str, Any]:
        """Change a schedule; the request must not be refused."""
        answer = await request(self.account.connection, endpoint, {"stream": "O", "subject": subject, **more})
        assert isinstance(answer, dict), answer
        return answer

    async def refusal(self, endpoint: str, subject: str = "O.s", **more: Any) -> Refused:
        """Ask for a change that must be refused."""
        answer = await request(self.account.connection, endpoint, {"stream": "O", "subject": subject, **more})
        assert isinstance(answer, Refused), answer
        return answer

    async def last(self, subject: str = "O.s") -> StoredMessage | None:
        """Return the last message on a subject."""
        return await self.account.api.message("O", last_by_subj=subject)

    async def stored(self, subject: str = "O.s") -> StoredMessage:
        """Return the last message on a subject, which must be there."""
        last = await self.last(subject)
        assert last is not None
        return last


def far(target: str = "O.out") -> list[list[str]]:
    """Return the headers of a schedule that fires in an hour."""
    return [["Nats-Schedule", f"@at {in_seconds(3600)}"], ["Nats-Schedule-Target", target]]


@asynccontextmanager
async def controlled_on(server: EmbeddedServer, version: str) -> AsyncIterator[Controlled]:
    """Run a sidecar that allows changes, and serves the streams `O` and `P`, which has the subjects `Q.>` too."""
    async with sidecar_on(server.url, allow_control=True) as running, account_on(server.url) as account:
        await account.create("O", allow_msg_ttl=True)
        await account.create("P", allow_msg_ttl=True, subjects=["P.>", "Q.>"])
        for name in ("O", "P"):
            await running.ready(name)
        yield Controlled(server, account, running, version)
