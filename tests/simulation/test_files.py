"""Starts with the file of schedules of the process before, in worlds made by hand: few seeds show what can go wrong.

How the engine continues is in `runtime/first_contact.py`.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from nats_scheduler.engine import restart
from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.fire import Fire
from nats_scheduler.message.headers import with_headers
from nats_scheduler.runtime import schedule_file
from nats_scheduler.schedule.instants import MINUTE, SECOND
from tests.simulation.files import BEFALLS, limited, near
from tests.simulation.fleet import SimulatedFleet
from tests.simulation.instance import Instance
from tests.simulation.sidecar import CONTINUED, REAL, Parts, SimulatedContact

NO_FILE = "there is no file"
USED = Counter({NO_FILE: 1, CONTINUED: 1})
"""What the engines of two processes begin with, of which the second one has the file of the first one."""

OFTEN = ((schedule_file, "COMMIT_INTERVAL_SECONDS", 0.2),)
"""The file is written often."""
ALL_ARE_FAR = (*near(1), *OFTEN)


class FilesFleet(SimulatedFleet):
    """Instances with files, where only the test acts."""

    def __init__(self, parts: Parts = REAL, **changes: Any) -> None:
        super().__init__(parts, **{"elects": False, "files": True, "consumes": False, "purges": False, **changes})

    def __enter__(self) -> "FilesFleet":
        return self

    @property
    def starts(self) -> Counter[str]:
        """What engines began with."""
        return self.server.starts


class Seen(NamedTuple):
    """The result of a process that begins with the file of the process before."""

    fires: Counter[str]
    """The number of fires of each schedule."""
    previous: str | None
    """The fire before, as the first fire with a report names it."""
    versions: int
    """The number of versions of `s.replaced` that are stored some seconds after it was replaced."""
    starts: Counter[str]
    """What engines began with."""


def seen_after_a_start() -> Seen:
    """Kill a process with a file of all that is stored, and let another one begin with it.

    `s.tail` is stored in between, and `s.replaced` is replaced after the start. All fire each 20 s but these: `s.far`,
    which is due after 20 min, and `s.replaced`, which was, and is after two hours.
    """
    with limited(ALL_ARE_FAR), FilesFleet(elsewhere=True) as fleet:
        instance = fleet.boot("i0")
        fleet.timeline.run(SECOND)
        fleet.store("s.near", "@every 20s")
        for subject in ("s.far", "s.replaced"):
            fleet.store(subject, "@every 20m")
        fleet.store("s.reporting", "@every 20s", reports=True)
        fleet.store_for_elsewhere("s.elsewhere", "@every 20s")
        fleet.timeline.run(30 * SECOND)
        instance.kill()
        fleet.store("s.tail", "@every 20s")
        fires = fleet.server.history.fires
        fires.clear()
        instance.boot("latest")
        fleet.timeline.run(2 * SECOND)
        fleet.store("s.replaced", "@every 2h")
        fleet.timeline.run(8 * SECOND)
        versions = len(list(fleet.server.stream.messages("s.replaced")))
        fleet.timeline.run(22 * MINUTE)
        reports = [dict(fire.headers) for fire in fires if fire.schedule == "s.reporting"]
        previous = reports[0].get("X-Nats-Schedule-X-Previous") if reports else None
        return Seen(Counter(fire.schedule for fire in fires), previous, versions, fleet.starts)


@pytest.mark.slow
def test_a_start_goes_on_where_the_file_ends() -> None:
    each_20_seconds = dict.fromkeys(("s.near", "s.reporting", "s.elsewhere", "s.tail"), 66)
    expected = Seen(Counter({"s.far": 1, **each_20_seconds}), "2026-01-01T00:00:21Z", 1, USED)
    assert seen_after_a_start() == expected


def held_after_a_life_without_contact() -> tuple[int, Counter[str]]:
    """Start a process that is killed before its first contact, and let another one begin with its file."""
    with limited(ALL_ARE_FAR), FilesFleet() as fleet:
        instance = fleet.boot("i0")
        fleet.store("s.near", "@every 20s")
        fleet.timeline.run(5 * SECOND)
        instance.kill()
        instance.weather.cut_until = fleet.timeline.now + 3 * SECOND
        instance.boot("latest")
        fleet.timeline.run(3 * SECOND)
        instance.kill()
        instance.boot("latest")
        fleet.timeline.run(2 * SECOND)
        return instance.held, fleet.starts


def test_a_life_without_contact_leaves_the_file_as_it_was() -> None:
    assert held_after_a_life_without_contact() == (1, USED)


# -- what was in progress, and what no row has -------------------------------------------------------------------------


class Left(NamedTuple):
    """What is left some seconds after a start."""

    fires: Counter[str]
    """The number of fires of each schedule."""
    versions: dict[str, int]
    """The number of messages on some subjects."""
    starts: Counter[str]
    """What engines began with."""


def left_after_a_start() -> Left:
    """Kill a process of which no fire and no purge arrives at last, and let another one begin with its file.

    A fire of `s.sent` got lost; `s.done` is to be purged, with a fire of `s.other` that lies on it, and so is the first
    version of `s.replaced`; `s.paused` is paused, and resumed after the start.
    """
    lost: set[str] = set()

    class LosingContact(SimulatedContact):
        def publish(self, fires: Sequence[Fire]) -> None:
            if "fires" not in lost:
                super().publish(fires)

        def purge(self, request: PurgeSchedule) -> None:
            if "purges" not in lost:
                super().purge(request)

    with limited(ALL_ARE_FAR), FilesFleet(Parts(contact=LosingContact), lands=True) as fleet:
        instance = fleet.boot("i0")
        fleet.timeline.run(SECOND)
        store(fleet, "s.other", "@at 2026-01-01T00:00:04Z", target="s.done")
        fleet.store("s.done", "@at 2026-01-01T00:00:08Z")
        fleet.store("s.sent", "@every 9s", reports=True)
        store(fleet, "s.paused", "@every 1h", header="Nats-Schedule-X-Paused")
        fleet.store("s.replaced", "@every 1h")
        fleet.timeline.run(5 * SECOND)
        lost.add("purges")
        fleet.store("s.replaced", "@every 2h")
        fleet.timeline.run(3 * SECOND)
        lost.add("fires")
        fleet.timeline.run(2 * SECOND)
        instance.kill()
        lost.clear()
        fires = fleet.server.history.fires
        fires.clear()
        instance.boot("latest")
        fleet.timeline.run(2 * SECOND)
        fleet.store("s.paused", "@every 1h")
        fleet.timeline.run(3 * SECOND)
        stored = Counter(message.subject for message in fleet.server.stream.messages("s.*"))
        versions = {subject: stored[subject] for subject in ("s.done", "s.paused", "s.replaced")}
        return Left(Counter(fire.schedule for fire in fires), versions, fleet.starts)


def store(
    fleet: SimulatedFleet, subject: str, pattern: str, *, target: str = "t.0", header: str = "Nats-Schedule"
) -> None:
    """Store a schedule with a target, or a paused one."""
    headers = [(header.encode(), pattern.encode()), (b"Nats-Schedule-Target", target.encode())]
    fleet.server.stream.publish(subject, with_headers(b"", headers))


@pytest.mark.slow
def test_a_start_goes_on_with_what_was_in_progress() -> None:
    versions = {"s.done": 0, "s.paused": 1, "s.replaced": 1}
    expected = Left(Counter({"s.sent": 1}), versions, USED)
    assert left_after_a_start() == expected


# -- a stream that went back while no process ran --------------------------------------------------------------------


def fired_after_a_return(*, is_new: bool) -> set[str]:
    """Let a stream go back while no instance runs, and grow again; return the schedules that fire then.

    When it goes back, the file has `s.old` and `s.lost`; the copy has `s.old` only. Then it grows beyond what the file
    is of, by `s.new` and messages that are no schedules.
    """
    with limited(ALL_ARE_FAR), FilesFleet() as fleet:
        instance = fleet.boot("i0")
        fleet.timeline.run(SECOND)
        fleet.store("s.old", "@every 1s")
        through, messages = (0, []) if is_new else fleet.server.stream.copied()
        fleet.store("s.lost", "@every 1s")
        fleet.timeline.run(10 * SECOND)
        instance.kill()
        known = fleet.server.stream.last_sequence
        fleet.server.go_back(through, messages)
        fleet.store("s.new", "@every 1s")
        while fleet.server.stream.last_sequence <= known + 2:
            fleet.server.stream.publish("x.other")
        instance.boot("latest")
        return set(fleet.fires_within(6 * SECOND))


def test_the_file_of_a_stream_that_went_back_is_not_used() -> None:
    assert fired_after_a_return(is_new=True) == {"s.new"}
    assert fired_after_a_return(is_new=False) == {"s.old", "s.new"}


def fired_after_a_return_behind_the_document() -> int:
    """Let a stream go back to what the document is of, while rows say more; return how often the old version fires."""
    with limited(ALL_ARE_FAR), FilesFleet() as fleet:
        instance = fleet.boot("i0")
        fleet.timeline.run(SECOND)
        fleet.store("s.old", "@every 2s")
        fleet.timeline.run(SECOND)
        through, messages = fleet.server.stream.copied()
        with limited([(restart, "MAX_NAMED", -1)]):  # rows are written, and no document
            fleet.store("s.old", "@every 1h")
            fleet.timeline.run(SECOND // 2)
        instance.kill()
        fleet.server.go_back(through, messages)
        instance.boot("latest")
        return fleet.fires_within(10 * SECOND)["s.old"]


def test_rows_that_say_more_than_the_stream_has_are_not_used() -> None:
    assert fired_after_a_return_behind_the_document() >= 4


# -- files with which something is wrong -----------------------------------------------------------------------------


def booted_again(fleet: FilesFleet, instance: Instance, what: str, *, is_ended: bool) -> Counter[str]:
    """End a process that has run for some seconds, let something happen to its file, and return the fires after."""
    fleet.store("s.near", "@every 2s")
    fleet.store("s.done", "@at 2026-01-01T00:00:00Z")
    fleet.timeline.run(8 * SECOND)
    assert instance.machine is not None, "it keeps a file"
    if is_ended:
        instance.leave()
        fleet.timeline.run(2 * SECOND)
        assert not instance.is_alive
    else:
        instance.kill()
    instance.machine.befall(what)
    instance.boot("latest")
    return fleet.fires_within(10 * SECOND)


REFUSED = {
    "machine crashed": "the file: the machine ended before it was closed",
    "lost": NO_FILE,
    "without its journal": "the file: its last changes are missing",
    "foreign": "the rows: it is of another creation of the stream, other settings, another server or another version",
    "zone changed": "the rows: the data of the time zone Europe/Berlin is not what it was",
}


@pytest.mark.parametrize("what", BEFALLS)
def test_a_file_is_used_only_if_it_fits_and_all_fires_in_any_case(what: str) -> None:
    with limited(OFTEN), FilesFleet() as fleet:
        fires = booted_again(fleet, fleet.boot("i0"), what, is_ended=False)
        assert fires["s.near"] in (4, 5)
        if what in REFUSED:
            assert fleet.starts == Counter([NO_FILE, REFUSED[what]])
        elif what == "nothing":
            assert fleet.starts == USED


def test_a_file_that_was_closed_is_used_after_another_boot() -> None:
    with limited(OFTEN), FilesFleet() as fleet:
        assert booted_again(fleet, fleet.boot("i0"), "machine crashed", is_ended=True)["s.near"] >= 3
        assert fleet.starts == USED


def test_a_second_process_on_a_folder_keeps_no_file() -> None:
    with FilesFleet(shares_folder=True) as fleet:
        first, _second = fleet.boot("i0"), fleet.boot("i1")
        fleet.store("s.near", "@every 2s")
        assert fleet.fires_within(9 * SECOND)["s.near"] == 4
        assert fleet.starts == Counter([NO_FILE, "the folder: another process uses it"])
        first.kill()
        assert fleet.fires_within(8 * SECOND)["s.near"] == 4


@pytest.mark.parametrize("way", range(4))
def test_a_disk_that_is_full_stops_no_fire(way: int) -> None:
    with limited(ALL_ARE_FAR), FilesFleet(seed=way) as fleet:
        instance = fleet.boot("i0")
        fleet.store("s.near", "@every 2s")
        fleet.timeline.run(5 * SECOND)
        instance.fill_disk()
        assert fleet.fires_within(12 * SECOND)["s.near"] == 6
        assert fleet.starts == Counter([NO_FILE, "the file was given up"])
