"""Random cases: another seed in each run, printed, and the same one again on request.

`NATS_SCHEDULER_SEED` repeats a run, `NATS_SCHEDULER_DIFFERENTIAL` multiplies how many cases are drawn.
"""

import os
import random
import secrets


class RandomRun:
    """The source from which one test draws its cases."""

    def __init__(self, test: str) -> None:
        self.seed = int(os.environ.get("NATS_SCHEDULER_SEED") or secrets.randbelow(10**9))
        self.draw = random.Random(f"{test} {self.seed}")
        print(f"repeat {test} with NATS_SCHEDULER_SEED={self.seed}")

    def many(self, count: int) -> int:
        """Return how many cases to draw where a normal run draws `count`."""
        return count * int(os.environ.get("NATS_SCHEDULER_DIFFERENTIAL") or 1)
