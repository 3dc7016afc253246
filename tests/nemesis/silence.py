"""The longest silence after a fault: how long it took until every steady schedule had fired again.

Its rule: it is counted from the moment from which nothing excuses a sidecar: the fault's end, or the loss of another
one whose schedules it has to take over.
Limit: the schedules fire each second, so up to a second of it is no fault.
"""

from collections import defaultdict
from dataclasses import replace

from tests.judge.health import Readiness
from tests.judge.history import History
from tests.nemesis.publishers import steady
from tests.nemesis.scenario import STEADY


def longest_silence(history: History) -> int:
    """Return the longest silence (ns) of a steady schedule after a fault."""
    fires: dict[str, list[int]] = defaultdict(list)
    for fire in history.fires:
        fires[fire.schedule].append(fire.stored_at)
    at_once = replace(history.terms, resumes_within=0)
    stretches = Readiness(replace(history, terms=at_once)).stretches
    longest = 0
    for begin, end in stretches:
        for number in range(STEADY):
            instants = fires[steady(number)]
            after = min((instant for instant in instants if instant >= begin), default=end)
            longest = max(longest, min(after, end) - begin)
    return longest


def ready_time(history: History) -> int:
    """Return how long (ns) some sidecar was ready."""
    total = covered = 0
    for begin, end in sorted(Readiness(history).stretches):
        total += max(0, end - max(begin, covered))
        covered = max(covered, end)
    return total
