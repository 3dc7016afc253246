"""Ask a running sidecar: one question for any program (`ask`), and what a command would else read itself.

The rules for commands (`ServiceClient`):

- What comes back is what reading would give, so that a command prints the same. If anything is missing (no sidecar
  answers, it refuses, another version answers something else, an item was shortened, the user may not ask), asking
  fails and the command reads.
- An answer counts only if it comes from an instance of the registry that the command reads: another JetStream domain of
  the account may have sidecars, and streams of the same names.
- A sidecar that lists schedules has to have read what was stored when the command began, so that one that was just
  published is listed.
- After a request that was not answered in time nothing is asked any more: a command waits for that only once.

Cost: a request for each question, one for each 1,000 schedules, and one for each instance that answers.
Limit: each page visits all schedules, so more than `MAX_PAGES` of them cost more than reading the stream.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from nats_scheduler.control.errors import (
    DeadlineError,
    ForbiddenError,
    NoAnswerError,
    NoRespondersError,
)
from nats_scheduler.control.past import FireQuery
from nats_scheduler.control.transport import Reply
from nats_scheduler.engine.events import HeadersMisnamed, ScheduleReplacedUnfired
from nats_scheduler.engine.holding.inactive import Rejected
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.view import MAX_PAGE_LENGTH, ListedSchedule, Query
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.foreign_json import Object, read_object
from nats_scheduler.message.headers import header_value
from nats_scheduler.observe.documents import FailuresDocument, StreamModeDocument
from nats_scheduler.observe.message_contents import ContentDocument, is_shortened
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.content_answers import ContentAnswer
from nats_scheduler.service.encoded_items import SHORTENED
from nats_scheduler.service.endpoint import SUBJECTS
from nats_scheduler.service.micro import OUTCOME, ServiceError, error_of, is_inbox
from nats_scheduler.service.past_answers import FailuresAnswer, FiresAnswer, FiresDocument
from nats_scheduler.service.read_back import read_misnamed, read_rejected, read_schedule
from nats_scheduler.service.schemas import (
    InstancesAnswer,
    InstancesDocument,
    MisnamedAnswer,
    RejectedAnswer,
    SchedulesAnswer,
    StreamModesAnswer,
    read_answer,
)
from nats_scheduler.service.stored_advisories import AdvisoryQuery
from nats_scheduler.service.stream_owners import instances_document

FIRST_REPEAT_SECONDS = 0.5
"""A request is sent again after this time without an answer, then after twice that pause, and so on."""


async def ask(
    connection: Connection,
    endpoint: str,
    request: Mapping[str, object],
    seconds: float,
    user: str = "this user",
    control: str = "",
) -> Object:
    """Send a request to `nats_scheduler.v1.<endpoint>` and return the object that is answered; raises `SchedulerError`.

    No answer is expected after `seconds`; `user` is who is named if the permission to ask is missing. The request is
    sent again while no answer comes: the sidecar that got it may be stopped. One that changes something is sent once,
    to a subject that begins with `control`: without an answer its outcome is unknown.
    """
    subject, body = f"{control or SUBJECTS}.{endpoint}", json.dumps(request).encode()
    try:
        if control:
            reply = await connection.request(subject, body, deadline=seconds)
        else:
            reply = await _first_reply(connection, subject, body, seconds)
    except NoRespondersError:
        raise NoRespondersError("nothing subscribes to its requests") from None
    except DeadlineError:
        raise DeadlineError(f"no sidecar answered within {seconds:.0f} s") from None
    except ForbiddenError:
        raise ForbiddenError(f"{user} may not publish to {subject}", subject) from None
    if reply.block:
        code, sentence = error_of(reply.block)
        outcome = header_value(reply.block, OUTCOME)
        raise ServiceError(code, sentence, () if outcome is None else [(OUTCOME, outcome)])
    answer = read_object(reply.body)
    if answer is None:
        raise NoAnswerError("something answers in place of a sidecar, with what is no JSON object")
    return answer


async def _first_reply(connection: Connection, subject: str, body: bytes, seconds: float) -> Reply:
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + seconds, FIRST_REPEAT_SECONDS
    sent: list[asyncio.Task[Reply]] = []
    try:
        while True:
            left = deadline - loop.time()
            if not sent or left > pause:
                sent.append(loop.create_task(connection.request(subject, body, deadline=max(left, 0))))
            done, _ = await asyncio.wait(sent, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return done.pop().result()
            pause *= 2
    finally:
        for task in sent:
            task.cancel()
        await asyncio.gather(*sent, return_exceptions=True)


A = TypeVar("A")


def read(form: type[A], answer: Object) -> A:
    """Return an answer as its model says; raises `NoAnswerError`."""
    found = read_answer(form, answer)
    if found is None:
        raise NoAnswerError("the sidecar answers in a form that this version cannot read")
    return found


# -- for commands ------------------------------------------------------------------------------------------------

ANSWER_SECONDS = 5.0
"""Longest wait for one answer."""

MAX_PAGES = 10
"""Pages after which the stream is read instead."""

MAX_CATCH_UP_ATTEMPTS = 5
CATCH_UP_WAIT_SECONDS = 0.05
"""A sidecar that has not read everything yet is asked so often, with this pause."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listed:
    """The schedules of one stream, as they are known."""

    schedules: Sequence[ListedSchedule]
    """By next fire, those without one last."""
    rejected: Sequence[Rejected]
    misnamed: Sequence[HeadersMisnamed] = ()
    """The last messages on their subjects with headers that look like those of a schedule and are none."""
    names_failing: bool = False
    """True if the schedules say which of them fail; that is not written in their stream."""
    replaced: Sequence[ScheduleReplacedUnfired] = ()
    """What the server was to fire once and a later message replaced before that, as far as both are stored."""


class ServiceClient:
    """Asks the sidecars of one registry, on one connection."""

    def __init__(self, connection: Connection, is_ours: Callable[[str], Awaitable[bool]]) -> None:
        """Ask nothing yet; `is_ours` returns whether an instance is one of the registry, or raises `SchedulerError`."""
        self._connection = connection
        self._is_ours = is_ours
        self._ours: set[str] = set()
        # Sidecars answer on inboxes only.
        self._is_silent = not is_inbox(connection.inbox("").encode())

    # -- questions -----------------------------------------------------------------------------------------------

    async def schedules(self, stream: StreamState, query: Query) -> Listed:
        """Return the schedules of a stream that a query wants, and the messages that are no valid ones.

        The sidecar has to have read the stream as far as it was stored in this state of it.
        """
        kinds = None if query.kinds is None else sorted(kind.value for kind in query.kinds)
        texts = {"contains": query.contains, "target_contains": query.target_contains}
        wanted = {"stream": stream.name, "filter": query.subject, "target": query.target, **texts}
        through, of_schedules = stream.last_sequence, {"kind": kinds, "owner": query.owner}
        _, schedules = await self.pages("schedules.list", {**wanted, **of_schedules}, SchedulesAnswer, through)
        rejected: list[Any] = []
        misnamed: list[Any] = []
        if query.owner is None:  # of these nobody knows an owner
            _, rejected = await self.pages("rejected.list", wanted, RejectedAnswer, through)
            _, misnamed = await self.pages("misnamed.list", wanted, MisnamedAnswer, through)
        return Listed(
            [*map(read_schedule, schedules)],
            [*map(read_rejected, rejected)],
            [*map(read_misnamed, misnamed)],
            names_failing=True,
        )

    async def unfinished(self, stream: str) -> frozenset[int]:
        """Return the sequences of the schedules that wait until their fire before is finished, as far as it was read.

        On a work queue a sidecar cannot say that it has read all, because others may have taken what it did not read.
        """
        wanted = {"stream": stream, "state": [State.UNFINISHED.value]}
        _, items = await self.pages("schedules.list", wanted, SchedulesAnswer)
        return frozenset(item["sequence"] for item in items)

    async def fires(self, stream: str, query: FireQuery) -> FiresDocument:
        """Return the past fires of a schedule."""
        request = {"stream": stream, "subject": query.schedule, "limit": query.limit, "target": query.target}
        answer = await self.answer("fires.list", {**request, **_range(query)}, FiresAnswer)
        if not answer["complete"]:  # more may be read than fits into an answer
            raise NoAnswerError("not all fires")
        return answer

    async def content(
        self, stream: str, subject: str, sequence: int, *, fire_in: str | None = None
    ) -> ContentDocument | None:
        """Return what is stored of a schedule with a sequence, or of its fire in the stream `fire_in`."""
        request = {"stream": stream, "subject": subject, "fire": sequence if fire_in else None, "fire_stream": fire_in}
        answer = await self.answer("content.get", request, ContentAnswer)
        if answer["sequence"] != sequence or is_shortened(answer):
            raise NoAnswerError("another message, or not all of it")
        return answer

    async def failures(self, kept_in: str, query: AdvisoryQuery) -> FailuresDocument:
        """Return what went wrong, of what the stream `kept_in` keeps."""
        request = {"stream": query.stream, "subject": query.schedule, "limit": query.limit, "kind": query.kind}
        answer = await self.answer("failures.list", {**request, **_range(query)}, FailuresAnswer)
        if not answer["complete"] or answer["kept_in"] != kept_in:
            raise NoAnswerError("not all failures, or those of another stream")
        return answer

    async def instances(self) -> InstancesDocument:
        """Return the instances of the account by id, and the owner and the standbys of each stream."""
        page, items = await self.pages("instances.list", {}, InstancesAnswer)
        return instances_document(page["at"], items)

    async def modes(self) -> list[StreamModeDocument]:
        """Return the streams of the account that carry schedules, by name."""
        _, items = await self.pages("streams.modes", {}, StreamModesAnswer)
        return items

    # -- answers -------------------------------------------------------------------------------------------------

    async def answer(self, endpoint: str, request: Mapping[str, object], answer: type[A]) -> A:
        """Return an answer of this type; raises `SchedulerError`, also if the registry cannot be read."""
        if self._is_silent:
            raise NoAnswerError(f"{endpoint}: no sidecar answers")
        try:
            given = await ask(self._connection, endpoint, request, ANSWER_SECONDS)
        except DeadlineError:
            self._is_silent = True
            raise
        found = read(answer, given)
        if given.get("unanswered") or _is_shortened(given):
            raise NoAnswerError(f"{endpoint}: a part of the answer")
        await self._check_instance(given["instance"])
        return found

    async def pages(
        self, endpoint: str, request: Mapping[str, object], answer: type[Any], through: int = 0
    ) -> tuple[Any, list[Any]]:
        """Return the last page of a list, and the items of all pages; raises as `answer` does.

        The sidecar has to have read the stream of the request up to the sequence `through`.
        """
        items: list[Any] = []
        cursor, key = None, endpoint.partition(".")[0]
        for _ in range(MAX_PAGES):
            wanted = {**request, "limit": MAX_PAGE_LENGTH, "cursor": cursor}
            page = await self._page(endpoint, wanted, answer, through)
            items += page[key]
            cursor = page["cursor"]
            if cursor is None:
                return page, items
        raise NoAnswerError(f"{endpoint}: more than {MAX_PAGES} pages")

    async def _page(self, endpoint: str, request: Mapping[str, object], answer: type[Any], through: int) -> Any:
        for _ in range(MAX_CATCH_UP_ATTEMPTS):
            page = await self.answer(endpoint, request, answer)
            if page.get("read_through", through) >= through:
                return page
            await asyncio.sleep(CATCH_UP_WAIT_SECONDS)
        raise NoAnswerError(f"{endpoint}: sequence {through} is not read")

    async def _check_instance(self, instance: str) -> None:
        if instance in self._ours:
            return
        if not await self._is_ours(instance):
            raise NoAnswerError(f"{instance} is an instance of another registry")
        self._ours.add(instance)


def _is_shortened(answer: Object) -> bool:
    """Return whether an item of an answer was too long for it."""
    lists = [value for value in answer.values() if isinstance(value, list)]
    return any(isinstance(item, dict) and SHORTENED in item for items in lists for item in items)


def _range(query: FireQuery | AdvisoryQuery) -> dict[str, str | int | None]:
    """Return the times and sequences between which a query searches, as a request names them."""
    times = {"since": query.since, "until": query.until}
    named = {name: None if instant is None else format_rfc3339(instant) for name, instant in times.items()}
    return {**named, "before": query.before}
