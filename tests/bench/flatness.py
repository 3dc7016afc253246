"""The growth of costs with the number of schedules that are held: one row a cost, one column a number.

The rule: the last column is the largest number's figure over the smallest's; a flat cost has 1.
"""

from collections.abc import Iterator

from tests.bench.measures import CPU_ACCEPT, LAST, P50, RESTART_EACH, SCHEDULE_BYTES
from tests.bench.runs import Run
from tests.bench.tables import sides_of

COSTS = (LAST, P50, CPU_ACCEPT.sum, RESTART_EACH, SCHEDULE_BYTES)
FAMILY = "held-"


def numbers(run: Run) -> list[int]:
    """Return how many were held in the scenarios of a run, in order."""
    return sorted(int(name.removeprefix(FAMILY)) for name in run.scenarios if name.startswith(FAMILY))


def columns(run: Run) -> list[str]:
    """Return the names of the columns."""
    return ["cost", "unit", "side", *(f"{number:,} held" for number in numbers(run)), "growth"]


def rows(run: Run) -> Iterator[list[str]]:
    """Yield the rows of the table."""
    for cost in COSTS:
        for side in sides_of(run):
            found = [run.value(f"{FAMILY}{number}", cost.name, side) for number in numbers(run)]
            texts = ["–" if value is None else cost.text(value) for value in found]
            first, last = found[0], found[-1]
            growth = f"{last / first:.2f}" if first and last else "–"
            yield [cost.name, cost.unit, side, *texts, growth]
