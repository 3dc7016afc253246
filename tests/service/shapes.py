"""A comparison of an answer with its model: exactly its keys and types."""

from typing import Any

from pydantic import TypeAdapter

from nats_scheduler.service.endpoints import ALL_ENDPOINTS


def fault_of(endpoint: str, answer: dict[str, Any]) -> str:
    """Return "" for an answer as the schema of the endpoint has it, else both."""
    (model,) = (one.answer for one in ALL_ENDPOINTS if one.name == endpoint)
    read = TypeAdapter(model).validate_python(answer)  # a key that the model does not have is left out
    return "" if read == answer else f"{answer} is not {read}"
