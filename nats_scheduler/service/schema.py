"""The JSON Schemas of all requests and answers, in one document.

Rule: everything in it comes from `service.endpoints` and `service.control_endpoints`, by which the sidecar reads
requests and the tests check answers.
"""

from typing import Any

from pydantic import TypeAdapter

from nats_scheduler.service.service import ALL_ENDPOINTS, SERVICE_NAME


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
