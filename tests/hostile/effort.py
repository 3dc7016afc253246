"""The effort of the hostile tests, and what a message may cost.

One rule: a bound on cost is twenty times looser than the truth, so that it fails for a quadratic cost and not for a
busy machine.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hypothesis import HealthCheck, settings

EFFORT = int(os.environ.get("NATS_SCHEDULER_FUZZ", "1"))
"""Multiplies the examples."""

SECONDS_A_TEXT = 0.4
"""Process time for a text that fills a header: the dearest take 0.02 s."""


def examples(number: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a property with `number` examples, more where the environment says so."""
    chosen = settings(
        max_examples=number * EFFORT,
        deadline=None,
        derandomize=EFFORT == 1,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    return lambda test: chosen(test)


def seeded() -> random.Random:
    """Give a generator whose seed is printed, so that a failure can be repeated."""
    seed = int(os.environ.get("NATS_SCHEDULER_SEED", "51"))
    print(f"NATS_SCHEDULER_SEED={seed}")
    return random.Random(seed)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail where the block takes more process time: not the wall's, which others take from us."""
    begun = time.process_time()
    yield
    spent = time.process_time() - begun
    assert spent <= seconds, f"{spent:.3f} s of process time, expected at most {seconds:g}"
