"""The knowledge of `top`: the answers of sidecars, the advisories that arrived, and the view made of them.

Rule: if no sidecar answers, the view is empty, and says so. A single answer that is missing is replaced by the last one
for some seconds, and said; while there is no connection all of them stay, with their age.
Times are those of the server's clock, which an answer contains; between two answers the clock of this machine counts
on.
Cost: a view is made of the answers each time it is drawn, in less than a millisecond for a hundred streams.
Limit: of more than `PAGE_LENGTH` streams, the first ones by name are known.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from nats_scheduler.cli.top_view import LATENESS_MINUTES, SORTS, InstanceRow, StreamRow, View, sorted_streams
from nats_scheduler.message.advisory_messages import SCHEDULE_CHANGED
from nats_scheduler.message.foreign_json import read_object
from nats_scheduler.observe.activity import LastMinutes
from nats_scheduler.observe.documents import FailureDocument, ScheduleDocument, due_of, instant_of
from nats_scheduler.schedule.instants import MINUTE, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service import sidecar_answers as asked
from nats_scheduler.service.micro import NAME
from nats_scheduler.service.now import ActivityAnswer, read_activity
from nats_scheduler.service.schemas import InstanceDocument, StreamDocument
from nats_scheduler.service.sidecar_answers import Answers, AnswerState, EndpointQuestion, health_of
from nats_scheduler.service.verdict import MAX_HEALTH_AGE_NS, Known, StatusVerdict, verdict

T = TypeVar("T")

PAGE_LENGTH = 1_000
"""Streams and instances that are asked for."""
ROWS_ASKED = 50
MAX_FAILURES = 100
MAX_ADVISORY_BYTES = 16 * 1024
"""Those of sidecars are shorter; any client may publish others."""
GONE_SHOWN_NS = MINUTE
"""The time for which a sidecar that is not listed any more is shown: others remove a heartbeat that is stale."""
MAX_STREAMS_ASKED = MAX_INSTANCES_ASKED = 20
"""The most streams, and the most instances, that are asked for one by one: those that are shown first."""

INSTANCES = replace(asked.INSTANCES, fresh_seconds=2.0)
FAILURES = replace(asked.FAILURES, fresh_seconds=60.0)
"""Advisories arrive by themselves; the stream that keeps them is asked for what was missed."""
STREAM_ACTIVITY = replace(asked.ACTIVITY, fresh_seconds=5.0)
"""The question for a single stream, asked at most every 5 s; all of them together are asked for in each interval."""
ANSWER_KEPT_NS = 30 * SECOND
"""The time for which the last answer is used while there is no new one."""

JUDGED = (asked.HEALTH.endpoint, asked.FINDINGS.endpoint)
"""The questions that only the verdict rests on, which says itself what it lacks."""

NO_KEYS: Mapping[str, object] = {}

Asked = tuple[EndpointQuestion[Any], Mapping[str, object]]
"""A question, and the request in which it is asked."""


class Knowledge:
    """All that `top` knows of the sidecars of one account."""

    def __init__(self, stream: str | None, answers: Answers, interval: float = 1.0) -> None:
        """Know nothing yet; None is about all streams. What changes is asked for every `interval` seconds."""
        self.order = next(iter(SORTS))
        """In which order the streams are shown."""
        self.server = ""
        self.lost = ""
        """Why there is no connection, "" if there is one."""
        self.denied = ""
        self._stream = stream
        self._answers = answers
        self._failures: dict[str, FailureDocument] = {}
        """By their content: several sidecars may publish the same."""
        self._max_age = max(MAX_HEALTH_AGE_NS, int((interval + 1) * SECOND))
        """The age (ns) of an answer about health that says nothing of now: it is asked for in each interval."""
        # A bit less than the interval: the next round must not come just before an answer may be asked for again.
        fresh, about = interval * 0.9, {} if stream is None else {"stream": stream}
        self._health: Asked = replace(asked.HEALTH, fresh_seconds=fresh), {}
        self._listed: Asked = replace(asked.STREAMS, fresh_seconds=fresh), {"limit": PAGE_LENGTH}
        self._activity: Asked = replace(asked.ACTIVITY, fresh_seconds=fresh), about
        self._recent: Asked = replace(asked.RECENT_FIRES, fresh_seconds=fresh), {**about, "limit": ROWS_ASKED}
        self._timeline: Asked = replace(asked.TIMELINE, fresh_seconds=fresh), about
        self._instances: Asked = INSTANCES, {"limit": PAGE_LENGTH}
        self._kept: Asked = FAILURES, {**about, "limit": ROWS_ASKED}
        self._findings: Asked = asked.FINDINGS, {}
        self._alive: dict[str, InstanceDocument] = {}
        """The sidecars of the last list, by id."""
        self._gone: dict[str, tuple[InstanceDocument, int]] = {}
        """Those that were listed before, and when (ns, the server's clock) they were missed, by id."""

    # -- questions -----------------------------------------------------------------------------------------------

    def questions(self) -> list[Asked]:
        """Return what is to be asked, as far as that does not follow from answers."""
        listed = [self._health, self._listed, self._activity, self._recent]
        return [*listed, self._timeline, self._instances, self._kept, self._findings]

    def further_questions(self) -> list[Asked]:
        """Return what is to be asked about single streams and instances."""
        instances = [(health_of(name), NO_KEYS) for name in self._single_instances()]
        return [*map(_about_stream, self._single_streams()), *instances]

    def _single_streams(self) -> list[str]:
        streams = [row.stream["stream"] for row in self._streams()[:MAX_STREAMS_ASKED]]
        # Of a single one, the answer about all of them says it.
        return [] if self._stream is not None or len(streams) < 2 else streams

    def _single_instances(self) -> list[str]:
        listed = self._rows(self._instances, "instances")
        alive = [one["id"] for one in listed if one["state"] == "alive" and NAME.fullmatch(one["id"])]
        return alive[:MAX_INSTANCES_ASKED]

    def take(self) -> None:
        """Remember what later answers do not say any more: failures, and sidecars that were listed."""
        for failure in self._rows(self._kept, "failures"):
            self._add_failure(failure)
        listed = self._part(self._instances)
        if listed.data is not None and listed.at is not None:
            self._take_list({one["id"]: one for one in listed.data["instances"]}, listed.at)

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
        missed = {name: (one, at) for name, one in self._alive.items() if name not in listed}
        self._gone = {
            name: (one, since)
            for name, (one, since) in (self._gone | missed).items()
            if name not in listed and at - since < GONE_SHOWN_NS
        }
        self._alive = listed

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
        return self._answers.now()

    def view(self) -> View:
        """Return what is known at this moment; if nobody answers, that is nothing but the verdict and failures."""
        found, failures = self._verdict(), self._newest_failures()
        if found.is_blind and not self.lost:
            return View(self.now(), self.server, found, failures=failures or None)
        last_good_at, now = self._answers.last_good_at, self.now()
        return View(
            at=now,
            server=self.server,
            verdict=found,
            lost=self.lost,
            age=0 if last_good_at is None else max(now - last_good_at, 0),
            notices=[] if self.lost else list(self._notices()),
            activity=_minutes(self._part(self._activity)),
            streams=self._streams(),
            due=None if self.lost else self._due(),
            fires=None if self._part(self._recent).data is None else self._rows(self._recent, "fires"),
            failures=None if self.lost and not failures else failures,
            instances=self._shown_instances(),
        )

    def _verdict(self) -> StatusVerdict:
        health, names = self._answers.last(*self._health), self._single_instances()
        if self.lost:
            health = replace(health, fault=self.lost, is_connected=False)
        each = {name: self._answers.last(health_of(name), NO_KEYS) for name in names if len(names) > 1}
        streams, instances, findings = map(self._part, (self._listed, self._instances, self._findings))
        return verdict(Known(self.now(), health, each, streams, instances, findings, self._stream, self._max_age))

    def _part(self, one: Asked) -> AnswerState[Any]:
        """Return what is known of an answer; one that is old counts as none, unless there is no connection."""
        part = self._answers.last(*one)
        is_old = part.at is not None and self.now() - part.at > ANSWER_KEPT_NS
        return replace(part, data=None) if part.fault and part.is_connected and not self.lost and is_old else part

    def _rows(self, one: Asked, key: str) -> Sequence[Any]:
        """Return the rows of the last answer to a question; none if there is no answer."""
        answer = self._part(one).data
        return () if answer is None else answer[key]

    def _served(self) -> list[StreamDocument]:
        """Return the streams that are asked about."""
        return [one for one in self._rows(self._listed, "streams") if self._stream in (None, one["stream"])]

    def _streams(self) -> list[StreamRow]:
        streams = self._served()
        all_of_them = self._activity if len(streams) == 1 else None
        rows = [StreamRow(one, _minutes(self._part(all_of_them or _about_stream(one["stream"])))) for one in streams]
        return sorted_streams(rows, self.order)

    def _due(self) -> list[ScheduleDocument]:
        """Return what is due next; if there is no list of it, the next schedule of each stream."""
        answer = self._part(self._timeline).data
        soonest = [one["next"] for one in self._served()] if answer is None else answer["soonest"]
        found = [(due, one) for one in soonest if one is not None and (due := due_of(one)) is not None]
        return [one for _, one in sorted(found, key=lambda row: row[0])]

    def _shown_instances(self) -> list[InstanceRow] | None:
        answer = self._part(self._instances).data
        if answer is None:
            return None
        gone: list[InstanceDocument] = [
            {**one, "state": "gone", "since": None, "owns": [], "stands_by": [], "standbys": None, "unable": []}
            for one, _ in self._gone.values()
        ]
        shown = [*answer["instances"], *gone]
        return [InstanceRow(one, self._part((health_of(one["id"]), NO_KEYS)).data) for one in shown]

    def _newest_failures(self) -> list[FailureDocument]:
        return sorted(self._failures.values(), key=lambda one: -instant_of(one["stored"]))[:MAX_FAILURES]

    def _notices(self) -> Iterator[str]:
        """Return what is missing from the view, and why."""
        asked_now, streams = self.questions(), [*map(_about_stream, self._single_streams())]
        answered = (self._part(one).data or {} for one in (*asked_now, *streams))
        silent = {name for answer in answered for name in answer.get("unanswered", ())}
        if silent:
            yield f"No answer from {', '.join(sorted(silent))}: what only they know is missing."
        for question, request in asked_now:
            part = self._part((question, request))
            if part.fault and part.is_connected and question.endpoint not in JUDGED:
                yield f"{question.endpoint}: {part.fault}."
        if self.denied:
            yield f"{self.denied}."


def _about_stream(stream: str) -> Asked:
    return STREAM_ACTIVITY, {"stream": stream, "minutes": LATENESS_MINUTES}


def _minutes(part: AnswerState[ActivityAnswer]) -> LastMinutes | None:
    return None if part.data is None else read_activity(part.data)
