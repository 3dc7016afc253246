"""The collector looks at what is new, and finds cycles all the same; in a process of its own, since it is global."""

import subprocess
import sys

import pytest

SET_UP = """
import gc
from nats_scheduler.runtime.driver import (
    MIN_SCHEDULES_FROZEN, MIN_SURVIVORS_FROZEN, SCHEDULES_PER_FREEZE, Load, collect_only_what_is_new
)

class Cycle:
    alive = 0
    def __init__(self):
        self.me = self
        Cycle.alive += 1
    def __del__(self):
        Cycle.alive -= 1

collect_only_what_is_new()
collect_only_what_is_new()
"""

WHAT_IS_HELD = """
held = [[number] for number in range(500_000)]
assert gc.get_freeze_count() > 400_000, gc.get_freeze_count()
assert len(gc.get_objects()) < 100_000, len(gc.get_objects())
"""

CYCLES = """
for _ in range(200_000):
    Cycle()
assert Cycle.alive < 50_000, Cycle.alive
"""

FEW_SURVIVORS = """
gc.collect()
gc.freeze()
frozen = gc.get_freeze_count()
few = [Cycle() for _ in range(MIN_SURVIVORS_FROZEN // 4)]
gc.collect()
assert gc.get_freeze_count() == frozen
few.clear()
gc.collect()
assert Cycle.alive == 0, Cycle.alive
"""

A_LOAD = """
load, held = Load(), [[number] for number in range(MIN_SCHEDULES_FROZEN)]
gc.collect()
gc.unfreeze()
load.grew_to(MIN_SCHEDULES_FROZEN)
assert gc.get_freeze_count() == 0
for _ in range(10):
    held += [[number] for number in range(SCHEDULES_PER_FREEZE)]
    load.grew_to(len(held))
    assert gc.get_freeze_count() >= len(held)
for fewer_again in (MIN_SCHEDULES_FROZEN, len(held), len(held) + SCHEDULES_PER_FREEZE - 1):
    few = [Cycle() for _ in range(2_000)]
    load.grew_to(fewer_again)
    few.clear()
    gc.collect()
    assert Cycle.alive == 0, Cycle.alive
"""

ANOTHERS_PROCESS = """
gc.callbacks.clear()
Load().grew_to(2 * MIN_SCHEDULES_FROZEN)
assert gc.get_freeze_count() == 0
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", [WHAT_IS_HELD, CYCLES, FEW_SURVIVORS, A_LOAD, ANOTHERS_PROCESS])
def test_what_is_held_is_looked_at_no_more_and_cycles_are_found(what: str) -> None:
    subprocess.run([sys.executable, "-c", SET_UP + what], check=True)
