"""A duration in the settings: a Go duration string for people, nanoseconds for the program.

Rule: text is read with the server's own grammar (`schedule.durations`), so `5s` means here what it means in a
header. It is pydantic metadata (`Annotated[int, DurationRange(...)]`) and not a type of its own, so that the
rest of the package sees plain integers and does arithmetic on them.
Cost: one parse per field at start. Limit: a bare number is refused in a file (seconds or nanoseconds?); only
Python callers may give an integer, which is nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from nats_scheduler.schedule.durations import format_duration, parse_duration


@dataclass(frozen=True, slots=True)
class DurationRange:
    """Hold a duration between two bounds, both in nanoseconds and both allowed."""

    minimum: int
    maximum: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Read text or nanoseconds; write the text again in every dump to JSON."""
        write = core_schema.plain_serializer_function_ser_schema(format_duration, when_used="json")
        return core_schema.with_info_plain_validator_function(self._read, serialization=write)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe the text form, the only one that a file can hold."""
        return {"type": "string", "format": "go-duration", "examples": [format_duration(self.minimum)]}

    def _read(self, value: object, info: ValidationInfo) -> int:
        nanoseconds = self._nanoseconds(value, info)
        if nanoseconds is None or not self.minimum <= nanoseconds <= self.maximum:
            raise PydanticCustomError("duration", "{expected}", {"expected": self.expected})
        return nanoseconds

    def _nanoseconds(self, value: object, info: ValidationInfo) -> int | None:
        """Return the nanoseconds of a value, or None if it is not a duration at all."""
        if isinstance(value, str):
            parsed = parse_duration(value)
            return parsed if isinstance(parsed, int) else None
        if isinstance(value, int) and not isinstance(value, bool) and info.mode == "python":
            return value
        return None

    @property
    def expected(self) -> str:
        """Say in a sentence fragment what is accepted."""
        low, high = format_duration(self.minimum), format_duration(self.maximum)
        return f"a duration from {low} to {high}, with its unit, such as '5s' or '250ms'"
