"""The effort of the hostile tests, and what a message may cost.

One rule: a bound on cost is twenty times looser than the truth, so that it fails for a quadratic cost and not for a
busy machine.
"""

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hypothesis import HealthCheck, settings

from tests.harness.seeds import draws

SECONDS_A_TEXT = 0.4
"""Process time for a text that fills a header: the dearest take 0.02 s."""


def examples(number: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a property with `number` examples, more with a greater effort."""
    chosen = settings(
        max_examples=draws(number),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    return lambda test: chosen(test)


@contextmanager
def at_most(seconds: float, what: object = "") -> Iterator[None]:
    """Fail where the block takes more process time: not the wall's, which others take from us.

    The collector of garbage rests meanwhile: a full pass over all that a test process holds takes longer than most
    blocks may.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        begun = time.process_time()
        yield
        spent = time.process_time() - begun
    finally:
        if was_on:
            gc.enable()
    assert spent <= seconds, f"{what}: {spent:.3f} s of process time, expected at most {seconds:g}"


def bytes_kept(make: Callable[[], object], attempts: int = 3) -> int:
    """Return how many bytes the result of a call holds: the least of some attempts, as threads allocate too."""
    found = []
    gc.collect()
    for _ in range(attempts):
        tracemalloc.start()
        try:
            result = make()
            found.append(tracemalloc.get_traced_memory()[0])
            del result
        finally:
            tracemalloc.stop()
    return min(found)
