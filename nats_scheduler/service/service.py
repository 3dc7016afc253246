"""The micro service `nats-scheduler` on one connection.

The rule: what only reads and what changes something have different subjects, so that permissions can tell them apart,
and different places, so that neither has to wait for the other.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter

from nats_scheduler.service.endpoint import Asked, Endpoint
from nats_scheduler.service.endpoints import CONTROL_ENDPOINTS, ENDPOINTS
from nats_scheduler.service.micro import Identity, MicroService, Places, Served
from nats_scheduler.version import VERSION

ALL_ENDPOINTS: tuple[Endpoint[Any], ...] = (*ENDPOINTS, *CONTROL_ENDPOINTS)

SERVICE_NAME = "nats-scheduler"

MAX_READING = 32
"""Requests that only read in work at once."""

MAX_CHANGING = 16
"""Requests that change something in work at once."""

DESCRIPTION = "message schedules (ADR-51) for streams of this account"


async def serve(asked: Asked, defect: Callable[[Exception], None]) -> None:
    """Answer requests until cancelled; `defect` takes errors of the service itself."""
    identity = Identity(SERVICE_NAME, asked.instance, VERSION, DESCRIPTION)
    reading, changing = Places(MAX_READING), Places(MAX_CHANGING)
    allowed = {"allow_control": "true" if asked.allows_control else "false"}
    served = [_served(one, asked, reading, {}) for one in ENDPOINTS]
    served += [_served(one, asked, changing, allowed) for one in CONTROL_ENDPOINTS]
    async with asked.server_schedules.opened():
        await MicroService(asked.connection, identity, served, asked.now, defect).serve()


def _served(one: Endpoint[Any], asked: Asked, places: Places, metadata: Mapping[str, str]) -> Served:
    return Served(
        one.name.replace(".", "-"),
        one.subject,
        places,
        one.answering(asked, one.handle),
        None if one.handle_alone is None else one.answering(asked, one.handle_alone),
        metadata,
    )


# The JSON Schemas of all requests and answers, in one document.
#
# Rule: everything in it comes from `service.endpoints`, by which requests and answers are read.


def service_schema() -> dict[str, Any]:
    """Return the schemas (2020-12): for each subject a request and an answer, whose parts are in `$defs`."""
    adapters: list[tuple[Any, Any, TypeAdapter[Any]]] = []
    for one in ALL_ENDPOINTS:
        adapters.append((one.name, "validation", TypeAdapter(one.request)))
        adapters.append((f"{one.name} answer", "validation", TypeAdapter(one.answer)))
    found, rest = TypeAdapter.json_schemas(adapters)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Requests to the micro service {SERVICE_NAME}, and their answers",
        "endpoints": {
            one.name: {
                "subject": one.subject,
                "description": one.summary,
                "request": found[one.name, "validation"],
                "answer": found[f"{one.name} answer", "validation"],
            }
            for one in ALL_ENDPOINTS
        },
        "$defs": rest.get("$defs", {}),
    }
