"""What the machine gives processes: two that share a processor wait for each other, and one that sleeps does not."""

import asyncio
import os
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.harness.processes import ChildProcess
from tests.harness.waiting import eventually
from tests.judge.history import SECOND, Terms
from tests.nemesis.machine import MAX_ALLOWED, WINDOW, Machine, Waiting
from tests.nemesis.record import Record

WAIT_SECONDS = 60.0
BUSY = "import os; os.nice(19); os.sched_setaffinity(0, {{{processor}}})\nwhile True: pass"
"""It takes from others only what they leave: they are tests too."""
CROWD = 8
"""So many that share a processor get an eighth of it each."""
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


async def test_a_process_that_hardly_ever_runs_stands_still(tmp_path: Path) -> None:
    busy = BUSY.format(processor=min(os.sched_getaffinity(0)))
    record = Record(Terms())

    def a_whole_window() -> bool:
        return any(fault.kind == "machine" and fault.end - fault.begin >= WINDOW for fault in record.history.faults)

    with ExitStack() as running:
        crowd = [
            running.enter_context(ChildProcess((sys.executable, "-c", busy), tmp_path, name=f"busy-{number}"))
            for number in range(CROWD)
        ]
        watching = asyncio.create_task(Machine(record, lambda: [crowd[0].pid]).watch())
        await eventually(a_whole_window, within_seconds=WAIT_SECONDS, describe="it stands still")
        watching.cancel()


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
