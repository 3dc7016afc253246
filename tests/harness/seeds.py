"""Random inputs of the tests: one seed for all of them, printed at the top of a run, and one measure of how many.

`TEST_SEED=N` draws other inputs, and the same ones each time; `TEST_EFFORT=N` draws N times as many.
The usual run has a fixed seed, so that a case that fails once fails again.
Names of variables that begin with `NATS_SCHEDULER_` are settings of the sidecar, so that these begin otherwise.
"""

import os
from random import Random

SEED = int(os.environ.get("TEST_SEED") or 0)
EFFORT = int(os.environ.get("TEST_EFFORT") or 1)
REPEAT = f"TEST_SEED={SEED} TEST_EFFORT={EFFORT}"
"""What to write before a command to draw the same inputs again."""


def generator(name: object) -> Random:
    """Return a generator of a test's own: `name` divides it from those of others."""
    return Random(f"{name} {SEED}")


def seeds(count: int) -> range:
    """Return `count` seeds for worlds or lives that are drawn one by one, more with a greater effort."""
    return range(SEED, SEED + count * EFFORT)


def draws(count: int) -> int:
    """Return the number of inputs to draw where a usual run draws `count`."""
    return count * EFFORT
