"""What is in an advisory: one model for each kind, from which the schema and the reference page are made.

The rule: a kind that `Reporter` publishes has a model here, and its body is what the model says; tests hold both.
Keys keep their names and meanings, and new ones may come, so that a subscriber passes over what it does not know.
Cost: pydantic, for who asks for the schema; `Reporter` publishes plain dictionaries.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter

from nats_scheduler.observe.reporter import ADVISORY_PREFIX, ADVISORY_TYPE

Instant = Annotated[
    str,
    Field(
        pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?Z$",
        json_schema_extra={"format": "date-time"},
    ),
]
"""RFC 3339 in UTC, to the nanosecond."""

Stream = Annotated[str, Field(description="The stream that it is about.")]
Schedule = Annotated[str, Field(description="Subject of the schedule.")]
Sequence = Annotated[int, Field(ge=1, description="Stream sequence of the schedule message.")]
Due = Annotated[Instant, Field(description="When the fire was due, or is, RFC 3339 in UTC.")]
Code = Annotated[int, Field(description="The server's error code; of a newer server where this one has none.")]
Description = Annotated[str, Field(description="The server's words for that code.")]
Header = Annotated[str, Field(description="The header that is wrong; empty where none is to blame.")]
Value = Annotated[str, Field(description="What stands in it, shortened.")]


class Advisory(BaseModel):
    """What all have: their `type`, and the stream that they are about."""

    stream: Stream


class ScheduleRejectedAdvisory(Advisory):
    """A message wants to be a schedule and is not valid: it stays stored and never fires."""

    type: Literal["io.nats_scheduler.advisory.v1.schedule_rejected"]
    schedule: Schedule
    seq: Sequence
    code: Code
    description: Description
    header: Header
    value: Value
    reason: str = Field(description="Why it is invalid, and what was expected.")


class HeaderMisnamedAdvisory(Advisory):
    """A header of a message looks like one of a schedule and is none: nobody reads it."""

    type: Literal["io.nats_scheduler.advisory.v1.header_misnamed"]
    subject: str = Field(description="Subject of the message.")
    seq: int = Field(description="Stream sequence of the message.")
    header: str = Field(description="The header as it is written.")
    reason: str = Field(description="Why it is read by nobody, and what may have been meant.")


class ScheduleEndsEarlyAdvisory(Advisory):
    """A schedule is held that its stream, or its TTL, removes before its next fire."""

    type: Literal["io.nats_scheduler.advisory.v1.schedule_ends_early"]
    schedule: Schedule
    seq: Sequence
    due: Due
    ends: Annotated[Instant, Field(description="When it is removed, RFC 3339 in UTC.")]
    reason: str = Field(description="What removes it.")


class ScheduleLostAdvisory(Advisory):
    """A schedule was removed before its next fire, by a limit or a TTL and by nobody's request."""

    type: Literal["io.nats_scheduler.advisory.v1.schedule_lost"]
    schedule: Schedule
    seq: Sequence
    due: Due
    reason: str = Field(description="What removed it.")


class FireRefusedAdvisory(Advisory):
    """A fire of a schedule was refused for the first time; it is tried again while the schedule lives."""

    type: Literal["io.nats_scheduler.advisory.v1.fire_refused"]
    schedule: Schedule
    seq: Sequence
    target: str = Field(description="The subject that the fire was published to, shortened.")
    due: Due
    code: int = Field(description="The server's error code; 403 where our user may not publish to the target.")
    reason: str = Field(description="The server's words.")


class FireForgedAdvisory(Advisory):
    """A message claims to be a fire of a schedule and cannot be; it is taken for an ordinary message."""

    type: Literal["io.nats_scheduler.advisory.v1.fire_forged"]
    schedule: Schedule
    seq: Sequence
    due: Annotated[Instant, Field(description="The fire that it claims to be, RFC 3339 in UTC.")]
    subject: str = Field(description="The subject that it was published to, shortened; empty where it is gone.")
    stored_as: int = Field(description="Its own stream sequence.")
    reason: str = Field(description="Why it cannot be that fire.")


class StreamRefusedAdvisory(Advisory):
    """A stream's configuration is one that a newer server refuses for a stream with schedules."""

    type: Literal["io.nats_scheduler.advisory.v1.stream_refused"]
    code: Code
    description: Description
    header: str = Field(description="The key of the configuration; empty where none is to blame.")
    value: Value
    reason: str = Field(description="Why it is refused, and what was expected.")


class CannotServeAdvisory(Advisory):
    """The instance lacks a permission that firing for the stream needs: others hold the stream while they can."""

    type: Literal["io.nats_scheduler.advisory.v1.cannot_serve"]
    reason: str = Field(description="What was denied.")


class HolderRelievedAdvisory(Advisory):
    """An instance lives and fires nothing of what it holds: the others fire for its shards."""

    type: Literal["io.nats_scheduler.advisory.v1.holder_relieved"]
    instance: str = Field(description="Id of the instance, as `nats-scheduler instances` lists it.")
    since: Annotated[Instant, Field(description="The oldest fire that was not seen, RFC 3339 in UTC.")]


class RegistryValueRefusedAdvisory(Advisory):
    """A value in the registry's bucket is not believed: it may have been written by somebody else."""

    stream: Annotated[str, Field(description="The stream of the bucket, such as `KV_nats_scheduler`.")]
    type: Literal["io.nats_scheduler.advisory.v1.registry_value_refused"]
    key: str = Field(description="The key in the bucket.")
    reason: str = Field(description="What is wrong with the value.")


AnyAdvisory = Annotated[
    ScheduleRejectedAdvisory
    | HeaderMisnamedAdvisory
    | ScheduleEndsEarlyAdvisory
    | ScheduleLostAdvisory
    | FireRefusedAdvisory
    | FireForgedAdvisory
    | StreamRefusedAdvisory
    | CannotServeAdvisory
    | HolderRelievedAdvisory
    | RegistryValueRefusedAdvisory,
    Field(discriminator="type"),
]

KINDS: dict[str, type[Advisory]] = {
    model.model_fields["type"].annotation.__args__[0].removeprefix(f"{ADVISORY_TYPE}."): model  # type: ignore[union-attr]
    for model in Advisory.__subclasses__()
}
"""The models by kind, in the order of this file."""


def advisories_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of what is published on `nats_scheduler.advisory.>`."""
    title = f"What is published on {ADVISORY_PREFIX}.<kind>.<stream>"
    schema = TypeAdapter(AnyAdvisory).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}
