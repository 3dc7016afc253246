"""Starts with a snapshot, in worlds made by hand: few seeds show what can go wrong with one.

The rule: each test fails with the bug planted that it stands for.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

from nats_scheduler.engine.holding.far import SubjectIndex
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.roster import Rows
from nats_scheduler.engine.reading.admission import Admission
from nats_scheduler.engine.snapshots import snapshots
from nats_scheduler.engine.snapshots.snapshots import Restoring, Snapshots, Taking
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.api import Removed
from nats_scheduler.runtime import continuity
from nats_scheduler.runtime import snapshots as kept_snapshots
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.port import StreamContents
from nats_scheduler.runtime.removals import Removals
from nats_scheduler.runtime.snapshots import Manifest, snapshot_key
from nats_scheduler.schedule.instants import MINUTE, SECOND
from tests.simulation import sidecar
from tests.simulation.buckets import hasty
from tests.simulation.fleet import SimulatedFleet
from tests.simulation.planted import around, instead, planted, together

MANIFEST = snapshot_key("manifest", "SIM", Mode.EMULATED)


def tail_begins_too_late() -> Iterable[tuple[Any, str, Any]]:
    """Leave out the first messages that are stored after the sequence of the snapshot."""
    original, late = Snapshots.begin_with, set[int]()

    def begin_with(self: Snapshots, found: Restoring, now: int) -> None:
        original(self, found, now)
        late.add(id(self))

    def followed_through(self: StreamEngine) -> int:
        is_late = id(self.snapshots) in late
        late.discard(id(self.snapshots))
        return self.last_read + 2 * is_late

    yield Snapshots, "begin_with", begin_with
    yield StreamEngine, "followed_through", property(followed_through)


def fill_with_other_subjects(original: Any, self: SubjectIndex, subjects: Any, first: int) -> None:
    original(self, [subject + b"?" for subject in subjects], first)


def entry_of_the_fire_after(original: Any, self: Taking, held: Held) -> Any:
    following = held.next_fire(held.fire_time)
    return original(self, held)._replace(fire_time=held.fire_time if following is None else following)


async def end_unasked(self: Removals, _api: StreamContents, removed: Removed) -> int:
    for found in self._engine.admission.find_gone(*removed):
        await self._pass(found)
    return 1


class HeldHere(Held):
    """Expects to read back the fires of a schedule whose target is in another stream."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.is_elsewhere = False


BUGS = {
    "the tail begins too late": tail_begins_too_late,
    "no schedule of a snapshot is found by its subject": around(SubjectIndex, "fill", fill_with_other_subjects),
    "a schedule begins with the fire after its next one": around(Taking, "_near_entry", entry_of_the_fire_after),
    "whatever waits is ended when something was removed": together(
        instead(Admission, "find_gone", lambda self, *_: iter([[(one.subject, one.sequence) for one in self._roster]])),
        instead(Removals, "_end", end_unasked),
    ),
    "none of a row is entered when its earliest one becomes near": instead(Rows, "far_wakes", lambda *_: []),
    "the fire before is not known": instead(snapshots, "give_back", lambda *_: None),
    "a target elsewhere is taken for one of the stream": instead(snapshots, "Held", HeldHere),
}

found_by_all = instead(sidecar, "FOUND", ("latest",))
"""Each process finds the latest snapshot."""


class Seen(NamedTuple):
    """The result of a process that begins with the snapshot of the process before."""

    fires: Counter[str]
    """The number of fires of each schedule."""
    previous: str | None
    """The fire before, as the first fire with a report names it."""
    versions: int
    """The number of versions of `s.replaced` that are stored some seconds after it was replaced."""


def seen_after_a_start() -> Seen:
    """Kill a process with a snapshot of all that is stored, and let another one begin with it.

    `s.tail` is stored in between, and `s.replaced` is replaced after the start. All fire each 20 s but these: `s.far`,
    which is due after 20 min, and `s.replaced`, which was, and is after two hours.
    """
    with planted(found_by_all), planted(hasty), SimulatedFleet(elects=False, elsewhere=True, snapshots=True) as fleet:
        first = fleet.boot("i0")
        fleet.timeline.run(SECOND)
        fleet.store("s.near", "@every 20s")
        for subject in ("s.far", "s.replaced"):
            fleet.store(subject, "@every 20m")
        fleet.store("s.reporting", "@every 20s", reports=True)
        fleet.store_for_elsewhere("s.elsewhere", "@every 20s")
        fleet.timeline.run(30 * SECOND)
        first.kill()
        fleet.store("s.tail", "@every 20s")
        fires = fleet.server.history.fires
        fires.clear()
        fleet.boot("i1")
        fleet.timeline.run(2 * SECOND)
        fleet.store("s.replaced", "@every 2h")
        fleet.timeline.run(8 * SECOND)
        versions = len(list(fleet.server.stream.messages("s.replaced")))
        fleet.timeline.run(22 * MINUTE)
        reports = [dict(fire.headers) for fire in fires if fire.schedule == "s.reporting"]
        return Seen(Counter(fire.schedule for fire in fires), reports[0].get("X-Nats-Schedule-X-Previous"), versions)


@pytest.mark.slow
def test_a_start_goes_on_where_the_snapshot_was_taken() -> None:
    each_20_seconds = dict.fromkeys(("s.near", "s.reporting", "s.elsewhere", "s.tail"), 66)
    expected = Seen(Counter({"s.far": 1, **each_20_seconds}), "2026-01-01T00:00:21Z", 1)
    assert seen_after_a_start() == expected
    for bug, changes in BUGS.items():
        with planted(changes):
            assert seen_after_a_start() != expected, bug


def fired_after_a_return(*, is_new: bool) -> set[str]:
    """Let a stream go back while no instance runs, and grow again; return the schedules that fire then.

    When it goes back, a snapshot has `s.old` and `s.lost`; the copy has `s.old` only. Then it grows beyond what the
    snapshot is of, by `s.new` and messages that are no schedules.
    """
    with planted(found_by_all), planted(hasty), SimulatedFleet(elects=False, snapshots=True) as fleet:
        first = fleet.boot("i0")
        fleet.timeline.run(SECOND)
        fleet.store("s.old", "@every 1s")
        through, messages = (0, []) if is_new else fleet.server.stream.copied()
        fleet.store("s.lost", "@every 1s")
        fleet.timeline.run(10 * SECOND)
        assert fleet.server.snapshots.versions[MANIFEST], "there is a snapshot"
        first.kill()
        known = fleet.server.stream.last_sequence
        fleet.server.go_back(through, messages)
        fleet.store("s.new", "@every 1s")
        while fleet.server.stream.last_sequence <= known + 2:
            fleet.server.stream.publish("x.other")
        fleet.boot("i1")
        return set(fleet.fires_within(6 * SECOND))


async def unchecked(_bucket: object, api: StreamContents, stream: str, _mode: str, manifest: Manifest) -> object:
    return 1, await api.message(stream, seq=manifest.witness.sequence)


async def unnoticed(*_args: object) -> str:
    return ""


async def read_for_any_basis(
    original: Any, bucket: Any, api: Any, engine: Any, stream: str, mode: str, _basis: str, now: int
) -> Any:
    document, _revision = await bucket.revised(snapshot_key("manifest", stream, mode))
    return await original(bucket, api, engine, stream, mode, (document or {}).get("basis", ""), now)


stream_trusted = together(
    instead(kept_snapshots, "_witness", unchecked),
    instead(continuity, "step_back", unnoticed),
    around(kept_snapshots, "read_snapshot", read_for_any_basis),
)
"""Any stream that is long enough is taken for the one that a snapshot is of."""


def test_a_snapshot_of_a_stream_that_went_back_is_not_used() -> None:
    assert fired_after_a_return(is_new=True) == {"s.new"}
    assert fired_after_a_return(is_new=False) == {"s.old", "s.new"}
    for is_new in (True, False):
        with planted(stream_trusted):
            assert "s.new" not in fired_after_a_return(is_new=is_new)
