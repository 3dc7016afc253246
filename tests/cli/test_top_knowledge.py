"""The use that `top` makes of the answers of sidecars: of this version, of older ones, and of wrong ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from nats_scheduler.cli.top_knowledge import MAX_FAILURES, Knowledge
from nats_scheduler.cli.top_screen import screen, text_of
from nats_scheduler.cli.top_view import view_document
from nats_scheduler.control.errors import ForbiddenError, NoRespondersError
from nats_scheduler.observe.documents import due_of
from nats_scheduler.observe.fire_counts import LATENESS_BUCKETS_SECONDS
from nats_scheduler.schedule.instants import MILLISECOND, MINUTE, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339
from nats_scheduler.service import sidecar_answers as asked
from nats_scheduler.service.sidecar_answers import Answers
from nats_scheduler.testing.manual_clock import ManualClock
from tests.web.test_impostor import EARLY, LATE

AT = parse_rfc3339("2026-11-22T12:36:05Z")
assert isinstance(AT, int)
NOW: int = AT
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


def text(seconds: float) -> str:
    """Return the time `seconds` from now."""
    return format_rfc3339(NOW + int(seconds * SECOND))


def due(seconds: float, name: str, subject: str) -> dict[str, Any]:
    """Return a schedule that fires in `seconds`."""
    fire = {"utc": text(seconds), "local": text(seconds), "nanoseconds": NOW + int(seconds * SECOND), "sent": None}
    texts = {"pattern": "@every 5m", "kind": "every", "target": "orders.out", "dialect": "adr51", "mode": "emulated"}
    nothing = dict.fromkeys(("time_zone", "source", "ttl", "rollup", "failing", "ends", "unfired_since"))
    one = {"stream": name, "subject": subject, "sequence": 1, "stored": text(-60), "policies": {}, "next_fire": fire}
    return {**one, **texts, **nothing, "state": "waiting", "fired_by": "sidecar"}


def stream_document(name: str, seconds: float, overdue: int = 0) -> dict[str, Any]:
    counts = {"total": 7, "states": {"waiting": 1, "overdue": overdue, "paused": 0}, "kinds": {}}
    served = {"mode": "emulated", "ready": True, "unread": None, "failing": 1, "rejected": 2, "misnamed": 0}
    owner = {"owner": "a", "owner_since": text(-60), "takeover_reason": "first", "standbys": ["b"]}
    return {"stream": name, "schedules": counts, "next": due(seconds, name, f"{name}.next"), **served, **owner}


def owned(name: str) -> dict[str, Any]:
    return {"stream": name, "mode": "emulated", "since": text(-60), "before": "", "reason": "first"}


def instance_document(name: str, **fields: Any) -> dict[str, Any]:
    heartbeat = {"last_heartbeat": text(0), "age_nanoseconds": 0, "since": text(-60)}
    nothing: dict[str, Any] = {"unable": [], "owns": [], "stands_by": []}
    return {"id": name, "state": "alive", **heartbeat, "serves": None, **nothing, "standbys": 1, **fields}


def answers() -> dict[str, dict[str, Any]]:
    """Return what sidecars answer to each question."""
    alive = instance_document(
        "a",
        owns=[owned("ORDERS"), owned("JOBS")],
        stands_by=[{"stream": "MAILS", "mode": "emulated"}],
        unable=[{"stream": "JOBS", "reason": "may not publish"}],
    )
    silent = instance_document("b", state="silent", since=None)
    late = {"stream": "ORDERS", "schedule": "orders.fired", "target": "orders.out", "sequence": 1}
    late |= {"fire_time": text(-1), "stored": text(-1), "lateness_nanoseconds": 900, "overdue": False}
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

    def __init__(self, given: dict[str, Any], stream: str | None = None) -> None:
        """Give these answers by endpoint; an exception is the reason why there is none, and nothing else answers."""
        self.given = given
        self.answers = Answers(self.ask, ManualClock(NOW).now, lambda error: pytest.fail(repr(error)))
        self.known = Knowledge(stream, self.answers)

    async def ask(self, endpoint: str, _request: Mapping[str, object]) -> Any:
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
    assert view.notices == ["No answer from b: what only they know is missing."]
    assert [(row.stream["stream"], row.in_state("overdue"), row.trouble) for row in view.streams] == [
        ("JOBS", 2, 3),
        ("ORDERS", 0, 1),
    ]
    due_then = [(NOW + SECOND, "orders.u"), (NOW + 5 * SECOND, "orders.t")]
    assert [(due_of(one), one["subject"]) for one in view.due or ()] == due_then
    assert [(row.instance["id"], row.state, row.fault) for row in view.instances or ()] == [
        ("a", "alive", "cannot serve JOBS: may not publish"),
        ("b", "silent", ""),
    ]
    document = json.loads(json.dumps(view_document(view)))
    assert (document["at"], document["verdict"], document["connection_lost"]) == (text(0), "warn", None)
    assert document["activity"]["fires_per_second"] == pytest.approx((30 + 60 * 55 / 60) / 60, abs=0.001)
    assert document["activity"]["lateness"]["max_nanoseconds"] == 5 * MILLISECOND - 1
    assert document["failures"][0]["advisory"] == ADVISORY


async def test_what_is_not_answered_is_not_shown_and_not_said_to_be_well() -> None:
    none = (await knowledge_of({})).view()
    assert (none.answered, none.due, none.failures, none.instances) == (False, None, None, None)
    assert none.verdict.of_level("bad") == ["No sidecar answers: nothing subscribes to its requests."]
    denied = {name: ForbiddenError(f"this user may not publish to {name}") for name in answers()}
    refused = (await knowledge_of(denied)).view().verdict
    assert refused.of_level("bad") == ["No sidecar answers: this user may not publish to health.get."]
    silent = {name: answer for name, answer in answers().items() if name != HEALTH}
    view = (await knowledge_of(silent)).view()
    assert (view.answered, view.streams, view_document(view)["verdict"]) == (False, (), "bad"), "nobody says it is well"
    assert "Stream NONE is not served." in (await knowledge_of(answers(), "NONE")).view().verdict.of_level("bad")


async def test_a_name_that_cannot_be_part_of_a_subject_is_asked_nothing() -> None:
    for name in ("a b", "a\r\nPUB x 0", "a.b", ">", "注文", ""):
        given = answers()
        given[INSTANCES]["instances"][0]["id"] = name
        known = await knowledge_of(given)
        assert [question.endpoint for question, _ in known.further_questions()] == [ACTIVITY, ACTIVITY], name


async def test_with_a_stream_only_what_is_about_it_is_shown() -> None:
    known = await knowledge_of(answers(), "ORDERS")
    known.advised(json.dumps(ADVISORY | {"stream": "JOBS"}).encode())
    view = known.view()
    assert [row.stream["stream"] for row in view.streams] == ["ORDERS"]
    assert [row["stream"] for row in view.failures or ()] == ["ORDERS"]


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
    for body in (
        json.dumps(ADVISORY | {"reason": "x" * 20_000}).encode(),
        b'{"a": ' + b"[" * 2_000 + b"]" * 2_000 + b"}",
    ):
        known.advised(body)
    assert all(one["kind"] == "" for one in known.view().failures or ())


@pytest.mark.parametrize("given", [LATE, EARLY], ids=["late", "early"])
async def test_no_answer_breaks_the_screen(given: dict[str, Any]) -> None:
    """What has another form counts as no answer: `service/test_service_schemas.py`."""
    view = (await knowledge_of(given)).view()
    json.dumps(view_document(view))
    assert all(line.isprintable() for line in text_of(screen(view, 80, 24), 80))
