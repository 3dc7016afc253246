"""The endpoints for documents of schedules: export them, compare them with their streams, and apply them.

The rules:

- Documents are read and planned by `service.file_requests`; nothing is done because of documents with a problem.
- What is read, planned and encoded is done in turns (`service.turns`); each change begins like that of a request for
  one schedule, and one that fails does not stop the others.
- An `apply` begins no change after `BEGIN_LIMIT_SECONDS`, or if its answer would get too long for what it does. It
  answers how many are left, and the same request again goes on with these.
- What is exported fits into a request: a page is never longer, and a schedule that is too long alone is left out.

Cost: one request to the server for each schedule that is read, and that of a change for each one that differs.
Limit: a request has at most 64 KB. To prune, all schedules of an owner have to be in one request.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from nats_scheduler.control.changes import Author, Change
from nats_scheduler.control.declared import NOT_TEXT, LeftOut, exportable, is_subject_of_files
from nats_scheduler.control.each import Each
from nats_scheduler.control.errors import ConflictError, NoAnswerError, ScheduleError
from nats_scheduler.control.plan import Step, carrying_out
from nats_scheduler.control.port import Served
from nats_scheduler.files.planning import StreamPlan
from nats_scheduler.files.writing import schedule_document, stream_document
from nats_scheduler.jetstream.foreign_json import as_answered
from nats_scheduler.jetstream.task_group import TaskGroup
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.observe.documents import change_document, plan_document, step_document
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.control import CHANGE_LIMIT_SECONDS, refusal_of, unfinished
from nats_scheduler.service.endpoint import (
    FRAME_BYTES,
    Asked,
    Document,
    encode_item,
    encode_items,
    name_cursor,
    read_name_cursor,
    with_items,
)
from nats_scheduler.service.file_requests import DOCUMENTS, MAX_VALUES, has_more_values, plans_of
from nats_scheduler.service.file_schemas import (
    ApplyRequest,
    DiffRequest,
    ExportRequest,
    FailureDocument,
)
from nats_scheduler.service.micro import MAX_REQUEST_BYTES
from nats_scheduler.service.schemas import Request
from nats_scheduler.service.stored_schedules import StoredSchedules, subjects_page

BEGIN_LIMIT_SECONDS = 8.0
"""Longest time until the last change of an `apply` is begun; those that are begun have `CHANGE_LIMIT_SECONDS`."""

OUTCOME_BYTES = 8_192
"""Room for what became of one schedule."""

EXPORT_BYTES = MAX_REQUEST_BYTES - 8_192
"""The longest page of an export: with the other keys of a request around it, it can be applied."""


# -- export --------------------------------------------------------------------------------------------------------


async def export(asked: Asked, request: ExportRequest) -> Document:
    """Return a page of the schedules of a stream, by subject, as a document."""
    name, after = request.stream, read_name_cursor(request.cursor)
    async with _limited(request):
        known = await asked.known(name)
        served = await asked.deployment.schedules.served(name)
        work = subjects_page(known, asked.deployment.now(), request.subjects, request.owner, request.limit, after)
        page, exported = await asked.turns.run(work), _Page(served, request.owner, asked.room - FRAME_BYTES)
        async for part in StoredSchedules(asked).parts(name, page.messages):
            await asked.turns.run(exported.take(part))
            if exported.is_full:
                break
    is_last = page.is_last and not exported.is_full
    last = exported.last if exported.is_full else page.messages[-1] if page.messages else after
    head = {
        "at": format_rfc3339(asked.deployment.now()),
        "instance": asked.deployment.instance,
        "stream": name,
        "read_through": known.read_through,
        "left_out": [{"subject": as_answered(one.subject), "reason": one.reason} for one in exported.left_out],
        "cursor": None if is_last else name_cursor(last),
    }
    return with_items(head, DOCUMENTS, [exported.document(name)])


class _Page:
    """What of a page of schedules fits into an answer, and into a request that applies it."""

    def __init__(self, served: Served, owner: str | None, room: int) -> None:
        self._served = served
        self._owner = owner
        self._spelling = served.dialects[0]
        self._room = min(room, EXPORT_BYTES)
        self._left = self._room
        self._items: list[bytes] = []
        self.left_out: list[LeftOut] = []
        self.last = ""
        """The subject of the last schedule that is on the page, or left out."""
        self.is_full = False
        """Whether the next one had no room."""

    def take(self, part: Mapping[str, StoredMessage | None]) -> Generator[None, None, None]:
        """Take the last messages on some subjects, by subject, until one has no room."""
        for subject, message in part.items():
            one = self._described(subject, message)
            size = 0 if one is None else len(json.dumps(one)) if isinstance(one, LeftOut) else len(one) + 2
            if size > self._left and (self._items or self.left_out):
                self.is_full = True
                return
            self._left -= size
            self.last = subject
            if isinstance(one, LeftOut):
                self.left_out.append(one)
            elif one is not None:
                self._items.append(one)
            yield

    def document(self, stream: str) -> bytes:
        """Return the document, encoded."""
        whole = stream_document(stream, (), owner=self._owner, spelling=self._spelling)
        del whole["schedules"]
        return with_items(whole, "schedules", self._items)

    def _described(self, subject: str, message: StoredMessage | None) -> bytes | LeftOut | None:
        if not is_subject_of_files(subject):
            return LeftOut(subject, NOT_TEXT)
        one = None if message is None else exportable(message, self._served, self._owner)
        if one is None or isinstance(one, LeftOut):
            return one
        document = schedule_document(one, self._spelling)
        encoded = json.dumps(document).encode()
        if len(encoded) > self._room or has_more_values(document, MAX_VALUES):
            reason = (
                f"it is too long for a request ({len(encoded):,} bytes): the commands and the Python client take it"
            )
            return LeftOut(subject, reason)
        return encoded


# -- diff ----------------------------------------------------------------------------------------------------------


async def diff(asked: Asked, request: DiffRequest) -> Document:
    """Return what `apply` would do, step by step."""
    after = read_name_cursor(request.cursor)
    async with _limited(request):
        plans = await plans_of(asked, request)
        rows = [(one.plan.stream, step) for one in plans for step in one.plan.steps]
        rows.sort(key=_place_of)
        head = _head(asked, plans) | {"differences": bool(rows), "cursor": None}
        left = [row for row in rows if _place_of(row) > after]
        room = asked.room - FRAME_BYTES - len(json.dumps(head))
        items = await asked.turns.run(encode_items(left, lambda row: step_document(*row, shown=_shown), room))
    if len(items) < len(left):
        head["cursor"] = name_cursor(_place_of(left[len(items) - 1]))
    return with_items(head, "steps", items)


def _place_of(row: tuple[str, Step]) -> str:
    return f"{row[0]} {row[1].subject}"


def _shown(value: bytes) -> str:
    return value.decode("utf-8", "replace")


# -- apply ---------------------------------------------------------------------------------------------------------


async def apply(asked: Asked, request: ApplyRequest) -> Document:
    """Make the schedules of streams those of documents, as far as there is time."""
    began = asyncio.get_running_loop().time()
    async with _limited(request):
        await asked.turns.begin()
        plans = await plans_of(asked, request)
    head = _head(asked, plans)
    applying = _Applying(asked, request, began, asked.room - FRAME_BYTES - len(json.dumps(head)))
    for one in plans:
        await applying.carry_out(one)
    left = sum(len(one.plan.steps) for one in plans) - len(applying.changes) - len(applying.errors)
    errors = with_items({**head, "left": left}, "errors", applying.errors)
    return b'%b, "changes": [%b]}' % (errors[:-1], b", ".join(applying.changes))


class _Applying:
    """The work of one request, and what became of each schedule."""

    def __init__(self, asked: Asked, request: ApplyRequest, began: float, room: int) -> None:
        self._asked = asked
        self._request = request
        self._author = Author(request.author, request.reason)
        self._loop = asyncio.get_running_loop()
        self._began = began
        self._left = room
        self._in_work = 0
        self._has_begun = False
        """Whether one was: that is done even if there may be no room, so that repeating the request goes on."""
        self.changes: list[bytes] = []
        """Encoded, as `errors` are."""
        self.errors: list[bytes] = []

    async def carry_out(self, one: StreamPlan) -> None:
        """Carry out the steps of one plan, some at a time."""
        change = carrying_out(self._asked.deployment.schedules, one.served, one.plan.steps, self._author)
        found: dict[str, bytes] = {}
        wrong: dict[str, bytes] = {}

        async def operation(subject: str) -> Change:
            self._in_work += 1
            self._has_begun = True
            try:
                done = await self._change(lambda: change(subject))
            except ScheduleError as error:
                wrong[subject] = self._encoded(_failure(error, one.plan.stream, subject, self._request))
                raise
            else:
                found[subject] = self._encoded(change_document(done))
                return done
            finally:
                self._in_work -= 1

        subjects = [step.subject for step in one.plan.steps]
        each = Each(subjects, operation, goes_on=lambda: self._goes_on() and not each.is_unanswered)
        async with TaskGroup() as tasks:
            for _ in range(each.workers):
                tasks.create_task(each.work())
        self.changes += (found[subject] for subject in subjects if subject in found)
        self.errors += (wrong[subject] for subject in subjects if subject in wrong)

    async def _change(self, change: Callable[[], Any]) -> Change:
        """Make one change within the limit of the request."""
        has_begun = False
        try:
            async with asyncio.timeout_at(self._began + CHANGE_LIMIT_SECONDS):
                await self._asked.turns.begin()
                has_begun = True
                done: Change = await change()
                return done
        except TimeoutError:
            raise unfinished(has_begun=has_begun) from None

    def _goes_on(self) -> bool:
        """Return whether another change may be begun: there is time, and room for what becomes of it."""
        if self._asked.deployment.is_draining or self._loop.time() > self._began + BEGIN_LIMIT_SECONDS:
            return False
        return not self._has_begun or self._left > (self._in_work + 1) * OUTCOME_BYTES

    def _encoded(self, document: Any) -> bytes:
        item = encode_item(document, OUTCOME_BYTES)
        self._left -= len(item) + 2
        return item


def _failure(error: ScheduleError, stream: str, subject: str, request: Request) -> FailureDocument:
    refused = refusal_of(error, request)
    sequence = error.sequence if isinstance(error, ConflictError) else None
    return {
        "stream": stream,
        "subject": subject,
        "code": refused.code,
        "err_code": error.code,
        "message": refused.sentence,
        "sequence": sequence,
    }


# -- both ----------------------------------------------------------------------------------------------------------


def _head(asked: Asked, plans: Sequence[StreamPlan]) -> dict[str, Any]:
    return {
        "at": format_rfc3339(asked.deployment.now()),
        "instance": asked.deployment.instance,
        "streams": [plan_document(one) for one in plans],
    }


@asynccontextmanager
async def _limited(request: Request) -> AsyncIterator[None]:
    """Answer the errors of operations, and one if there is no time left to begin what was asked for."""
    try:
        async with asyncio.timeout(BEGIN_LIMIT_SECONDS):
            yield
    except ScheduleError as error:
        raise refusal_of(error, request) from None
    except TimeoutError:
        sentence = f"not read within {BEGIN_LIMIT_SECONDS:.0f} s, so nothing is done: ask for less at once"
        raise refusal_of(NoAnswerError(sentence), request) from None
