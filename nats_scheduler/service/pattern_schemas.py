"""The requests and answers about patterns and messages that need not be stored: fire times, checks, explanations.

The rules are those of `service.schemas`.
"""

from typing import Annotated

from pydantic import Field, model_validator

from nats_scheduler.observe.documents import CheckedDocument, ErrorDocument, FireDocument
from nats_scheduler.observe.explanations import ExceptedDocument, ExplanationDocument
from nats_scheduler.service.schemas import Answer, Request

DEFAULT_FIRES = 5
MAX_FIRES = 1_000
"""Fire times in one answer."""

MAX_EXPLAINED_FIRES = 20
"""Fire times in one explanation, which is made at once."""


class NextRequest(Request):
    """A request for fire times: those of a schedule, or those of a pattern."""

    stream: Annotated[str | None, Field(description="Name of the stream; with `subject`.")] = None
    subject: Annotated[str | None, Field(description="Subject of the schedule, without wildcards.")] = None
    pattern: Annotated[str | None, Field(description="What `Nats-Schedule` would be; instead of `stream`.")] = None
    time_zone: Annotated[str | None, Field(description="What `Nats-Schedule-Time-Zone` would be.")] = None
    after: Annotated[
        str | None, Field(description="When the pattern is stored, RFC 3339; null for now. An interval counts from it.")
    ] = None
    count: Annotated[int, Field(ge=1, le=MAX_FIRES, description="How many fire times.")] = DEFAULT_FIRES

    @model_validator(mode="after")
    def _one_of_both(self) -> "NextRequest":
        if (self.pattern is None) == (self.stream is None) or (self.stream is None) != (self.subject is None):
            raise ValueError("either stream and subject, or pattern is expected")
        if self.pattern is None and (self.time_zone is not None or self.after is not None):
            raise ValueError("time_zone and after go with a pattern, and not with a stream")
        return self


class CheckRequest(Request):
    """A request to check a message before it is published: its headers, or a pattern alone."""

    headers: Annotated[
        dict[str, str] | None, Field(description="The headers of the message, as for `nats pub -H`.")
    ] = None
    pattern: Annotated[str | None, Field(description="What `Nats-Schedule` would be; instead of `headers`.")] = None
    time_zone: Annotated[str | None, Field(description="What `Nats-Schedule-Time-Zone` would be, for `pattern`.")] = (
        None
    )
    subject: Annotated[str | None, Field(description="Subject that the message is published to, for `headers`.")] = None
    stream: Annotated[
        str | None,
        Field(description="A served stream whose rules apply, for `headers`; null for any."),
    ] = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "CheckRequest":
        if (self.pattern is None) == (self.headers is None):
            raise ValueError("either headers or pattern is expected")
        if self.pattern is None and self.time_zone is not None:
            raise ValueError("time_zone goes with pattern; among headers it is Nats-Schedule-Time-Zone")
        if self.pattern is not None and (self.subject is not None or self.stream is not None):
            raise ValueError("subject and stream go with headers")
        return self


class ExplainRequest(Request):
    """A request to say in plain words when a pattern fires."""

    pattern: Annotated[str, Field(description="What `Nats-Schedule` is.")]
    time_zone: Annotated[str | None, Field(description="What `Nats-Schedule-Time-Zone` is.")] = None
    count: Annotated[int, Field(ge=1, le=MAX_EXPLAINED_FIRES, description="How many fire times.")] = DEFAULT_FIRES


class NextAnswer(Answer):
    """Fire times of a schedule or of a pattern."""

    pattern: str
    time_zone: str | None
    after: str
    """The instant after which the fires lie; for a pattern, when it is stored."""
    ends: bool
    """Whether nothing fires after those."""
    error: ErrorDocument | None
    """Why the server would refuse the pattern; null as well if it is none, and the message an ordinary one."""
    excepted: list[ExceptedDocument]
    """What `X-Except` leaves out before the last of the fires; of a schedule only."""
    fires: list[FireDocument]


class CheckAnswer(Answer, CheckedDocument):
    """What a message means, as `nats-scheduler check --json` prints it."""

    valid: bool
    """Whether it is a schedule or a cancel."""
    warnings: list[str]


class ExplainAnswer(Answer, ExplanationDocument):
    """What a pattern means, as `nats-scheduler explain --json` prints it."""
