"""A duration in the settings: a Go duration string for people, nanoseconds for the program.

Text is parsed with the server's own grammar (`schedule.durations`), so `5s` means the same as in a header. It is
pydantic metadata (`Annotated[int, DurationRange(...)]`) and not a type of its own: the rest of the package gets plain
integers for its arithmetic.

Limit: a number without a unit is rejected in a file, because it could be seconds or nanoseconds; only Python callers
may pass an integer, which is nanoseconds.
"""

from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from nats_scheduler.schedule.durations import format_duration, parse_duration


@dataclass(frozen=True, slots=True)
class DurationRange:
    """The range of a duration: two bounds in nanoseconds, both allowed."""

    minimum: int
    maximum: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Accept text or nanoseconds; write text in every dump to JSON."""
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
        """Return the nanoseconds of a value; None if it is not a duration at all."""
        if isinstance(value, str):
            parsed = parse_duration(value)
            return parsed if isinstance(parsed, int) else None
        if isinstance(value, int) and not isinstance(value, bool) and info.mode == "python":
            return value
        return None

    @property
    def expected(self) -> str:
        """Return what is accepted, as a part of a sentence."""
        low, high = format_duration(self.minimum), format_duration(self.maximum)
        return f"a duration from {low} to {high}, with its unit, such as '5s' or '250ms'"
