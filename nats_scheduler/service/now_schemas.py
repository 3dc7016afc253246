"""The requests and answers of the endpoints about what happens around now; the rules are those of `service.schemas`."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict  # not that of typing: pydantic refuses it before Python 3.12

from nats_scheduler.observe.activity import MINUTES_KEPT
from nats_scheduler.observe.documents import RecentFireDocument, ScheduleDocument
from nats_scheduler.service.schemas import Answer, Request, SubjectFilter

DEFAULT_RECENT_FIRES = 50
MAX_RECENT_FIRES_LISTED = 200
"""Recent fires in one answer."""

DEFAULT_MINUTES_AHEAD = 60
MAX_MINUTES_AHEAD = 120

OptionalStream = Annotated[str | None, Field(max_length=255, description="Name of the stream; null for all.")]


class ActivityRequest(Request):
    """A request for what was fired in the last minutes."""

    stream: OptionalStream = None
    minutes: Annotated[int, Field(ge=1, le=MINUTES_KEPT, description="How many minutes, the present one included.")] = (
        MINUTES_KEPT
    )


class RecentFiresRequest(Request):
    """A request for the last fires, newest first."""

    stream: OptionalStream = None
    filter: SubjectFilter = None
    limit: Annotated[int, Field(ge=1, le=MAX_RECENT_FIRES_LISTED, description="The most fires.")] = DEFAULT_RECENT_FIRES


class TimelineRequest(Request):
    """A request for the fires that come due in the next minutes."""

    stream: OptionalStream = None
    minutes: Annotated[
        int,
        Field(ge=1, le=MAX_MINUTES_AHEAD, description="How many minutes; the first is the rest of the present one."),
    ] = DEFAULT_MINUTES_AHEAD


MinuteDocument = TypedDict(
    "MinuteDocument",
    {
        "from": str,
        "fires": int,
        "duplicates": int,
        "overdue": int,
        "refused": int,
        "lateness": list[int],
        "lateness_max_nanoseconds": int,
    },
)
"""What happened in one minute: `lateness` counts the fires by `bounds_seconds`, with one more for what is above."""


class ActivityAnswer(Answer):
    """What was fired in the last minutes, oldest first; the last one is the present one."""

    unanswered: list[str]
    """The instances that did not answer: what they fired is missing."""
    bounds_seconds: list[float]
    """The upper bounds of the lateness that is counted together."""
    minutes: list[MinuteDocument]


class RecentFiresAnswer(Answer):
    """The last fires, newest first."""

    unanswered: list[str]
    """The instances that did not answer: what they fired is missing."""
    fires: list[RecentFireDocument]


MinuteAheadDocument = TypedDict("MinuteAheadDocument", {"from": str, "fires": int})
"""How many fires come due in one minute."""


class TimelineAnswer(Answer):
    """The fires that come due in the next minutes; in the first one, those of what is left of it."""

    minutes: list[MinuteAheadDocument]
    complete: bool
    """Whether all schedules were counted: their streams are read, and their patterns were not too many."""
    soonest: list[ScheduleDocument]
    """The schedules that fire next."""
