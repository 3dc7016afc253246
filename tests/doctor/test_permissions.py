"""The permissions that the doctor asks for are those of `docs/operating/security.md`."""

from nats_scheduler.doctor.facts import Need, StreamFacts
from nats_scheduler.doctor.permissions import COLUMNS, ROWS, PermissionPlace, needs_of
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.capabilities import capabilities_of
from nats_scheduler.message.user_permissions import PUBLISH
from nats_scheduler.runtime.modes import Mode
from tests.harness.permissions import MODES, listed

FAILURES = "nats_scheduler_failures"
V2_11, V2_14 = capabilities_of("2.11.0"), capabilities_of("2.14.0")
PLACE = PermissionPlace("$JS.API", "nats_scheduler", FAILURES, "$KV.nats_scheduler", "_INBOX", "nats-scheduler-1")
NAMED = {"api": "$JS.API", "registry": "$KV.nats_scheduler", "bucket": "nats_scheduler", "inbox": "_INBOX"}
NAMED |= {"failures": FAILURES, "canary": "nats_scheduler_canary"}


def test_the_rows_are_those_of_the_document() -> None:
    assert COLUMNS == MODES
    several = {"{targets}": ["orders.>", "jobs.>"], "{queue_subjects}": ["jobs.>"]}
    written = [
        (row.act, subject, row.columns)
        for row in ROWS
        for subject in several.get(row.subject) or [row.subject.format(stream="*", consumer="*", **NAMED)]
    ]
    assert written == [(row.act, row.subject, row.need) for row in listed()]


def stream(name: str, mode: Mode | None, **config: str) -> StreamFacts:
    return StreamFacts(StreamState({"name": name, "subjects": [f"{name}.>"], **config}, "", 1, 0), mode)


def test_needs_depend_on_who_fires_and_on_retention() -> None:
    emulated = needs_of(PLACE, V2_11, [stream("A", Mode.EMULATED), stream("B", None)])
    native = needs_of(PLACE, V2_14, [stream("A", Mode.NATIVE)])
    update, purge = "$JS.API.STREAM.UPDATE.A", "$JS.API.STREAM.PURGE.A"
    assert Need(PUBLISH, update, is_optional=True) in emulated
    assert Need(PUBLISH, purge, is_optional=False) in emulated
    assert update not in {need.subject for need in native}
    assert Need(PUBLISH, purge, is_optional=True) in native
    assert not any(".B" in need.subject for need in emulated)
    needs = needs_of(PLACE, V2_11, [stream("Q", Mode.EMULATED, retention="workqueue"), stream("L", Mode.EMULATED)])
    subjects = {need.subject for need in needs}
    assert {"Q.>", "$JS.API.CONSUMER.CREATE.L.nats-scheduler-1"} <= subjects
    assert not {"L.>", "$JS.API.CONSUMER.CREATE.Q.nats-scheduler-1"} & subjects
    without = {need.subject for need in needs_of(PLACE, V2_11, [])}
    having = {need.subject for need in needs_of(PLACE._replace(has_canary=True), V2_11, [])}
    canary = {f"$JS.API.STREAM.{verb}.nats_scheduler_canary" for verb in ("CREATE", "DELETE")}
    assert having - without == canary | {"nats_scheduler.canary.>"}, "it is needed only where there is a canary"
