"""The content of advisories: one model for each kind, from which the schema and the reference page are derived.

The rule: every kind that is published has a model here, and its body matches the model; tests check both. `Reporter`
publishes what went wrong, and `control.changes` builds what says that a schedule was changed.
Keys keep their names and meanings. New keys may be added, so a subscriber must ignore keys that it does not know.
Cost: pydantic, only when the schema is printed; plain dictionaries are published.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter

from nats_scheduler.message.advisory_messages import ADVISORY_PREFIX, ADVISORY_TYPE

Instant = Annotated[
    str,
    Field(
        pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?Z$",
        json_schema_extra={"format": "date-time"},
    ),
]
"""RFC 3339 in UTC, to the nanosecond."""

Stream = Annotated[str, Field(description="The stream that the advisory is about.")]
Schedule = Annotated[str, Field(description="Subject of the schedule.")]
Sequence = Annotated[int, Field(ge=1, description="Stream sequence of the schedule message.")]
Due = Annotated[Instant, Field(description="The fire time of the fire, RFC 3339 in UTC.")]
Code = Annotated[int, Field(description="The server's error code; that of a newer server if this server has none.")]
Description = Annotated[str, Field(description="The server's description of that code.")]
Header = Annotated[str, Field(description="The header that is wrong; empty if no header is.")]
Value = Annotated[str, Field(description="Its value, shortened.")]


class Advisory(BaseModel):
    """The keys of all advisories: `type`, and the stream that the advisory is about."""

    stream: Stream


class ScheduleRejectedAdvisory(Advisory):
    """A message is an invalid schedule: it stays stored and never fires."""

    type: Literal["io.nats_scheduler.advisory.v1.schedule_rejected"]
    schedule: Schedule
    seq: Sequence
    code: Code
    description: Description
    header: Header
    value: Value
    reason: str = Field(description="Why it is invalid, and what was expected.")


class HeaderMisnamedAdvisory(Advisory):
    """A header of a message looks like one of a schedule but is not: it has no effect."""

    type: Literal["io.nats_scheduler.advisory.v1.header_misnamed"]
    subject: str = Field(description="Subject of the message.")
    seq: int = Field(description="Stream sequence of the message.")
    header: str = Field(description="The header as it was written.")
    reason: str = Field(description="Why it has no effect, and which header may be meant.")


class ScheduleEndsEarlyAdvisory(Advisory):
    """A schedule is held, but a limit of its stream or its TTL will remove it before its next fire."""

    type: Literal["io.nats_scheduler.advisory.v1.schedule_ends_early"]
    schedule: Schedule
    seq: Sequence
    due: Due
    ends: Annotated[Instant, Field(description="When it will be removed, RFC 3339 in UTC.")]
    reason: str = Field(description="Why it will be removed.")


class CalendarMissingAdvisory(Advisory):
    """Schedules name a calendar that is not known: they wait for it, and fire nothing."""

    type: Literal["io.nats_scheduler.advisory.v1.calendar_missing"]
    calendar: str = Field(description="Name of the calendar.")
    reason: str = Field(description="Why it is not known.")
    schedules: int = Field(description="How many schedules wait, of those that this instance fires.")


class ScheduleLostAdvisory(Advisory):
    """A schedule was removed before its next fire, by a limit or a TTL, without a request."""

    type: Literal["io.nats_scheduler.advisory.v1.schedule_lost"]
    schedule: Schedule
    seq: Sequence
    due: Due
    reason: str = Field(description="Why it was removed.")


class FireRefusedAdvisory(Advisory):
    """A fire of a schedule was refused for the first time; it is retried as long as the schedule is held."""

    type: Literal["io.nats_scheduler.advisory.v1.fire_refused"]
    schedule: Schedule
    seq: Sequence
    target: str = Field(description="The subject that the fire was published to, shortened.")
    due: Due
    code: int = Field(description="The server's error code; 403 if the sidecar's user may not publish to the target.")
    reason: str = Field(description="The server's description of the error.")


class FireForgedAdvisory(Advisory):
    """A message claims to be a fire of a schedule and cannot be one; it is treated as an ordinary message."""

    type: Literal["io.nats_scheduler.advisory.v1.fire_forged"]
    schedule: Schedule
    seq: Sequence
    due: Annotated[Instant, Field(description="The fire time that it claims, RFC 3339 in UTC.")]
    subject: str = Field(description="The subject that it was published to, shortened; empty if it was removed.")
    stored_as: int = Field(description="Its own stream sequence.")
    reason: str = Field(description="Why it cannot be that fire.")


class FiresMissedAdvisory(Advisory):
    """Fires of a schedule came due and were not stored; one make-up fire was stored for them."""

    type: Literal["io.nats_scheduler.advisory.v1.fires_missed"]
    schedule: Schedule
    seq: Sequence
    since: Annotated[Instant, Field(description="The fire time of the first of them, RFC 3339 in UTC.")]
    make_up_fire: Annotated[Instant, Field(description="The fire time of the make-up fire, RFC 3339 in UTC.")]


class FiresSkippedAdvisory(Advisory):
    """Fires of a schedule were not stored because a policy of the schedule dropped them."""

    type: Literal["io.nats_scheduler.advisory.v1.fires_skipped"]
    schedule: Schedule
    seq: Sequence
    since: Annotated[Instant, Field(description="The fire time of the first of them, RFC 3339 in UTC.")]
    dropped: int = Field(description="How many they are.")
    policy: str = Field(description="The policy, such as `X-Missed: skip`.")


class FireTimedOutAdvisory(Advisory):
    """A fire is unfinished for longer than the `X-Timeout` of its schedule, and counts as finished."""

    type: Literal["io.nats_scheduler.advisory.v1.fire_timed_out"]
    schedule: Schedule
    seq: Sequence
    stored_as: int = Field(description="The stream sequence of that fire, or of a later message if it is not known.")
    stored: Annotated[Instant, Field(description="When it was stored, or when it was due if that is not known.")]
    due: Annotated[Instant, Field(description="The fire time of the fire that is sent now, RFC 3339 in UTC.")]
    reason: str = Field(description="What is known of it.")


class FinishUnknownAdvisory(Advisory):
    """A fire waits, because nothing can show whether the fire before it is finished."""

    type: Literal["io.nats_scheduler.advisory.v1.finish_unknown"]
    schedule: Schedule
    seq: Sequence
    due: Due
    reason: str = Field(description="Why it cannot be found out.")


class FiresDroppedAdvisory(Advisory):
    """A schedule ended while its fires were refused: what came due meanwhile is not stored."""

    type: Literal["io.nats_scheduler.advisory.v1.fires_dropped"]
    schedule: Schedule
    seq: Sequence
    since: Annotated[Instant, Field(description="The fire time of the first of them, RFC 3339 in UTC.")]
    code: int = Field(description="The server's error code; 403 if the sidecar's user may not publish to the target.")
    reason: str = Field(description="The server's description of the error.")


class FireLateAdvisory(Advisory):
    """A fire was stored later than `late_after` after its fire time, or after its schedule if that is later."""

    type: Literal["io.nats_scheduler.advisory.v1.fire_late"]
    schedule: Schedule
    due: Due
    stored: Annotated[Instant, Field(description="When it was stored, RFC 3339 in UTC.")]
    stored_as: int = Field(description="Its own stream sequence.")
    lateness: str = Field(description="How late that was, a duration such as `1m30s`.")


class PurgeFailedAdvisory(Advisory):
    """The server refuses to purge a schedule that is done, or an old version of one; it does not fire again."""

    type: Literal["io.nats_scheduler.advisory.v1.purge_failed"]
    schedule: Schedule
    seq: Annotated[int, Field(ge=1, description="The stream sequence up to which its subject was to be purged.")]
    reason: str = Field(description="Why the purge is refused.")


class ExpiryFailedAdvisory(Advisory):
    """The server refuses to remove a message whose `Nats-TTL` has run out: from now on all such messages stay."""

    type: Literal["io.nats_scheduler.advisory.v1.expiry_failed"]
    seq: Annotated[int, Field(ge=1, description="Stream sequence of the message whose removal was refused.")]
    reason: str = Field(description="Why the removal is refused.")


class StreamRefusedAdvisory(Advisory):
    """A newer server would refuse this configuration for a stream with schedules."""

    type: Literal["io.nats_scheduler.advisory.v1.stream_refused"]
    code: Code
    description: Description
    header: str = Field(description="The key of the configuration that is wrong; empty if no key is.")
    value: Value
    reason: str = Field(description="Why it is refused, and what was expected.")


class CannotServeAdvisory(Advisory):
    """This instance lacks what a holder of the stream needs, such as a permission; able instances hold the stream."""

    type: Literal["io.nats_scheduler.advisory.v1.cannot_serve"]
    reason: str = Field(description="The request that was denied, or the value of a newer version that cannot be read.")


class HolderRelievedAdvisory(Advisory):
    """An instance is alive but does not fire for the shards that it holds; other instances take them over."""

    type: Literal["io.nats_scheduler.advisory.v1.instance_not_firing"]
    instance: str = Field(description="Id of the instance, as `nats-scheduler instances` lists it.")
    since: Annotated[Instant, Field(description="The fire time of the oldest missing fire, RFC 3339 in UTC.")]


class RegistryValueRefusedAdvisory(Advisory):
    """A value in the registry's bucket is discarded: another program may have written it."""

    stream: Annotated[str, Field(description="The stream of the bucket, such as `KV_nats_scheduler`.")]
    type: Literal["io.nats_scheduler.advisory.v1.registry_value_ignored"]
    key: str = Field(description="The key in the bucket.")
    reason: str = Field(description="What is wrong with the value.")


class ScheduleChangedAdvisory(Advisory):
    """A command, a request or a program changed a schedule; nothing went wrong."""

    type: Literal["io.nats_scheduler.advisory.v1.schedule_changed"]
    schedule: Schedule
    change: Literal["added", "unchanged", "edited", "paused", "resumed", "removed", "fired", "backfilled"] = Field(
        description="What was done: `added`, `edited`, `paused`, `resumed`, `removed`, `fired` or `backfilled`."
    )
    sequence_before: Annotated[
        int, Field(ge=0, description="Sequence of the schedule message before; 0 if there was none.")
    ]
    sequence: Annotated[int, Field(ge=0, description="Sequence of the schedule message now; 0 if there is none.")]
    changed: Annotated[Instant, Field(description="When it was done, RFC 3339 in UTC.")]
    author: str = Field(description="Who did it, as the program or person says; empty if that is not said.")
    reason: str = Field(description="Why, as the author says; empty if that is not said.")
    fires: list[Instant] = Field(description="The fire times of the fires that were stored, of the first 100 of them.")
    fires_stored: Annotated[int, Field(ge=0, description="How many fires were stored.")]
    notes: list[str] = Field(description="What an operator should know of it, such as a phase that is lost.")


AnyAdvisory = Annotated[
    ScheduleRejectedAdvisory
    | HeaderMisnamedAdvisory
    | ScheduleEndsEarlyAdvisory
    | CalendarMissingAdvisory
    | ScheduleLostAdvisory
    | FireRefusedAdvisory
    | FireForgedAdvisory
    | FiresMissedAdvisory
    | FiresSkippedAdvisory
    | FireTimedOutAdvisory
    | FinishUnknownAdvisory
    | FiresDroppedAdvisory
    | FireLateAdvisory
    | PurgeFailedAdvisory
    | ExpiryFailedAdvisory
    | StreamRefusedAdvisory
    | CannotServeAdvisory
    | HolderRelievedAdvisory
    | RegistryValueRefusedAdvisory
    | ScheduleChangedAdvisory,
    Field(discriminator="type"),
]

KINDS: dict[str, type[Advisory]] = {
    model.model_fields["type"].annotation.__args__[0].removeprefix(f"{ADVISORY_TYPE}."): model  # type: ignore[union-attr]
    for model in Advisory.__subclasses__()
}
"""The models by kind, in the order of this file."""


def advisories_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of what is published on `nats_scheduler.advisory.>`."""
    title = f"What is published on {ADVISORY_PREFIX}.<kind>.<stream>.<schedule>"
    schema = TypeAdapter(AnyAdvisory).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}
