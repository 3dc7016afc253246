"""A file of schedules, as models: its keys, their types, and their descriptions for people.

Rule: these models decide what a file may contain, and the JSON Schema that is printed comes from them.
Unknown keys and values of another type are errors, so that a misspelt key is not left out in silence. Text is never
guessed from a number: `subject: 1.50` is an error that asks for quotes.
What headers mean is not checked here: that is done by the code that reads stored messages (`control.plan`).
Limit: which keys exclude each other is in the schema, and is checked by `files.file_reading`, which reports it by line.
"""

import re
from base64 import b64decode
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    WithJsonSchema,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from nats_scheduler.control.declared import policy_key
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.policies import POLICY_NAMES, named_policies
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.schedule_form import BESIDE_PATTERN
from nats_scheduler.message.schedule_form import Field as FormField

PATTERNS = ("at", "every", "cron")
"""The keys of which a schedule has one, unless its headers are raw."""

RAW = ("lines", "block_base64")
"""The keys that stand for all headers of a schedule."""

BODIES = ("body", "body_base64")

_surrogate = re.compile("[\ud800-\udfff]").search
"""JSON and YAML can name half of a character; no encoding can."""


def _from_base64(given: Any) -> Any:
    return b64decode("".join(given.split()), validate=True) if isinstance(given, str) else given


Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
"""A text of one line."""

Base64 = Annotated[
    bytes,
    BeforeValidator(_from_base64),
    WithJsonSchema({"type": "string", "pattern": r"^[A-Za-z0-9+/\s]*={0,2}\s*$", "contentEncoding": "base64"}),
]
Number = Annotated[int, Field(strict=True)]


def _some_of(keys: Iterable[str]) -> dict[str, Any]:
    return {"anyOf": [{"required": [key]} for key in keys]}


def _exclusive_keys(schema: dict[str, Any], _model: object) -> None:
    """Add to the schema of a schedule which of its keys exclude each other."""
    others = [key for key in schema["properties"] if key not in ("subject", "paused", *RAW, *PATTERNS, *BODIES)]
    schema["oneOf"] = [{"required": [key]} for key in (*PATTERNS, *RAW)]
    both = [{"required": list(BODIES)}, {"allOf": [_some_of(RAW), _some_of(others)]}]
    schema["not"] = {"anyOf": both}


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _is_usable(cls, value: Any) -> Any:
        """Refuse a key without a value, which is not the same as an absent key, and a text that UTF-8 does not have."""
        if value is None:
            raise PydanticCustomError("empty", "is empty")
        if isinstance(value, str) and _surrogate(value):
            raise PydanticCustomError("string_unicode", "is not UTF-8")
        return value


class HeaderModel(_Model):
    """A header that has no key of its own."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["value"]}, {"required": ["value_base64"]}]})

    name: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f:]+$")]
    value: Line | None = Field(None, description="Its value, one line.")
    value_base64: Base64 | None = Field(None, description="Its value, if that is not text of one line.")


def read_policy_key(key: str) -> str | Rejection:
    """Return the key of the policy that a name stands for: `done_within` for `Done-Within`."""
    found = named_policies([(key.replace("_", "-"), "")])
    return found if isinstance(found, Rejection) else policy_key(found[0].name)


def _all_names(schema: dict[str, Any], _model: object) -> None:
    """Add to the schema of policies the other names that each of them may have."""
    for key, value in schema["properties"].items():
        name = "".join("[_-]" if one == "_" else f"[{one.upper()}{one}]" for one in key)
        schema.setdefault("patternProperties", {})[f"^([Xx][_-])?{name}$"] = value


class _PolicyKeys(_Model):
    model_config = ConfigDict(json_schema_extra=_all_names)

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        """Read the names of policies as people write them; one that is none, or is there already, stays as it is."""
        if not isinstance(given, dict):
            return given
        named = dict[Any, Any]()
        for key, value in given.items():
            read = read_policy_key(str(key))
            named[key if isinstance(read, Rejection) or read in named else read] = value
        return named


_POLICIES: dict[str, Any] = {
    policy_key(name): (Line | Number | bool | None, Field(None, description=name)) for name in sorted(POLICY_NAMES)
}
PoliciesModel: type[BaseModel] = create_model(
    "PoliciesModel",
    __base__=_PolicyKeys,
    __doc__="Policies by their names, in any case, with or without X-: missed for X-Missed.",
    **_POLICIES,
)


class RawLine(_Model):
    """A line of raw headers that is not text."""

    base64: Base64


class _ScheduleKeys(_Model):
    """The keys of a schedule, but for those that are headers with a field of the form."""

    model_config = ConfigDict(json_schema_extra=_exclusive_keys)

    subject: Annotated[str, Field(min_length=1)] = Field(description="The subject of the schedule.")
    at: Line | None = Field(None, description="When it fires once, RFC 3339: the pattern `@at …`.")
    every: Line | None = Field(None, description="The interval, such as 5m: the pattern `@every …`.")
    cron: Line | None = Field(None, description="Any other pattern: six fields, or such as @daily.")
    policies: PoliciesModel | None = Field(None, description="How it wants to be treated.")
    paused: bool | None = Field(None, description="Whether it is paused; without the key that stays as it is.")
    spelling: Literal["adr51", "portable"] | None = Field(
        None, description="Which headers are written: Nats-Schedule… (adr51) or X-Nats-Schedule… (portable)."
    )
    headers: list[HeaderModel] | None = Field(
        None, description="All other headers, in their order; names may occur twice."
    )
    order: Literal["sorted"] | list[Line] | None = Field(
        None, description="The order of the headers, if it is not the usual one: by name, or these names."
    )
    lines: list[Line | RawLine] | None = Field(
        None, description="All headers as raw lines, if the keys above cannot say them exactly."
    )
    block_base64: Base64 | None = Field(None, description="All headers as one raw block, if it has no lines.")
    body: str | None = Field(None, description="The body, as text.")
    body_base64: Base64 | None = Field(None, description="The body, if it is not text.")


def _key(field: FormField) -> Any:
    kind: Any = bool if field.on else Line | Number if field.kind == "duration" else Line
    return kind | None, Field(None, description=f"{field.header(ADR51).decode()}: {field.words}")


_FIELDS: dict[str, Any] = {field.name: _key(field) for field in BESIDE_PATTERN}
ScheduleModel: type[_ScheduleKeys] = create_model(
    "ScheduleModel",
    __base__=_ScheduleKeys,
    __doc__="One schedule: the subject of its message, its headers, and its body.",
    **_FIELDS,
)


class DocumentModel(_Model):
    """The schedules of one stream. A file has one such document, or several."""

    schema_address: JsonValue = Field(None, alias="$schema", description="Address of this schema, for editors.")
    stream: Annotated[str, Field(min_length=1)] = Field(description="The stream that has the schedules.")
    owner: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        None, description="The owner's label, X-Owner, of each schedule in this document that names no other."
    )
    spelling: Literal["adr51", "portable"] | None = Field(
        None, description="The spelling of schedules that name none; adr51 by default."
    )
    schedules: list[ScheduleModel] = Field(description="The schedules.")


def files_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of one document in a file of schedules."""
    schema = _without_null(DocumentModel.model_json_schema())
    assert isinstance(schema, dict)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Schedules of a stream"}


def _without_null(schema: Any) -> Any:
    """Leave out that a key may be null: None stands for a key that is absent."""
    if isinstance(schema, list):
        return [_without_null(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _without_null(value) for key, value in schema.items() if key != "default"}
    some = [one for one in kept.get("anyOf", ()) if one != {"type": "null"}]
    if "anyOf" in kept:
        del kept["anyOf"]
        kept |= some[0] if len(some) == 1 else {"anyOf": some}
    return {key: value for key, value in kept.items() if key != "title"}
