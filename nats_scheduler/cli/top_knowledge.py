"""What `top` knows: its questions with their last answers, the advisories that arrived, and the view made of them.

Rule: if no sidecar answers, the view is empty, and says so. A single answer that is missing is replaced by the last one
for some seconds, and said; while there is no connection all of them stay, with their age.
Times are those of the server's clock, which an answer contains; between two answers the clock of this machine counts
on.
Cost: a view is made of the answers each time it is drawn, in less than a millisecond for a hundred streams.
Limit: of more than `PAGE_LENGTH` streams, the first ones by name are known.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nats_scheduler.cli.top_view import LATENESS_MINUTES, SORTS, InstanceRow, StreamRow, View, sorted_streams
from nats_scheduler.message.advisory_messages import SCHEDULE_CHANGED
from nats_scheduler.message.foreign_json import read_object
from nats_scheduler.observe.activity import LastMinutes
from nats_scheduler.observe.documents import FailureDocument, RecentFireDocument, ScheduleDocument, due_of, instant_of
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.schedule.instants import MINUTE
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.micro import NAME
from nats_scheduler.service.now import ActivityAnswer, RecentFiresAnswer, TimelineAnswer, read_activity
from nats_scheduler.service.past import FailuresAnswer
from nats_scheduler.service.schemas import (
    HealthAnswer,
    InstanceDocument,
    InstancesAnswer,
    StreamDocument,
    StreamsAnswer,
)

PAGE_LENGTH = 1_000
"""Streams and instances that are asked for."""
ROWS_ASKED = 50
MAX_FAILURES = 100
MAX_ADVISORY_BYTES = 16 * 1024
"""Those of sidecars are shorter; any client may publish others."""
FAILURES_PAUSE_SECONDS = 60.0
"""Advisories arrive by themselves; the stream that keeps them is asked for what was missed."""
INSTANCES_PAUSE_SECONDS = 2.0
STREAM_PAUSE_SECONDS = 5.0
"""How often a single stream is asked for; all of them together are asked for in each interval."""
LONG_PATIENCE_SECONDS = 15.0
"""For lists for which a sidecar visits all schedules: a million take some seconds."""
GONE_SHOWN_NS = MINUTE
"""How long a sidecar is shown that is not listed any more: others remove the heartbeat of one that stands still."""
MAX_STREAMS_ASKED = MAX_INSTANCES_ASKED = 20
"""How many of them are asked for one by one: those that are shown first."""

STREAMS, ACTIVITY, FIRES, TIMELINE = "streams.list", "activity.list", "fires.recent", "timeline.list"
FAILURES, INSTANCES, HEALTH = "failures.list", "instances.list", "health.get"
ANSWER_SECONDS = 5.0
"""Longest wait for one answer, unless the question has another."""
ANSWER_KEPT_SECONDS = 30.0
"""How long the last answer is used while there is no new one."""
ADVICE = "start `nats-scheduler run`, or see `nats-scheduler doctor`"


@dataclass(eq=False)
class Question:
    """One question, and what is known of its answer."""

    endpoint: str
    """Behind the prefix of all subjects, with the id of an instance if it is asked of one."""
    form: Any
    """The model of its answer."""
    request: Mapping[str, object] = field(default_factory=dict)
    least_pause: float = 0.0
    """Seconds between an answer and the next request, at least."""
    patience: float = ANSWER_SECONDS
    """Seconds after which no answer is expected any more."""
    answer: Any = None
    """The last answer; None if there is none, or it is older than `ANSWER_KEPT_SECONDS`."""
    answered_at: float = 0.0
    """When it came, by the loop's clock."""
    error: str = ""
    """Why the last request had no answer."""
    has_responders: bool | None = None
    """Whether anything subscribes there; None if that is not known."""
    due: float = 0.0
    """When it is asked again, by the loop's clock."""

    @property
    def is_answered(self) -> bool:
        """Whether the last request had an answer."""
        return self.has_responders is True and not self.error

    @property
    def is_unanswered(self) -> bool:
        """Whether the last request had none."""
        return self.has_responders is False or bool(self.error)


class Knowledge:
    """What is known of the sidecars of one account."""

    def __init__(self, stream: str | None, clock: Clock) -> None:
        """Know nothing yet; None is about all streams."""
        self.order = next(iter(SORTS))
        """In which order the streams are shown."""
        self.server = ""
        self.lost = ""
        """Why there is no connection, "" if there is one."""
        self.denied = ""
        self._stream = stream
        self._clock = clock
        self._offset: int | None = None
        """What to add to the monotonic clock to get the server's (ns)."""
        self._answered_at: int | None = None
        self._failures: dict[str, FailureDocument] = {}
        """By their content: several sidecars may publish the same."""
        about = {} if stream is None else {"stream": stream}
        asked = [
            Question(HEALTH, HealthAnswer),
            Question(STREAMS, StreamsAnswer, {"limit": PAGE_LENGTH}, patience=LONG_PATIENCE_SECONDS),
            Question(ACTIVITY, ActivityAnswer, about),
            Question(FIRES, RecentFiresAnswer, {**about, "limit": ROWS_ASKED}),
            Question(TIMELINE, TimelineAnswer, about, patience=LONG_PATIENCE_SECONDS),
            Question(INSTANCES, InstancesAnswer, {"limit": PAGE_LENGTH}, INSTANCES_PAUSE_SECONDS),
            Question(FAILURES, FailuresAnswer, {**about, "limit": ROWS_ASKED}, FAILURES_PAUSE_SECONDS),
        ]
        self._questions = {question.endpoint: question for question in asked}
        self._of_streams: dict[str, Question] = {}
        self._of_instances: dict[str, Question] = {}
        self._listed: dict[str, InstanceDocument] = {}
        """The sidecars of the last list, by id."""
        self._gone: dict[str, tuple[InstanceDocument, int]] = {}
        """Those that were listed before, and when (ns, the server's clock) they were missed, by id."""

    # -- questions -----------------------------------------------------------------------------------------------

    def questions(self) -> list[Question]:
        """Return what is to be asked, as far as that does not follow from answers."""
        return list(self._questions.values())

    def further_questions(self) -> list[Question]:
        """Return what is to be asked about single streams and instances."""
        streams = [row.stream["stream"] for row in self._streams()[:MAX_STREAMS_ASKED]]
        if self._stream is not None or len(streams) < 2:
            streams = []  # of a single one, the answer about all of them says it
        listed = self._rows(INSTANCES, "instances")
        instances = [one["id"] for one in listed if one["state"] == "alive" and NAME.fullmatch(one["id"])]
        minutes = LATENESS_MINUTES
        self._of_streams = {
            name: self._of_streams.get(name)
            or Question(ACTIVITY, ActivityAnswer, {"stream": name, "minutes": minutes}, STREAM_PAUSE_SECONDS)
            for name in streams
        }
        self._of_instances = {
            name: self._of_instances.get(name)
            or Question(f"{HEALTH}.{name}", HealthAnswer, least_pause=INSTANCES_PAUSE_SECONDS)
            for name in instances[:MAX_INSTANCES_ASKED]
        }
        return [*self._of_streams.values(), *self._of_instances.values()]

    def connected(self, server: str) -> None:
        """Begin again with all questions, on a new connection."""
        self.server, self.lost, self.denied = server, "", ""
        for question in (*self._questions.values(), *self._of_streams.values(), *self._of_instances.values()):
            question.due = 0.0

    def answered(self, question: Question) -> None:
        """Take an answer that is stored in its question, or learn that there is none."""
        answer = question.answer if question.is_answered else None
        if answer is None:
            return
        at, now = instant_of(answer["at"]), self._clock.monotonic()
        self._offset, self._answered_at = at - now, now
        if question.endpoint == FAILURES:
            for failure in answer["failures"]:
                self._add_failure(failure)
        if question.endpoint == INSTANCES:
            self._take_list({one["id"]: one for one in answer["instances"]}, at)

    def advised(self, body: bytes) -> None:
        """Take an advisory that was published now; what is too long for one is none."""
        advisory = read_object(body) if len(body) <= MAX_ADVISORY_BYTES else None
        if advisory is None or self._stream not in (None, advisory.get("stream")):
            return
        kind, stream, schedule, subject = (
            text if isinstance(text := advisory.get(key), str) else ""
            for key in ("type", "stream", "schedule", "subject")
        )
        kind = kind.rpartition(".")[2]
        if kind != SCHEDULE_CHANGED:
            failure: FailureDocument = {
                "kind": kind,
                "stored": format_rfc3339(self.now()),
                "sequence": 0,  # not known
                "stream": stream,
                "schedule": schedule or subject or None,
                "advisory": advisory,
            }
            self._add_failure(failure)

    def _take_list(self, listed: dict[str, InstanceDocument], at: int) -> None:
        """Remember for a while which sidecars are not listed any more."""
        missed = {name: (one, at) for name, one in self._listed.items() if name not in listed}
        self._gone = {
            name: (one, since)
            for name, (one, since) in (self._gone | missed).items()
            if name not in listed and at - since < GONE_SHOWN_NS
        }
        self._listed = listed

    def _add_failure(self, failure: FailureDocument) -> None:
        """Keep a failure; one that is known by its advisory gets the time at which it was stored."""
        try:
            self._failures[json.dumps(failure["advisory"], sort_keys=True)] = failure
        except RecursionError:
            return  # it nests deeper than can be written
        if len(self._failures) > 2 * MAX_FAILURES:
            kept = sorted(self._failures.items(), key=lambda item: instant_of(item[1]["stored"]))[-MAX_FAILURES:]
            self._failures = dict(kept)

    # -- the view ------------------------------------------------------------------------------------------------

    def now(self) -> int:
        """Return the time by the server's clock (ns), or by that of this machine before any answer."""
        return self._clock.now() if self._offset is None else self._clock.monotonic() + self._offset

    def view(self) -> View:
        """Return what is known at this moment."""
        is_answered = any(one.is_answered for one in self._questions.values())
        if not is_answered and not self.lost:
            return self._without_answers()
        age = 0 if self._answered_at is None else self._clock.monotonic() - self._answered_at
        return View(
            at=self.now(),
            server=self.server,
            lost=self.lost,
            age=age,
            answered=is_answered,
            is_health_known=next(self._healths(), None) is not None,
            reasons=list(dict.fromkeys(self._reasons())),
            notices=list(self._notices()) if is_answered else [],
            activity=self._activity(self._questions[ACTIVITY]),
            streams=self._streams(),
            due=self._due() if is_answered else None,
            fires=self._fires(),
            failures=self._newest_failures() if is_answered or self._failures else None,
            instances=self._instances(),
        )

    def _without_answers(self) -> View:
        """Return what is known if no sidecar answers, or none has answered yet."""
        errors = [one.error for one in self._questions.values() if one.error]
        advice = errors[0] if errors else ADVICE
        is_asked = self._questions[HEALTH].is_unanswered
        failures = self._newest_failures() if self._failures else None
        return View(self.now(), self.server, advice=advice if is_asked else "", failures=failures)

    def _rows(self, endpoint: str, key: str) -> Sequence[Any]:
        """Return the rows of the last answer to a question; none if there is no answer."""
        answer = self._questions[endpoint].answer
        return () if answer is None else answer[key]

    def _activity(self, question: Question | None) -> LastMinutes | None:
        return None if question is None or question.answer is None else read_activity(question.answer)

    def _served(self) -> list[StreamDocument]:
        """Return the streams that are asked about."""
        return [one for one in self._rows(STREAMS, "streams") if self._stream in (None, one["stream"])]

    def _streams(self) -> list[StreamRow]:
        streams = self._served()
        all_of_them = self._questions[ACTIVITY] if len(streams) == 1 else None
        rows = [StreamRow(one, self._activity(all_of_them or self._of_streams.get(one["stream"]))) for one in streams]
        return sorted_streams(rows, self.order)

    def _due(self) -> list[ScheduleDocument]:
        """Return what is due next; if there is no list of it, the next schedule of each stream."""
        answer = self._questions[TIMELINE].answer
        soonest = [one["next"] for one in self._served()] if answer is None else answer["soonest"]
        found = [(due, one) for one in soonest if one is not None and (due := due_of(one)) is not None]
        return [one for _, one in sorted(found, key=lambda row: row[0])]

    def _fires(self) -> Sequence[RecentFireDocument] | None:
        answer = self._questions[FIRES].answer
        return None if answer is None else answer["fires"]

    def _instances(self) -> list[InstanceRow] | None:
        answer = self._questions[INSTANCES].answer
        if answer is None:
            return None
        gone: list[InstanceDocument] = [
            {**one, "state": "gone", "since": None, "holds": [], "unable": []} for one, _ in self._gone.values()
        ]
        return [InstanceRow(one, self._health_of(one["id"])) for one in (*answer["instances"], *gone)]

    def _health_of(self, instance: str) -> HealthAnswer | None:
        question = self._of_instances.get(instance)
        return None if question is None else question.answer

    def _newest_failures(self) -> list[FailureDocument]:
        return sorted(self._failures.values(), key=lambda one: -instant_of(one["stored"]))[:MAX_FAILURES]

    def _healths(self) -> Iterator[HealthAnswer]:
        """Return the health of the sidecar that answered, and of each one that is asked by its name."""
        for question in (self._questions[HEALTH], *self._of_instances.values()):
            if question.answer is not None:
                yield question.answer

    def _reasons(self) -> Iterator[str]:
        """Return why schedules do not all fire."""
        for health in self._healths():
            if not health["ready"]:
                yield from health["reasons"] or ["a sidecar is not ready"]
        if self._stream is not None and self._questions[STREAMS].answer is not None and not self._served():
            yield f"stream {self._stream} is not served"

    def _notices(self) -> Iterator[str]:
        """Return what is missing from the view, and why: who is missing first, since a narrow screen cuts the rest."""
        yield from dict.fromkeys(note for health in self._healths() for note in health.get("notes", ()))
        silent = {
            name
            for question in (*self._questions.values(), *self._of_streams.values())
            for name in (question.answer or {}).get("unanswered", ())
        }
        silent |= {name for name, question in self._of_instances.items() if question.is_unanswered}
        if silent:
            yield f"no answer from {', '.join(sorted(silent))}: what only they know is missing"
        for endpoint, question in self._questions.items():
            if question.error:
                yield f"{endpoint}: {question.error}"
        if self.denied:
            yield self.denied
