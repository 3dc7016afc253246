"""The requests and answers of the endpoints about the past; the rules are those of `service.schemas`."""

from typing import Annotated

from pydantic import AfterValidator, Field

from nats_scheduler.observe.documents import FailureDocument, PastFireDocument
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from nats_scheduler.service.fire_history import DEFAULT_FIRES, MAX_FIRES
from nats_scheduler.service.kept_failures import DEFAULT_FAILURES, MAX_FAILURES
from nats_scheduler.service.schemas import Answer, Request, ScheduleRequest, SubjectFilter, TargetFilter


def as_time(text: str | None) -> str | None:
    """Return a text that is a time, RFC 3339, or None; raises `ValueError` for another one."""
    if text is not None and not isinstance(parse_rfc3339(text), int):
        raise ValueError("a time such as 2026-01-31T09:00:00Z is expected")
    return text


Since = Annotated[
    str | None,
    AfterValidator(as_time),
    Field(description="Only what was stored at this time, RFC 3339, or later; null for all."),
]


class FiresRequest(ScheduleRequest):
    """A request for the past fires of a schedule, newest first; the schedule itself may be gone."""

    since: Since = None
    limit: Annotated[int, Field(ge=1, le=MAX_FIRES, description="The most fires.")] = DEFAULT_FIRES
    target: Annotated[
        TargetFilter, Field(description="Where to look, wildcards allowed; null for the target of the stored schedule.")
    ] = None


class FailuresRequest(Request):
    """A request for what went wrong, newest first."""

    stream: Annotated[
        str | None,
        Field(pattern=r"^[^\s.*>/\\]+$", max_length=255, description="Only failures about this stream; null for all."),
    ] = None
    subject: Annotated[
        SubjectFilter,
        Field(description="Only failures about schedules on this subject, wildcards allowed."),
    ] = None
    since: Since = None
    limit: Annotated[int, Field(ge=1, le=MAX_FAILURES, description="The most failures.")] = DEFAULT_FAILURES


class FiresAnswer(Answer):
    """The past fires of a schedule, newest first."""

    stream: str
    schedule: str
    searched: str
    """The subject that was searched."""
    complete: bool
    """Whether all fires up to the limit are here: they fit into the answer, and not too many messages were read."""
    oldest_read: str | None
    """When the oldest message that was read was stored; null if none was."""
    fires: list[PastFireDocument]


class FailuresAnswer(Answer):
    """What went wrong, newest first."""

    kept_in: str
    """The stream that keeps it."""
    complete: bool
    """Whether all failures up to the limit are here."""
    failures: list[FailureDocument]
