"""Starts with the file of schedules of the process before, in worlds made by hand.

How the engine continues is in `runtime/first_contact.py`.
"""

from collections import Counter

import pytest

from nats_scheduler.engine import restart
from nats_scheduler.runtime import schedule_file
from nats_scheduler.schedule.instants import MINUTE, SECOND
from tests.simulation.files import limited, near
from tests.simulation.fleet import SimulatedFleet

pytestmark = pytest.mark.slow

ALL_ARE_FAR = (*near(1), (schedule_file, "COMMIT_INTERVAL_SECONDS", 0.2))
"""Every schedule is a row, and the file is written often."""


def fleet_with_files() -> SimulatedFleet:
    """Return instances with files, where only the test acts."""
    return SimulatedFleet(elects=False, files=True, consumes=False, purges=False, elsewhere=True)


def test_a_start_goes_on_where_the_file_ends() -> None:
    with limited(ALL_ARE_FAR), fleet_with_files() as fleet:
        instance = fleet.boot("i0")
        fleet.timeline.run(SECOND)
        for subject in ("s.far", "s.replaced"):
            fleet.store(subject, "@every 3m")
        fleet.store("s.reporting", "@every 20s", reports=True)
        fleet.store_for_elsewhere("s.elsewhere", "@every 20s")
        fleet.timeline.run(30 * SECOND)
        instance.kill()
        fleet.store("s.tail", "@every 20s")
        instance.boot("latest")
        fleet.timeline.run(2 * SECOND)
        fleet.store("s.replaced", "@every 2h")
        since = len(fleet.server.history.fires)
        each_20_seconds = dict.fromkeys(("s.reporting", "s.elsewhere", "s.tail"), 11)
        assert fleet.fires_within(3 * MINUTE + 48 * SECOND) == Counter({"s.far": 1, **each_20_seconds})
        first = next(one for one in fleet.server.history.fires[since:] if one.schedule == "s.reporting")
        assert dict(first.headers)["X-Nats-Schedule-X-Previous"] == "2026-01-01T00:00:21Z"
        assert len(list(fleet.server.stream.messages("s.replaced"))) == 1, "the older version is purged"
        assert "stream_continued" in "".join(fleet.lines), "the file is used"


@pytest.mark.parametrize(("is_new", "fired"), [(True, {"s.new"}), (False, {"s.old", "s.new"})])
def test_the_file_of_a_stream_that_went_back_is_not_used(fired: set[str], *, is_new: bool) -> None:
    """The file has `s.old` and `s.lost`, the copy `s.old` only; then the stream grows beyond what the file is of."""
    with limited(ALL_ARE_FAR), fleet_with_files() as fleet:
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
        assert set(fleet.fires_within(6 * SECOND)) == fired


def test_rows_that_say_more_than_the_stream_has_are_not_used() -> None:
    with limited(ALL_ARE_FAR), fleet_with_files() as fleet:
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
        assert fleet.fires_within(10 * SECOND)["s.old"] >= 4
