"""Worlds whose instances keep snapshots keep every promise, whatever a process finds of them."""

from collections.abc import Callable

import pytest

from nats_scheduler.engine import restoring
from nats_scheduler.engine.held import HeldElsewhere, HeldWithPolicies
from nats_scheduler.engine.histories import History, give_back
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.snapshot_values import snapshot_key
from nats_scheduler.schedule.instants import SECOND
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


def test_engines_begin_with_snapshots_of_schedules_with_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[HeldWithPolicies] = []

    def counted(held: HeldWithPolicies, history: History) -> None:
        found.append(held)
        give_back(held, history)

    monkeypatch.setattr(restoring, "give_back", counted)
    for seed in range(40):
        World(with_snapshots(seed), silent).run()
    assert {type(held) for held in found} == {HeldWithPolicies, HeldElsewhere}


@pytest.mark.slow
@pytest.mark.parametrize("bug", OF_SNAPSHOTS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found_in_its_seed_and_not_without_it(bug: Callable[[], Changes]) -> None:
    promise, seed = OF_SNAPSHOTS[bug]
    with planted(bug):
        assert promise in {violation.promise for violation in judged(seed, snapshots=True)}
    assert judged(seed, snapshots=True) == []


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
