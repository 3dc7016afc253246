"""A client of the micro service, as a test uses it: one request, one answer or error."""

import json
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.message.headers import header_value
from nats_scheduler.service.endpoints import ALL_ENDPOINTS
from tests.harness.account import ANSWER_SECONDS, Account, Running, in_seconds, replied
from tests.harness.servers import NATIVE_VERSIONS, V2_11


def fault_of(endpoint: str, answer: dict[str, Any]) -> str:
    """Return "" for an answer with exactly the keys and types of its model, else both."""
    (model,) = (one.answer for one in ALL_ENDPOINTS if one.name == endpoint)
    read = TypeAdapter(model).validate_python(answer)  # a key that the model does not have is left out
    return "" if read == answer else f"{answer} is not {read}"


@dataclass(frozen=True)
class Refusal:
    """An error of the service."""

    code: int
    sentence: str


async def ask(connection: Connection, endpoint: str, body: object = b"") -> dict[str, Any] | Refusal:
    """Send a request to `nats_scheduler.v1.<endpoint>` and return the answer.

    A sidecar that has just connected subscribes to requests while it begins to serve streams: until somebody does, the
    request is sent again.
    """
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = await replied(connection, f"nats_scheduler.v1.{endpoint}", sent, seconds=ANSWER_SECONDS)
    if reply.block:
        sentence = header_value(reply.block, b"Nats-Service-Error")
        return Refusal(int(header_value(reply.block, b"Nats-Service-Error-Code") or 0), (sentence or b"").decode())
    answer = json.loads(reply.body)
    assert isinstance(answer, dict)
    return answer


async def answered(connection: Connection, endpoint: str, body: object = b"") -> dict[str, Any]:
    """Do what `ask` does, with a request that must not be refused; the answer is as its schema says."""
    answer = await ask(connection, endpoint, body)
    assert isinstance(answer, dict), answer
    name = next(one.name for one in ALL_ENDPOINTS if endpoint in (one.name, f"{one.name}.{answer.get('instance')}"))
    assert fault_of(name, answer) == ""
    return answer


def at(hours: float) -> str:
    """Return the pattern of a schedule that fires once, in some hours."""
    return f"@at {in_seconds(3600 * hours)}"


@dataclass
class Asked:
    """A sidecar, and who asks it."""

    account: Account
    running: Running
    version: str = V2_11

    @property
    def is_native(self) -> bool:
        """True if the server itself fires the schedules."""
        return self.version in NATIVE_VERSIONS

    async def create(self, name: str, **config: Any) -> None:
        """Create a stream, and wait until it is served."""
        await self.account.create(name, **config)
        await self.running.ready(name)

    async def schedule(self, subject: str, pattern: str, prefix: str = "", body: bytes = b"", **more: str) -> int:
        """Store a schedule that fires into `<stream>.out`, unless another target is named."""
        headers = {"Nats-Schedule": pattern, "Nats-Schedule-Target": f"{subject.partition('.')[0]}.out"}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        return await self.account.publish(subject, {f"{prefix}{name}": headers[name] for name in headers}, body)

    async def answer(self, endpoint: str, **request: Any) -> dict[str, Any]:
        return await answered(self.account.connection, endpoint, request)

    async def refusal(self, endpoint: str, **request: Any) -> Refusal:
        refused = await ask(self.account.connection, endpoint, request)
        assert isinstance(refused, Refusal), refused
        return refused

    async def listed(self, stream: str, **request: Any) -> list[dict[str, Any]]:
        return list((await self.answer("schedules.list", stream=stream, **request))["schedules"])

    async def subjects(self, stream: str, **request: Any) -> list[str]:
        return [one["subject"] for one in await self.listed(stream, **request)]
