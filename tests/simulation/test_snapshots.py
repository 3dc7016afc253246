"""Worlds whose instances keep snapshots keep every promise, whatever a process finds of them."""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest

from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.snapshots import snapshots as restoring
from nats_scheduler.engine.snapshots.chunks import History, give_back
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.snapshots import snapshot_key
from nats_scheduler.schedule.instants import MINUTE, SECOND
from tests.simulation import sidecar
from tests.simulation.fleet import SimulatedFleet
from tests.simulation.planted import planted
from tests.simulation.planted_division import Changes
from tests.simulation.planted_snapshots import OF_SNAPSHOTS, stream_trusted
from tests.simulation.scenario import with_snapshots
from tests.simulation.snapshots import hasty
from tests.simulation.test_simulation import EACH_PART, PARTS, SEEDS
from tests.simulation.world import World, judged, silent

MANIFEST = snapshot_key("manifest", "SIM", Mode.EMULATED)

worlds = pytest.mark.parametrize("is_new", [True, False], ids=["created again", "restored"])


@pytest.mark.parametrize("part", EACH_PART)
def test_no_promise_is_broken_whatever_a_process_finds(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        broken = "\n".join(map(str, judged(seed, snapshots=True)))
        assert not broken, f"repeat it: python -m tests.simulation --seed {seed} --trace --snapshots\n{broken}"


def test_engines_begin_with_snapshots() -> None:
    lines: list[str] = []
    for seed in range(12):
        World(with_snapshots(seed), lines.append).run()
    assert len([line for line in lines if "begins with a snapshot of" in line]) >= 3
    assert any("snapshot_ignored" in line for line in lines)


@pytest.mark.slow
def test_engines_begin_with_snapshots_of_schedules_with_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Held] = []

    def counted(held: Held, history: History) -> None:
        found.append(held)
        give_back(held, history)

    monkeypatch.setattr(restoring, "give_back", counted)
    for seed in range(40):
        World(with_snapshots(seed), silent).run()
    assert {held.is_elsewhere for held in found} == {False, True}


class Seen(NamedTuple):
    """The result of a process that begins with the snapshot of the process before."""

    fires: Counter[str]
    """The number of fires of each schedule."""
    previous: str | None
    """The fire before, as the first fire with a report names it."""
    versions: int
    """The number of versions of `s.replaced` that are stored some seconds after it was replaced."""


def seen_after_a_start(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Kill a process with a snapshot of all that is stored, and let another one begin with it.

    `s.tail` is stored in between, and `s.replaced` is replaced after the start. All fire each 20 s but these: `s.far`,
    which is due after 20 min, and `s.replaced`, which was, and is after two hours.
    """
    monkeypatch.setattr(sidecar, "FOUND", ("latest",))
    serves = {"divides": False, "guard": True, "consumes": False, "lags": False, "elsewhere": True, "snapshots": True}
    with hasty(), SimulatedFleet(**serves) as fleet:
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


EACH_20_SECONDS = dict.fromkeys(("s.near", "s.reporting", "s.elsewhere", "s.tail"), 66)
EXPECTED = Seen(Counter({"s.far": 1, **EACH_20_SECONDS}), "2026-01-01T00:00:21Z", 1)


def test_a_start_goes_on_where_the_snapshot_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen_after_a_start(monkeypatch) == EXPECTED


@pytest.mark.slow
@pytest.mark.parametrize("bug", OF_SNAPSHOTS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_seen(bug: Callable[[], Changes], monkeypatch: pytest.MonkeyPatch) -> None:
    with planted(bug):
        assert seen_after_a_start(monkeypatch) != EXPECTED


def fired_after_a_return(monkeypatch: pytest.MonkeyPatch, *, is_new: bool) -> set[str]:
    """Let a stream go back while no instance runs, and grow again; return the schedules that fire then.

    When it goes back, a snapshot has `s.old` and `s.lost`; the copy has `s.old` only. Then it grows beyond what the
    snapshot is of, by `s.new` and messages that are no schedules.
    """
    monkeypatch.setattr(sidecar, "FOUND", ("latest",))
    with hasty(), SimulatedFleet(divides=False, guard=True, consumes=False, lags=False, snapshots=True) as fleet:
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
        fires = fleet.server.history.fires
        fires.clear()
        fleet.boot("i1")
        fleet.timeline.run(6 * SECOND)
        return {fire.schedule or "" for fire in fires}


@worlds
def test_a_snapshot_of_a_stream_that_went_back_is_not_used(monkeypatch: pytest.MonkeyPatch, *, is_new: bool) -> None:
    expected = {"s.new"} if is_new else {"s.old", "s.new"}
    assert fired_after_a_return(monkeypatch, is_new=is_new) == expected


@worlds
def test_a_snapshot_that_is_trusted_although_its_stream_went_back_is_seen(
    monkeypatch: pytest.MonkeyPatch, *, is_new: bool
) -> None:
    with planted(stream_trusted):
        assert "s.new" not in fired_after_a_return(monkeypatch, is_new=is_new)
