"""A client of the micro service, as a test uses it: one request, one answer or error."""

import json
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.message.headers import header_value
from nats_scheduler.service.endpoints import ALL_ENDPOINTS
from tests.harness.account import replied


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
    reply = await replied(connection, f"nats_scheduler.v1.{endpoint}", sent)
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
