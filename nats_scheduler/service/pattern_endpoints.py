"""The endpoints about what is not stored: when a pattern fires, and what a message would mean; and fires of a schedule.

The rule: the answers are those of the commands with the same names, by the same code.

Limit: what a pattern costs to read is not sliced; it begins in a moment without fires.
Cost: some microseconds for each fire of an interval, tens of microseconds for each of a cron pattern, in slices.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field, model_validator

from nats_scheduler.engine.views.view import ListedSchedule
from nats_scheduler.message.ages import is_early
from nats_scheduler.message.capabilities import capabilities_of
from nats_scheduler.message.definition import read_pattern
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.headers import EMPTY_BLOCK, with_headers
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.schedule_findings import findings_about
from nats_scheduler.message.spread import NO_SUBJECT
from nats_scheduler.message.subjects import is_literal_subject
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.observe.documents import (
    CheckedDocument,
    ErrorDocument,
    FindingDocument,
    FireDocument,
    Rows,
    Time,
    error_document,
    finding_document,
    fire_document,
)
from nats_scheduler.observe.explanations import (
    ANY_STREAM_RULES,
    ExceptedDocument,
    ExplanationDocument,
    excepted_document,
    explanation_document,
    is_valid,
    pattern_reading,
    reading_document,
)
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.encoded_items import with_items
from nats_scheduler.service.endpoint import Asked, Document, shown
from nats_scheduler.service.micro import BAD_REQUEST, NOT_FOUND, ServiceError
from nats_scheduler.service.schemas import Answer, Instant, Request

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
        Instant | None,
        Field(description="When the pattern is stored, RFC 3339; null for now. An interval counts from it."),
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
    after: Time
    """The instant after which the fires lie; for a pattern, when it is stored."""
    ends: bool
    """True if nothing fires after those."""
    error: ErrorDocument | None
    """Why the server would refuse the pattern; null as well if it is none, and the message an ordinary one."""
    excepted: Rows[ExceptedDocument]
    """The days that `X-Except` leaves out before the last of the fires; of a schedule only."""
    fires: Rows[FireDocument]


class CheckAnswer(Answer, CheckedDocument):
    """The meaning of a message, as `nats-scheduler check --json` prints it."""

    valid: bool
    """True if it is a schedule or a cancel."""
    findings: Rows[FindingDocument]
    """What is valid and may be meant otherwise, or will not fire."""


class ExplainAnswer(Answer, ExplanationDocument):
    """The meaning of a pattern, as `nats-scheduler explain --json` prints it."""


EXCEPTED_PART = 4
"""This part of an answer at most is what `X-Except` leaves out."""

ROW_BYTES = 128
"""The longest row of what it leaves out, with two times to the nanosecond."""


async def next_fires(asked: Asked, request: NextRequest) -> Document:
    """Return the next fires of a schedule or of a pattern."""
    if request.stream is not None and request.subject is not None:
        known = await asked.known(request.stream)
        now = asked.now()
        listed = known.view.schedule(request.subject, now)
        if listed is None:
            where = f"stream {shown(request.stream)} has no schedule on {shown(request.subject)}"
            raise ServiceError(NOT_FOUND, f"{where}: schedules.list lists them")
        return await _next(asked, listed.timetable, listed.pattern.time_zone, now, fires_of(listed, request.count))
    now = asked.now()
    await asked.turns.moment_without_fires()
    pattern, after = request.pattern or "", now if request.after is None else request.after
    one_line("pattern", pattern)
    one_line("time_zone", request.time_zone or "")
    read = read_pattern(pattern, request.time_zone, after)
    if read is None or isinstance(read, Rejection):
        error = None if read is None else error_document(read)
        head = _head(asked, pattern, request.time_zone, after)
        return {**head, "ends": True, "error": error, "excepted": [], "fires": []}
    timetable = Timetable(read, after)
    work = fires_from(timetable.next_fire, timetable.first_fire(), request.count)
    return await _next(asked, timetable, request.time_zone, after, work)


def _head(asked: Asked, pattern: str, zone: str | None, after: int) -> dict[str, object]:
    return {
        **asked.head(),
        "pattern": pattern,
        "time_zone": zone,
        "after": format_rfc3339(after),
    }


async def _next(
    asked: Asked,
    timetable: Timetable,
    zone: str | None,
    after: int,
    work: Generator[None, None, tuple[list[int], bool]],
) -> Document:
    fires, ends = await asked.turns.run(work)
    room, pattern = asked.room, timetable.pattern

    def document(fire: int) -> FireDocument:
        return fire_document(pattern, fire, timetable.delayed_to(fire))

    rows, left = await asked.turns.run(excepted_among(timetable, after, fires, room // EXCEPTED_PART // ROW_BYTES))
    items = await asked.encoded(left, document, room - len(rows) * ROW_BYTES)
    ends = ends and len(items) == len(fires)
    shown = [excepted_document(row) for row in rows if row[0] < left[len(items) - 1]]
    head = {**_head(asked, pattern.text, zone, after), "ends": ends, "error": None, "excepted": shown}
    return with_items(head, "fires", items)


def excepted_among(
    timetable: Timetable, after: int, fires: Sequence[int], most: int
) -> Generator[None, None, tuple[list[tuple[int, int]], Sequence[int]]]:
    """Find what `X-Except` leaves out before the last fire, and those fires before which are at most `most` rows."""
    rows, before = list[tuple[int, int]](), after
    for number, fire in enumerate(fires):
        for row in timetable.excepted_fires(before, fire):
            rows.append(row)
            yield
        if number and len(rows) > most:
            return [row for row in rows if row[0] < before], fires[:number]
        before = max(before, fire)
        yield
    return rows, fires


def fires_of(listed: ListedSchedule, count: int) -> Generator[None, None, tuple[list[int], bool]]:
    """Find the next fires of a schedule, as `fires_from` does; none is sent when its stream has removed it."""
    ends, timetable = listed.ends, listed.timetable

    def fire_after(fire: int) -> int | None:
        return as_stored(listed.fire_after(fire))

    def as_stored(fire: int | None) -> int | None:
        return None if fire is None or (ends is not None and is_early(ends, timetable.send_time_of(fire))) else fire

    return fires_from(fire_after, as_stored(listed.next_fire), count)


def fires_from(
    fire_after: Callable[[int], int | None], first: int | None, count: int
) -> Generator[None, None, tuple[list[int], bool]]:
    """Find the fires from the first one on, at most `count`, and whether nothing fires after them."""
    fires, following = list[int](), first
    while following is not None:
        if len(fires) == count:
            return fires, False
        fires.append(following)
        following = fire_after(following)
        yield
    return fires, True


async def check(asked: Asked, request: CheckRequest) -> Document:
    """Return what a message would mean that is published now."""
    await asked.turns.moment_without_fires()
    now, is_by_server = asked.now(), None
    if request.pattern is not None:
        one_line("pattern", request.pattern)
        one_line("time_zone", request.time_zone or "")
        block, rules = EMPTY_BLOCK, ANY_STREAM_RULES
        reading = pattern_reading(request.pattern, request.time_zone, now)
    else:
        subject = NO_SUBJECT if request.subject is None else request.subject
        if not is_literal_subject(subject):
            raise ServiceError(BAD_REQUEST, f"subject of {shown(subject)}: a subject without wildcards is expected")
        rules = ANY_STREAM_RULES
        if request.stream is not None:
            state = asked.stream(request.stream).state
            is_by_server = state.is_native
            rules = replace(state.rules, restrictions=asked.restrictions_on(state.name))
        block = with_headers(EMPTY_BLOCK, [header(name, value) for name, value in (request.headers or {}).items()])
        reading = read_message(block, subject, now, rules, DIALECTS)
    definition = None if reading is None else reading.defined
    server = capabilities_of(asked.connection.server.version)
    findings = findings_about(block, definition, rules, now, server, is_by_server=is_by_server)
    answer: CheckAnswer = {
        **asked.head(now),
        "valid": is_valid(reading),
        **reading_document(reading, now),
        "findings": [*map(finding_document, findings)],
    }
    return answer


async def explain(asked: Asked, request: ExplainRequest) -> Document:
    """Return in plain words when a pattern fires that is stored now."""
    await asked.turns.moment_without_fires()
    now = asked.now()
    one_line("pattern", request.pattern)
    one_line("time_zone", request.time_zone or "")
    answer: ExplainAnswer = {
        **asked.head(now),
        **explanation_document(request.pattern, request.time_zone, now, request.count),
    }
    return answer


def header(name: str, value: str) -> tuple[bytes, bytes]:
    """Return a header as bytes; raises `ServiceError` if it would be another header, or several."""
    one_line("a header", name)
    one_line(name, value)
    if not name or ":" in name:
        raise ServiceError(BAD_REQUEST, f"a header named {shown(name)}: a name without a colon is expected")
    return name.encode("utf-8", "surrogateescape"), value.encode("utf-8", "surrogateescape")


def one_line(key: str, text: str) -> None:
    """Raise `ServiceError` for a text with a line break, which would begin another header."""
    if "\r" in text or "\n" in text:
        raise ServiceError(BAD_REQUEST, f"{shown(key)} of {shown(text)}: a text without line breaks is expected")
