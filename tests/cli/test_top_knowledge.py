"""The use that `top` makes of the answers of sidecars: of this version, of older ones, and of wrong ones."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from nats_scheduler.cli.top_knowledge import MAX_FAILURES, Knowledge
from nats_scheduler.cli.top_screen import screen, text_of
from nats_scheduler.cli.top_view import view_document
from nats_scheduler.control.errors import ForbiddenError, NoRespondersError
from nats_scheduler.observe.documents import due_of
from nats_scheduler.observe.fire_counts import LATENESS_BUCKETS_SECONDS
from nats_scheduler.schedule.instants import MILLISECOND, MINUTE, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service import sidecar_answers as asked
from nats_scheduler.service.sidecar_answers import Answers
from nats_scheduler.testing.manual_clock import ManualClock
from tests.cli.top_views import NOW, due, fire, instance, owned, stream, text

HEALTH, STREAMS, ACTIVITY = asked.HEALTH.endpoint, asked.STREAMS.endpoint, asked.ACTIVITY.endpoint
FIRES, TIMELINE = asked.RECENT_FIRES.endpoint, asked.TIMELINE.endpoint
FAILURES, INSTANCES = asked.FAILURES.endpoint, asked.INSTANCES.endpoint
BUCKETS = len(LATENESS_BUCKETS_SECONDS) + 1
ADVISORY = {
    "type": "io.nats_scheduler.advisory.v1.fire_refused",
    "stream": "ORDERS",
    "schedule": "orders.s",
    "code": 503,
    "reason": "no space",
}


def minute(ago: int, fires: int, bucket: int) -> dict[str, Any]:
    lateness = [0] * BUCKETS
    lateness[bucket] = fires
    most = int(LATENESS_BUCKETS_SECONDS[bucket] * SECOND) - 1
    since = format_rfc3339(NOW - NOW % MINUTE - ago * MINUTE)
    counts = {"fires": fires, "duplicates": 0, "overdue": 0, "refused": 2}
    return {"from": since, **counts, "lateness": lateness, "lateness_max_nanoseconds": most}


def stream_document(name: str, seconds: float, overdue: int = 0) -> dict[str, Any]:
    next_fire = due(seconds, name, f"{name}.next")
    row = stream(name, total=7, overdue=overdue, failing=1, rejected=2, next=next_fire)
    return dict(row.stream)


def instance_document(name: str, **fields: Any) -> dict[str, Any]:
    return dict(instance(name, **fields).instance)


def answers() -> dict[str, dict[str, Any]]:
    """Return what sidecars answer to each question."""
    alive = instance_document(
        "a",
        since=text(-60),
        owns=[owned("ORDERS"), owned("JOBS")],
        stands_by=[{"stream": "MAILS", "mode": "emulated"}],
        unable=[{"stream": "JOBS", "reason": "may not publish"}],
    )
    silent = instance_document("b", state="silent", since=None, owns=[], stands_by=[])
    late = {**fire(1), "lateness_nanoseconds": 900}
    given: dict[str, dict[str, Any]] = {
        HEALTH: {"ready": True, "reasons": []},
        STREAMS: {
            "streams": [stream_document("ORDERS", 5), stream_document("JOBS", 3, overdue=2)],
            "unanswered": [],
            "cursor": None,
        },
        ACTIVITY: {
            "bounds_seconds": list(LATENESS_BUCKETS_SECONDS),
            "minutes": [minute(2, 10, 4), minute(1, 60, 1), minute(0, 30, 0)],
            "unanswered": ["b"],
            "since": text(-3_600),
        },
        FIRES: {"fires": [late, {**late, "overdue": True}], "unanswered": []},
        TIMELINE: {
            "minutes": [],
            "complete": True,
            "soonest": [due(5, "ORDERS", "orders.t"), due(1, "ORDERS", "orders.u")],
        },
        INSTANCES: {"cursor": None, "instances": [alive, silent]},
        FAILURES: {
            "kept_in": "nats_scheduler_failures",
            "complete": True,
            "older": None,
            "failures": [
                {
                    "kind": "fire_refused",
                    "stored": text(-90),
                    "sequence": 1,
                    "stream": "ORDERS",
                    "schedule": "orders.s",
                    "advisory": ADVISORY,
                }
            ],
        },
    }
    return {name: {"at": text(0), "instance": "a", **answer} for name, answer in given.items()}


class Answering:
    """Answers of sidecars that a test gives, and what is known of them."""

    def __init__(self, given: dict[str, Any], stream: str | None = None, clock: ManualClock | None = None) -> None:
        """Give these answers by endpoint; an exception is the reason why there is none, and nothing else answers."""
        self.given = given
        self.clock = clock or ManualClock(NOW)
        self.answers = Answers(self.ask, self.clock.now, lambda error: pytest.fail(repr(error)))
        self.known = Knowledge(stream, self.answers)
        self.asked: list[tuple[str, object]] = []

    async def ask(self, endpoint: str, request: Mapping[str, object]) -> Any:
        self.asked.append((endpoint, request.get("stream")))
        found = self.given.get(endpoint, self.given.get(HEALTH) if endpoint == f"{HEALTH}.a" else None)
        if isinstance(found, Exception):
            raise found
        if found is None:
            raise NoRespondersError("nothing subscribes to its requests")
        return found

    async def ask_all(self) -> None:
        """Ask everything once more."""
        self.answers.ask_again()
        for questions in (self.known.questions, self.known.further_questions):
            await asyncio.gather(*(self.answers.get(question, request) for question, request in questions()))
            self.known.take()


async def knowledge_of(given: dict[str, Any], stream: str | None = None) -> Knowledge:
    """Return what is known after these answers."""
    answering = Answering(given, stream)
    await answering.ask_all()
    return answering.known


async def test_answers_are_what_is_shown_and_what_the_document_has() -> None:
    view = (await knowledge_of(answers())).view()
    assert (view.at, view.answered, view.lost, view.verdict.level) == (NOW, True, "", "warn")
    assert view.verdict.of_level("warn") == [
        "The server refuses the fires of 1 schedule in stream ORDERS.",
        "The server refuses the fires of 1 schedule in stream JOBS.",
        "Instance a cannot serve 1 stream.",
        "Instance b is silent: its heartbeats stopped.",
    ]
    assert view.notices == ["No answer from b: what only they know is missing."]
    assert [
        (row.stream["stream"], row.schedules, row.in_state("overdue"), row.stream["failing"], row.trouble)
        for row in view.streams
    ] == [("JOBS", 7, 2, 1, 3), ("ORDERS", 7, 0, 1, 1)]
    assert [row.next_fire for row in view.streams] == [NOW + 3 * SECOND, NOW + 5 * SECOND]
    due_then = [(NOW + SECOND, "orders.u"), (NOW + 5 * SECOND, "orders.t")]
    assert [(due_of(one), one["subject"]) for one in view.due or ()] == due_then
    assert [(one["stored"], one["overdue"]) for one in view.fires or ()] == [(text(-1), False), (text(-1), True)]
    assert view.failures == answers()[FAILURES]["failures"]
    assert [(row.instance["id"], row.state, row.fault) for row in view.instances or ()] == [
        ("a", "alive", "cannot serve JOBS: may not publish"),
        ("b", "silent", ""),
    ]
    document = json.loads(json.dumps(view_document(view)))
    assert (document["at"], document["verdict"], document["connection_lost"]) == (text(0), "warn", None)
    assert document["reasons"][-1]["level"] == "note"
    assert [one["stream"] for one in document["streams"]] == ["JOBS", "ORDERS"]
    assert document["activity"]["fires_per_second"] == pytest.approx((30 + 60 * 55 / 60) / 60, abs=0.001)
    assert document["activity"]["lateness"]["max_nanoseconds"] == 5 * MILLISECOND - 1
    assert document["activity"]["refused"] == 6
    assert [one["subject"] for one in document["soonest"]] == ["orders.u", "orders.t"]
    assert document["failures"][0]["advisory"] == ADVISORY
    assert document["instances"][1]["state"] == "silent"


async def test_what_is_not_answered_is_not_shown_and_not_said_to_be_well() -> None:
    before = Answering({}).known.view()
    assert (before.verdict.is_waiting, before.due, before.failures, before.instances) == (True, None, None, None)
    none = (await knowledge_of({})).view()
    assert (none.answered, none.verdict.of_level("bad")) == (
        False,
        ["No sidecar answers: nothing subscribes to its requests."],
    )
    denied = {name: ForbiddenError(f"this user may not publish to {name}") for name in answers()}
    refused = (await knowledge_of(denied)).view().verdict
    assert refused.of_level("bad") == ["No sidecar answers: this user may not publish to health.get."]

    given = {name: answer for name, answer in answers().items() if name not in (ACTIVITY, FIRES, TIMELINE)}
    view = (await knowledge_of(given)).view()
    assert (view.answered, view.activity, view.fires) == (True, None, None)
    assert [row["subject"] for row in view.due or ()] == ["JOBS.next", "ORDERS.next"]
    unread = answers()
    unread[STREAMS]["streams"][0] |= {"unread": "it is being read", "schedules": None, "next": None}
    notes = (await knowledge_of(unread)).view().verdict.of_level("note")
    assert "Stream ORDERS is not counted: it is being read." in notes
    assert "Stream NONE is not served." in (await knowledge_of(answers(), "NONE")).view().verdict.of_level("bad")
    silent = {name: answer for name, answer in answers().items() if name != HEALTH}
    view = (await knowledge_of(silent)).view()
    assert (view.answered, view.streams, view_document(view)["verdict"]) == (False, (), "bad"), "nobody says it is well"


async def test_nothing_is_well_without_a_fresh_answer_about_health() -> None:
    well = answers()
    well[STREAMS]["streams"] = [dict(stream("ORDERS").stream)]
    well[INSTANCES]["instances"] = [instance_document("a")]
    answering = Answering(well)
    await answering.ask_all()
    found = []
    for seconds in (0, 1, 4):
        answering.clock.advance(seconds * SECOND)
        found.append(answering.known.view().verdict.level)
    assert found == ["ok", "ok", "warn"], "what else is known is as old"
    del answering.given[HEALTH]
    await answering.ask_all()
    view = answering.known.view()
    assert (view.verdict.level, view.answered, view.activity) == ("bad", False, None), "the other answers are kept"


async def test_single_streams_are_asked_for_if_there_are_several() -> None:
    known = await knowledge_of(answers())
    further = [(question.endpoint, request.get("stream")) for question, request in known.further_questions()]
    assert further == [(ACTIVITY, "JOBS"), (ACTIVITY, "ORDERS"), (f"{HEALTH}.a", None)]
    alone = answers()
    alone[STREAMS]["streams"] = alone[STREAMS]["streams"][:1]
    known = await knowledge_of(alone)
    assert [question.endpoint for question, _ in known.further_questions()] == [f"{HEALTH}.a"]
    row = known.view().streams[0]
    assert row.activity == known.view().activity is not None

    known = await knowledge_of(answers(), "ORDERS")
    about = [request.get("stream") for _, request in known.questions()]
    assert about == [None, None, "ORDERS", "ORDERS", "ORDERS", None, "ORDERS", None]
    assert [row.stream["stream"] for row in known.view().streams] == ["ORDERS"]
    known.advised(json.dumps(ADVISORY | {"stream": "JOBS"}).encode())
    assert [row["stream"] for row in known.view().failures or ()] == ["ORDERS"]

    for name in ("a b", "a\r\nPUB x 0", "a.b", ">", "注文", ""):  # it cannot be part of a subject
        given = answers()
        given[INSTANCES]["instances"][0]["id"] = name
        known = await knowledge_of(given)
        assert [question.endpoint for question, _ in known.further_questions()] == [ACTIVITY, ACTIVITY], name


async def test_failures_come_as_they_happen_each_one_once_and_take_no_memory() -> None:
    known = await knowledge_of(answers())
    other = ADVISORY | {"schedule": "orders.other"}
    changed = ADVISORY | {"type": "io.nats_scheduler.advisory.v1.schedule_changed"}
    for advisory in (other, ADVISORY, other, changed):
        known.advised(json.dumps(advisory).encode())
    known.advised(b"no object")
    now = [(text(0), "orders.other"), (text(0), "orders.s")]
    assert sorted((one["stored"], one["schedule"]) for one in known.view().failures or ()) == now
    for number in range(2 * MAX_FAILURES):
        known.advised(json.dumps(ADVISORY | {"schedule": f"orders.{number}"}).encode())
    assert len(known.view().failures or ()) == MAX_FAILURES


def test_an_advisory_that_no_sidecar_publishes_is_passed_over() -> None:
    known = Answering({}).known
    known.advised(json.dumps(ADVISORY | {"reason": "x" * 20_000}).encode())
    for depth in (100, 900, 1_000, 2_000):
        known.advised(b'{"a": ' + b"[" * depth + b"]" * depth + b"}")
    assert all(one["kind"] == "" for one in known.view().failures or ())


WRONG: list[Any] = [None, -1, 1 << 80, 1.5, "x\x1b[2J", [None], {"a": 1}]


def damaged() -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the answers with each value, at any depth, replaced by wrong ones or left out."""
    for path in paths(answers()):
        for wrong in (*WRONG, ...):
            given = copy.deepcopy(answers())
            place: Any = given
            for key in path[:-1]:
                place = place[key]
            if wrong is not ...:
                place[path[-1]] = wrong
            elif isinstance(place, dict):
                del place[path[-1]]
            yield f"{path} {wrong!r}", given


def paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if before:  # the answer itself is an object, or none
            yield (*before, key)
        yield from paths(inner, (*before, key))


@pytest.mark.deep
async def test_no_answer_breaks_the_screen() -> None:
    for what, given in damaged():
        view = (await knowledge_of(given)).view()
        try:
            lines = text_of(screen(view, 80, 24), 80)
            json.dumps(view_document(view))
        except Exception as error:
            raise AssertionError(what) from error
        assert all(line.isprintable() for line in lines), what
