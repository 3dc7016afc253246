"""The requests and answers of the micro service: one model for each, from which the schemas and the page are derived.

The rules: every key of a request has a description, because that is the documentation. A request with an unknown key is
refused, so that a misspelt filter does not list everything. Answers are made of the documents of `observe.documents`;
new keys may be added to them, so a requester must ignore keys that it does not know. A program reads an answer
by its model: any client may answer in place of a sidecar.

Cost: some microseconds for each item that is read.
"""

from functools import cache
from typing import Annotated, Any, Literal, NotRequired, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
)
from typing_extensions import TypedDict  # not that of typing: pydantic refuses it before Python 3.12

from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.view import MAX_PAGE_LENGTH, Order
from nats_scheduler.message.subjects import is_literal_subject, is_valid_subject
from nats_scheduler.observe.documents import (
    CountsDocument,
    FindingDocument,
    MisnamedDocument,
    Number,
    RejectedDocument,
    ReportDocument,
    Rows,
    ScheduleDocument,
    StreamModeDocument,
    Time,
    UnexaminedDocument,
)
from nats_scheduler.schedule.patterns import PatternKind
from nats_scheduler.schedule.rfc3339 import parse_rfc3339

DEFAULT_PAGE_LENGTH = 100

StreamName = Annotated[str, Field(min_length=1, max_length=255, description="Name of the stream.")]
Limit = Annotated[
    int,
    Field(ge=1, le=MAX_PAGE_LENGTH, description="Most items on the page; there are fewer if the answer gets too long."),
]
CursorText = Annotated[str | None, Field(description="The `cursor` of the page before; null for the first page.")]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _subject_filter(subject: str | None) -> str | None:
    if subject is not None and not is_valid_subject(subject):
        raise ValueError("a subject such as 'orders.>' is expected")
    return subject


SubjectFilter = Annotated[
    str | None, AfterValidator(_subject_filter), Field(description="Only these subjects; wildcards are allowed.")
]
TargetFilter = Annotated[
    str | None, AfterValidator(_subject_filter), Field(description="Only these targets; wildcards are allowed.")
]

MAX_SEARCHED_CHARS = 256
"""Longest text that is searched for: each subject is compared with it."""


def _utf8(text: str) -> str:
    text.encode()
    return text


SearchedText = Annotated[str, Field(min_length=1, max_length=MAX_SEARCHED_CHARS), AfterValidator(_utf8)]


def _read_instant(value: Any) -> int:
    instant = parse_rfc3339(value) if isinstance(value, str) else None
    if not isinstance(instant, int):
        raise ValueError("a time such as 2026-01-31T09:00:00Z is expected")
    return instant


Instant = Annotated[int, BeforeValidator(_read_instant, json_schema_input_type=str)]
"""A time of a request, RFC 3339: nanoseconds since the Unix epoch once it is read."""


T = TypeVar("T")


def read_answer(form: type[T], answer: object) -> T | None:
    """Return an answer as its model `form` says, without keys that are not in it; None if it has another form."""
    model: Any = form
    try:
        found: T = _adapter(model).validate_python(answer, strict=True)
    except ValidationError:
        return None
    return found


@cache
def _adapter(form: Any) -> TypeAdapter[Any]:
    return TypeAdapter(form)


class Request(BaseModel):
    """A request: unknown keys and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class NoKeys(Request):
    """A request without keys: an empty body, or `{}`."""


class ScheduleRequest(Request):
    """A request for one schedule."""

    stream: StreamName
    subject: Annotated[str, Field(description="Subject of the schedule, without wildcards.")]

    @field_validator("subject")
    @classmethod
    def _literal(cls, subject: str) -> str:
        if not is_literal_subject(subject):
            raise ValueError("a subject without wildcards, such as 'orders.reminder' is expected")
        return subject


class ListRequest(Request):
    """A request for streams or instances, by name."""

    limit: Limit = DEFAULT_PAGE_LENGTH
    cursor: CursorText = None


StreamNames = Annotated[list[StreamName] | None, Field(description="Only these streams; null for all that are served.")]


class StreamsRequest(ListRequest):
    """A request for streams that are served, by name."""

    streams: StreamNames = None


class MessagesRequest(ListRequest):
    """A request for messages that are no valid schedules, by subject."""

    stream: StreamName
    filter: SubjectFilter = None
    target: TargetFilter = None
    contains: Annotated[
        SearchedText | None, Field(description="Only subjects that contain this text, which has no wildcards.")
    ] = None
    target_contains: Annotated[
        SearchedText | None, Field(description="Only targets that contain this text, which has no wildcards.")
    ] = None


class SchedulesRequest(MessagesRequest):
    """A request for schedules, soonest first unless another order is asked for."""

    state: Annotated[
        list[Annotated[State, Field(strict=False)]] | None,
        BeforeValidator(_as_list, json_schema_input_type=State | list[State] | None),
        Field(description="Only these states: one, or a list."),
    ] = None
    kind: Annotated[
        list[Annotated[PatternKind, Field(strict=False)]] | None,
        BeforeValidator(_as_list, json_schema_input_type=PatternKind | list[PatternKind] | None),
        Field(description="Only these kinds of patterns: one, or a list."),
    ] = None
    owner: Annotated[SearchedText | None, Field(description="Only schedules whose `X-Owner` is this.")] = None
    order: Annotated[
        Order,
        Field(strict=False, description="The order of the list, then by subject; a `cursor` is of the same one."),
    ] = Order.NEXT_FIRE
    count: Annotated[
        bool, Field(description="Whether to count all that are as asked for: `total`, which looks at each schedule.")
    ] = False


class OptionalStreamRequest(Request):
    """A request about one stream, or about all."""

    stream: Annotated[str | None, Field(max_length=255, description="Name of the stream; null for all.")] = None


class Answer(TypedDict):
    """The keys with which every answer begins."""

    at: Time
    """The time of the answer, by the server's clock."""
    instance: str
    """The instance that answers."""


class HealthAnswer(Answer):
    """The readiness of the sidecar that answers, with the reasons if it is not ready."""

    ready: bool
    reasons: Rows[str]
    notes: NotRequired[list[str]]
    """Notes for an operator although it is ready; a sidecar of version 0.1 sends none."""
    allow_control: NotRequired[bool]
    """True if it changes schedules for those who ask without a rule."""
    control_rules: NotRequired[list[str]]
    """The names of the rules under which it changes schedules."""


class FlightDocument(TypedDict):
    """The work in progress for a schedule."""

    stage: str
    """A stage, such as `in flight` or `backing off`; `docs/reference/service.md` lists all."""
    attempts: Number
    """The number of attempts to publish or read that failed so far."""
    may_be_stored: bool
    """True if the fire was sent, and its outcome is not known."""


class ScheduleAnswer(Answer):
    """All that is known of one schedule, by the owner of its stream, if that answered."""

    owner: str | None
    """The instance that fires the schedule; null if none does, or if the server itself does."""
    owner_answered: bool
    """True if this is the answer of the owner, or if no sidecar fires the schedule.

    Without it, `flight` and a failing state are not known.
    """
    schedule: ScheduleDocument | None
    flight: FlightDocument | None
    rejected: RejectedDocument | None
    """Set instead of `schedule` if the message on the subject is rejected as a schedule."""
    misnamed: MisnamedDocument | None
    """Set if the message on the subject has headers that look like those of a schedule and are none."""
    findings: Rows[FindingDocument]
    """What is wrong with it, or may be meant otherwise."""


class OwnerDocument(TypedDict):
    """The owner and the standbys of a stream."""

    stream: str
    mode: str
    """`emulated`, `portable`, `native` or `dormant`."""
    owner: str | None
    """The instance that fires its schedules; null if none does."""
    owner_since: Time | None
    """When the owner took it over: the last takeover."""
    takeover_reason: str | None
    """Why the owner took it over, as in `owns` of `instances.list`."""
    standbys: Rows[str]
    """The instances that have read it and do not own it, in the order in which they take it over."""


class StreamDocument(OwnerDocument):
    """A stream, and what is known of its schedules."""

    ready: bool
    """True if the instance that answers has read it to its end; all that follows is null or 0 if not."""
    unread: str | None
    """Why what the server itself fires was not read for this answer, so that `schedules` and `next` are null."""
    schedules: CountsDocument | None
    failing: Number
    """The number of schedules that fail; 0 if the owner did not answer."""
    rejected: Number
    misnamed: Number
    next: ScheduleDocument | None
    """The schedule that fires next."""


class StreamsAnswer(Answer):
    """A page of streams, by name."""

    unanswered: Rows[str]
    """The instances that did not answer: what only they know, such as their failing schedules, is missing."""
    cursor: str | None
    streams: Rows[StreamDocument]


class StreamModesAnswer(Answer):
    """A page of streams, by name."""

    cursor: str | None
    streams: Rows[StreamModeDocument]


class OfStreamAnswer(Answer):
    """A page of what is stored in one stream."""

    stream: str
    mode: str
    read_through: Number
    """The sequence up to which the stream was read for the answer."""
    cursor: str | None


class SchedulesAnswer(OfStreamAnswer):
    """A page of schedules in the order that was asked for: soonest first, then by subject."""

    unanswered: Rows[str]
    total: Number | None
    """The number of all schedules that are as asked for; null unless `count` was asked for."""
    schedules: Rows[ScheduleDocument]


class RejectedAnswer(OfStreamAnswer):
    """A page of rejected schedules, by subject."""

    rejected: Rows[RejectedDocument]


class MisnamedAnswer(OfStreamAnswer):
    """A page of messages with misnamed headers, by subject."""

    misnamed: Rows[MisnamedDocument]


class OwnsDocument(TypedDict):
    """A stream that an instance owns: it fires the schedules."""

    stream: str
    mode: str
    since: Time | None
    """When it took the stream over."""
    before: str
    """The owner before; empty if there was none."""
    reason: str
    """Why it took the stream over: `first` (nobody owned it), `order` (it is earlier in the order of the stream),
    `left`, `gone`, `not_ready`, `unable` or `idle` (what the owner before was)."""


class StandsByDocument(TypedDict):
    """A stream that an instance has read and does not own: it can take it over."""

    stream: str
    mode: str


class UnableDocument(TypedDict):
    """A stream that an instance cannot serve."""

    stream: str
    reason: str


class InstanceDocument(TypedDict):
    """A running sidecar, as `nats-scheduler instances --json` prints it."""

    id: str
    state: Literal["alive", "silent", "gone"]
    since: Time | None
    last_heartbeat: Time | None
    age_nanoseconds: Number | None
    serves: list[str] | None
    unable: Rows[UnableDocument]
    owns: Rows[OwnsDocument]
    stands_by: Rows[StandsByDocument]
    standbys: Number | None
    """How many standbys it wants for each stream (the setting `standbys`); null if it does not say."""


class OwnershipDocument(OwnerDocument):
    """The owner and the standbys of a stream, as the instances of the account say."""

    owner_before: str
    """The owner before; empty if there was none."""
    lost_owner: str | None
    """The instance that its record names and that is not alive: nothing fires until another one takes the stream over.
    Then `owner` is null."""
    lacks_standby: bool
    """True if it is to have a standby and has none, although more than one instance is alive."""


class InstancesDocument(TypedDict):
    """The instances by id, and who owns and stands by each stream, as `nats-scheduler instances --json` prints it."""

    at: Time
    """The time at which they were read, by the server's clock."""
    instances: Rows[InstanceDocument]
    streams: Rows[OwnershipDocument]


class InstancesAnswer(Answer):
    """A page of instances, by id."""

    cursor: str | None
    instances: Rows[InstanceDocument]


class FindingsAnswer(Answer, ReportDocument):
    """The findings, worst first, as `nats-scheduler doctor --json` prints them; `at` is the time of the examination."""

    unexamined: Rows[UnexaminedDocument]
    """The parts that a running sidecar does not examine, or could not."""
    omitted: Number
    """The number of findings that are left out because the answer would be too long."""
