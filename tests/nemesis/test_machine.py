"""The processor time of processes: two that share a processor wait for each other, and one that sleeps does not."""

import os
import sys
from pathlib import Path

import pytest

from tests.harness.processes import ChildProcess
from tests.harness.waiting import eventually
from tests.judge.history import SECOND, Terms
from tests.nemesis.machine import MAX_ALLOWED, WINDOW, Machine, Waiting
from tests.nemesis.record import Record, now

WAIT_SECONDS = 60.0
BUSY = "import os; os.nice(19); os.sched_setaffinity(0, {{{processor}}})\nwhile True: pass"
"""It takes from others only what they leave: they are tests too."""
ASLEEP = "import signal; signal.pause()"


async def test_processes_that_share_a_processor_are_seen_to_wait(tmp_path: Path) -> None:
    busy = BUSY.format(processor=min(os.sched_getaffinity(0)))
    with (
        ChildProcess((sys.executable, "-c", busy), tmp_path, name="one") as one,
        ChildProcess((sys.executable, "-c", busy), tmp_path, name="other"),
        ChildProcess((sys.executable, "-c", ASLEEP), tmp_path, name="asleep") as asleep,
    ):
        waiting, sleeping = Waiting(lambda: [one.pid]), Waiting(lambda: [asleep.pid])
        await eventually(lambda: waiting.look() > SECOND // 4, within_seconds=WAIT_SECONDS, describe="it waits")
        assert sleeping.look() == 0, "what was waited for before the first look does not count"
        one.kill()
        await eventually(lambda: waiting.look() == 0, within_seconds=WAIT_SECONDS, describe="it has ended")


@pytest.mark.parametrize(("share", "is_starved"), [(1.0, True), (0.8, False)])
async def test_a_thread_that_hardly_ever_runs_in_a_window_is_starved(
    tmp_path: Path, share: float, *, is_starved: bool
) -> None:
    counts = tmp_path / "7" / "task" / "7"
    counts.mkdir(parents=True)
    waiting, begin = Waiting(lambda: [7], tmp_path), now()
    assert waiting.look() == 0

    def has_waited() -> bool:
        (counts / "schedstat").write_text(f"5 {SECOND + int(share * (now() - begin))} 3")
        waiting.look()
        return now() - begin > 2 * WINDOW

    await eventually(has_waited, within_seconds=WAIT_SECONDS, describe="two windows have passed")
    assert waiting.is_starved == is_starved


def test_a_machine_that_stands_still_is_a_fault_for_all() -> None:
    record = Record(Terms())
    record.machine_stood_still(record.history.begin)
    (fault,) = record.history.faults
    assert (fault.kind, fault.instance, fault.begin) == ("machine", None, record.history.begin)
    assert (record.stood_still, record.last_trouble) == (1, fault.end)


def test_fires_may_be_later_by_what_a_thread_waited() -> None:
    machine, usual = Machine(Record(Terms()), list), Terms(slack=SECOND // 2, resumes_within=3 * SECOND)
    for waited, allowed in ((0, 0), (SECOND // 10, SECOND // 10), (SECOND, MAX_ALLOWED)):
        machine.longest_waiting = waited
        found = machine.allowed(usual)
        assert (found.slack - usual.slack, found.resumes_within - usual.resumes_within) == (allowed, allowed)
