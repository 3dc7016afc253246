"""Ask a running sidecar for the schedules of a stream, for a command that would else read the whole stream.

The rules: what comes back is what reading the stream would give, so that a command prints the same. If anything is
missing (no sidecar answers, it refuses, another version answers something else, the stream is too large for pages), the
answer is None and the command reads the stream itself. The sidecar has to have read what was stored when the command
began, so that a schedule that was just published is listed.

Cost: a request for each 1,000 schedules. Limit: each page visits all schedules, so more than `MAX_PAGES` of them cost
more than reading the stream.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from nats_scheduler.engine.events import Ending, HeadersMisnamed
from nats_scheduler.engine.flight import Failing
from nats_scheduler.engine.outlook import State
from nats_scheduler.engine.rejections import Rejected
from nats_scheduler.engine.view import MAX_PAGE_LENGTH, FiredBy, ListedSchedule, Query
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.foreign_json import Object, integer, read_object
from nats_scheduler.message.definition import Terms
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.misnamed import Misnamed
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.schedule.patterns import InvalidPattern, InvalidTimeZone, Pattern, parse_pattern
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from nats_scheduler.service.service import SUBJECTS

ANSWER_SECONDS = 5.0
"""Longest wait for one page."""

MAX_PAGES = 10
"""Pages after which the stream is read instead."""

MAX_CATCH_UP_ATTEMPTS = 5
CATCH_UP_WAIT_SECONDS = 0.05
"""A sidecar that has not read everything yet is asked so often, with this pause."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answered:
    """What a sidecar knows of one stream."""

    schedules: Sequence[ListedSchedule]
    rejected: Sequence[Rejected]
    misnamed: Sequence[HeadersMisnamed]


class UnexpectedAnswerError(Exception):
    """The answer is none, or not what this version can read."""


async def ask_for_schedules(connection: Connection, stream: str, query: Query, through: int = 0) -> Answered | None:
    """Return what a running sidecar knows of the schedules that a query wants; None if the stream has to be read.

    The sidecar has to have read the stream up to the sequence `through`.
    """
    kinds = None if query.kinds is None else sorted(kind.value for kind in query.kinds)
    wanted = {"stream": stream, "filter": query.subject, "target": query.target}
    try:
        return Answered(
            await _all(connection, "schedules", through, {**wanted, "kind": kinds}, read_schedule),
            await _all(connection, "rejected", through, wanted, read_rejected),
            await _all(connection, "misnamed", through, wanted, read_misnamed),
        )
    except (JetStreamError, UnexpectedAnswerError):
        return None


async def _all(
    connection: Connection, key: str, through: int, wanted: Mapping[str, object], read: Callable[[Any], T]
) -> list[T]:
    """Return the items of all pages; raises `UnexpectedAnswerError` if they are too many, or cannot be read."""
    items: list[T] = []
    cursor = None
    for _ in range(MAX_PAGES):
        request = {**wanted, "limit": MAX_PAGE_LENGTH, "cursor": cursor}
        page = await _page(connection, f"{key}.list", request, through)
        try:
            items += [read(one) for one in page[key]]
            cursor = page["cursor"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnexpectedAnswerError(f"{key}: {error!r}") from None
        if cursor is None:
            return items
    raise UnexpectedAnswerError(f"{key}: more than {MAX_PAGES} pages")


async def _page(connection: Connection, endpoint: str, request: Mapping[str, object], through: int) -> Object:
    """Return one page of a sidecar that has read the stream up to a sequence."""
    body = json.dumps(request).encode()
    for _ in range(MAX_CATCH_UP_ATTEMPTS):
        reply = await connection.request(f"{SUBJECTS}.{endpoint}", body, deadline=ANSWER_SECONDS)
        page = None if reply.block else read_object(reply.body)
        if page is None or page.get("unanswered"):
            break
        if integer(page.get("read_through"), -1) >= through:
            return page
        await asyncio.sleep(CATCH_UP_WAIT_SECONDS)
    raise UnexpectedAnswerError(endpoint)


def read_schedule(document: Any) -> ListedSchedule:
    """Read a document of a schedule; raises `ValueError`, `KeyError` or `TypeError` if it is none."""
    pattern, (terms, ends) = _pattern(document), (_terms(document), document["ends"])
    failing, fire = document["failing"], document["next_fire"]
    return ListedSchedule(
        document["subject"],
        document["sequence"],
        _instant(document["stored"]),
        pattern,
        terms,
        None if fire is None else int(fire["nanoseconds"]),
        State(document["state"]),
        FiredBy(document["fired_by"]),
        None if ends is None else _instant(ends["utc"]),
        None if ends is None else Ending[str(ends["reason"]).upper()],
        None if failing is None else Failing(failing["err_code"], failing["description"], _instant(failing["since"])),
    )


def read_rejected(document: Any) -> Rejected:
    """Read a document of a rejected schedule; raises as `read_schedule` does."""
    error = document["error"]
    codes = error["err_code"], error["description"], error["header"], error["value"], error["reason"], error["code"]
    return Rejected(
        document["subject"],
        document["sequence"],
        Rejection(*codes),
        _instant(document["stored"]),
        next(dialect for dialect in DIALECTS if dialect.name == document["dialect"]),
        document["pattern"] or "",
        document["target"] or "",
    )


def read_misnamed(document: Any) -> HeadersMisnamed:
    """Read a document of a message with misnamed headers; raises as `read_schedule` does."""
    headers = tuple(Misnamed(one["header"], one["reason"]) for one in document["headers"])
    return HeadersMisnamed(document["subject"], document["sequence"], _instant(document["stored"]), headers)


def _pattern(document: Any) -> Pattern:
    pattern = parse_pattern(document["pattern"], document["time_zone"])
    if pattern is None or isinstance(pattern, InvalidPattern | InvalidTimeZone):
        raise ValueError(f"pattern of {document['pattern']!r}")
    return pattern


def _terms(document: Any) -> Terms:
    dialect = {one.name: one for one in DIALECTS}[document["dialect"]]
    is_rolled_up = document["rollup"] is not None
    return Terms(dialect, document["target"], document["source"], document["ttl"] or "", is_rolled_up)


def _instant(text: str) -> int:
    instant = parse_rfc3339(text)
    if not isinstance(instant, int):
        raise ValueError(f"time of {text!r}")
    return instant
