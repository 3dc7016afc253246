"""The answers of sidecars, for programs that show them: the status page, and `top`.

The rules: readers who look at the same thing cause one request. An answer is kept for `fresh_seconds`, and for
`PAUSE_FACTOR` times as long as the sidecar needed for it: a display is not worth that a sidecar works for it all the
time. After that a reader waits for the next one, but not without limit, and else gets the one before. An answer that
does not have the form of the schema counts as none: another version, or another program, sent it.
Cost: at most `MAX_KEPT` answers in memory, the least recently used one is dropped first.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from nats_scheduler.control.errors import (
    ConnectionLostError,
    ForbiddenError,
    NoRespondersError,
    NotConnectedError,
    SchedulerError,
)
from nats_scheduler.jetstream.single_flight import SingleFlight, SingleFlights, UnfinishedError, loop_time
from nats_scheduler.message.foreign_json import Object
from nats_scheduler.observe.documents import instant_of
from nats_scheduler.service.calendar_endpoints import CalendarsAnswer
from nats_scheduler.service.client import read
from nats_scheduler.service.content_answers import ContentAnswer
from nats_scheduler.service.micro import ServiceError
from nats_scheduler.service.now import ActivityAnswer, RecentFiresAnswer, TimelineAnswer
from nats_scheduler.service.past_answers import ChangesAnswer, FailuresAnswer, FiresAnswer
from nats_scheduler.service.pattern_endpoints import ExplainAnswer, NextAnswer
from nats_scheduler.service.schemas import (
    FindingsAnswer,
    HealthAnswer,
    InstancesAnswer,
    MisnamedAnswer,
    RejectedAnswer,
    ScheduleAnswer,
    SchedulesAnswer,
    StreamsAnswer,
)

T = TypeVar("T")

PAUSE_FACTOR = 9
"""A sidecar works for at most a tenth of the time on one question of a program, however many readers that has."""

ANSWER_SECONDS = 10.0
"""Longest wait for an answer: a sidecar has 30 s, and a display is not looked at for that long."""

PATIENCE_SECONDS = 2.0
"""Longest wait of a reader; an answer that comes later is shown when the display updates itself."""

MAX_REQUESTS = 12
"""Requests in work at once; a sidecar takes 32, and others ask it too."""

MAX_KEPT = 256
"""Answers that are kept."""

PASSING_CODES = frozenset({429, 500, 503})
"""Errors after which the answer before is still of use."""


@dataclass(frozen=True)
class EndpointQuestion(Generic[T]):
    """An endpoint, the model of its answer, and for how long (s) an answer is not asked for again."""

    endpoint: str
    form: type[T]
    fresh_seconds: float = 1.0
    pause_factor: float = PAUSE_FACTOR
    """How many times as long as the sidecar needed for it an answer is kept."""


HEALTH = EndpointQuestion("health.get", HealthAnswer, pause_factor=1)
"""It costs a sidecar next to nothing, and its age decides whether anything is said to be well."""


def health_of(instance: str) -> EndpointQuestion[HealthAnswer]:
    """Return the question whether one instance is ready."""
    return replace(HEALTH, endpoint=f"{HEALTH.endpoint}.{instance}")


STREAMS = EndpointQuestion("streams.list", StreamsAnswer)
SCHEDULES = EndpointQuestion("schedules.list", SchedulesAnswer)
SCHEDULE = EndpointQuestion("schedules.get", ScheduleAnswer)
NEXT_FIRES = EndpointQuestion("schedules.next", NextAnswer)
EXPLANATION = EndpointQuestion("explain", ExplainAnswer, fresh_seconds=30.0)
REJECTED = EndpointQuestion("rejected.list", RejectedAnswer, fresh_seconds=5.0)
MISNAMED = EndpointQuestion("misnamed.list", MisnamedAnswer, fresh_seconds=5.0)
CONTENT = EndpointQuestion("content.get", ContentAnswer, fresh_seconds=5.0)
PAST_FIRES = EndpointQuestion("fires.list", FiresAnswer, fresh_seconds=2.0)
FAILURES = EndpointQuestion("failures.list", FailuresAnswer, fresh_seconds=2.0)
CHANGES = EndpointQuestion("changes.list", ChangesAnswer, fresh_seconds=2.0)
INSTANCES = EndpointQuestion("instances.list", InstancesAnswer)
RECENT_FIRES = EndpointQuestion("fires.recent", RecentFiresAnswer)
ACTIVITY = EndpointQuestion("activity.list", ActivityAnswer, fresh_seconds=2.0)
TIMELINE = EndpointQuestion("timeline.list", TimelineAnswer, fresh_seconds=2.0)
CALENDARS = EndpointQuestion("calendars.list", CalendarsAnswer, fresh_seconds=5.0)
FINDINGS = EndpointQuestion("findings.list", FindingsAnswer, fresh_seconds=30.0)


@dataclass(frozen=True, slots=True)
class AnswerState(Generic[T]):
    """The state of the answer to one question."""

    data: T | None
    """The last answer; None if there was none."""
    at: int | None
    """The instant (ns since the Unix epoch) at which it came, by the server's clock."""
    fault: str
    """Why the last request has no answer, as a sentence; "" if it has one, or is still in work."""
    code: int = 0
    """The code of the error that a sidecar answered, 0 for none."""
    is_waiting: bool = False
    """True if the answer did not come in time, and is still awaited."""
    is_connected: bool = True
    """True if there was a connection."""
    is_absent: bool = False
    """True if nothing subscribes to the endpoint: no sidecar runs, or none that has it."""


NOTHING: AnswerState[Any] = AnswerState(None, None, "")
"""The part of a question that was not asked."""


class Answers:
    """The answers to all questions, by endpoint and request."""

    def __init__(
        self,
        ask: Callable[[str, Mapping[str, object]], Awaitable[Object]],
        now: Callable[[], int],
        defect: Callable[[Exception], None],
    ) -> None:
        """Ask with `ask`, which sends a request to an endpoint and raises `SchedulerError`.

        `now` returns the time of this machine in ns since the Unix epoch; `defect` takes errors of the reader itself.
        """
        self._ask = ask
        self._now = now
        self._defect = defect
        self._offset = 0
        """The server's clock minus that of this machine (ns)."""
        self._places = asyncio.Semaphore(MAX_REQUESTS)
        self._parts = SingleFlights[AnswerState[Any]](MAX_KEPT)
        """The answers, by endpoint and request."""
        self.last_good_at: int | None = None
        """The instant (ns) at which the last answer of any kind came."""

    async def close(self) -> None:
        """End the requests that are in work."""
        await self._parts.close()

    def now(self) -> int:
        """Return the time by the server's clock, as of the last answer about health (ns since the Unix epoch)."""
        return self._now() + self._offset

    def last(self, question: EndpointQuestion[T], request: Mapping[str, object] | None = None) -> AnswerState[T]:
        """Return what is known of the answer to a question, without asking."""
        return self._part(question, request or {}).last or NOTHING

    def ask_again(self) -> None:
        """Ask for each answer anew: there is another connection, or something was changed."""
        self._parts.expire()

    async def get(
        self,
        question: EndpointQuestion[T],
        request: Mapping[str, object] | None = None,
        patience: float | None = PATIENCE_SECONDS,
    ) -> AnswerState[T]:
        """Return the answer to a question: a fresh one if it comes within `patience` (s), or else the last one."""
        asked = request or {}
        part = self._part(question, asked)
        try:
            return await part.get(lambda: self._answered(part.last or NOTHING, question, asked), patience=patience)
        except UnfinishedError:
            return part.last or replace(NOTHING, is_waiting=True)

    def _part(self, question: EndpointQuestion[T], request: Mapping[str, object]) -> SingleFlight[AnswerState[T]]:
        return self._parts.of((question.endpoint, json.dumps(request, sort_keys=True)))

    async def _answered(
        self, before: AnswerState[Any], question: EndpointQuestion[Any], request: Mapping[str, object]
    ) -> tuple[AnswerState[Any], float]:
        """Ask; return the answer, or why there is none beside the one `before`, and for how long (s) it is kept."""
        began = loop_time()
        factor = 1.0  # silence is no work
        try:
            async with self._places:
                began = loop_time()
                answer = await self._ask(question.endpoint, request)
            found = read(question.form, answer)
            factor = question.pause_factor
            if question.form is HealthAnswer:
                self._offset = instant_of(found["at"]) - self._now()
            self.last_good_at = self.now()
            part = AnswerState(found, self.last_good_at, "")
        except ServiceError as error:
            kept = before if error.code in PASSING_CODES else NOTHING
            part = AnswerState(kept.data, kept.at, str(error), error.code)
        except SchedulerError as error:
            kept = NOTHING if isinstance(error, ForbiddenError) else before
            part = AnswerState(
                kept.data,
                kept.at,
                str(error),
                is_connected=not isinstance(error, NotConnectedError | ConnectionLostError),
                is_absent=isinstance(error, NoRespondersError),
            )
        except Exception as error:
            self._defect(error)
            part = AnswerState(before.data, before.at, f"the answer cannot be read: {error!r}")
        return part, max(question.fresh_seconds, factor * (loop_time() - began))
