"""The scenarios, by name, and those of them that a profile runs.

A name is a family and a number, as in `herd-20000`; any number will do.
"""

from collections.abc import Callable, Mapping, Sequence

from tests.bench.scenarios.held import Among, Held, Loaded
from tests.bench.scenarios.herd import Herd
from tests.bench.scenarios.mixed import Mixed
from tests.bench.scenarios.scenario import Scenario
from tests.bench.scenarios.spread import Budget, Spread, Steady
from tests.bench.scenarios.streams import HandOver, Streams, Takeover

FAMILIES: Mapping[str, Callable[[int], Scenario]] = {
    "spread": Spread,
    "budget": Budget,
    "budget-slow": lambda budget: Budget(budget, 20, "budget-slow"),
    "budget-fast": lambda budget: Budget(budget, 2_000, "budget-fast"),
    "steady": Steady,
    "mixed": Mixed,
    "herd": Herd,
    "repeating": lambda count: Herd(count, repeating=True),
    "loaded": Loaded,
    "held": Held,
    "among": Among,
    "takeover": Takeover,
    "handover": HandOver,
    "streams-takeover": lambda count: Takeover(count, lead_seconds=4.0, family="streams-takeover", is_in_many=True),
    "streams": Streams,
}
"""The families; the number in a name counts schedules, either a second (`steady`, `mixed`), ms (`budget`),
other messages (`among`), or streams."""

QUICK = ("spread-2000", "herd-1000", "herd-20000")
DEFAULT = (
    *("spread-20", "spread-2000", "spread-20000", "steady-1000", "mixed-300"),
    *("budget-5", "budget-50", "budget-250", "budget-slow-250", "budget-fast-250"),
    *("herd-1000", "herd-20000", "herd-100000", "repeating-20000", "loaded-100000", "held-1000", "held-100000"),
    *("among-100000", "takeover-2000", "handover-2000", "streams-1000", "streams-takeover-1000"),
)
MILLION = (*DEFAULT, "repeating-100000", "loaded-1000000", "held-1000000", "among-1000000")
PROFILES: Mapping[str, Sequence[str]] = {
    "quick": QUICK,
    "default": DEFAULT,
    "million": MILLION,
    "ten-million": ("held-10000000",),  # by hand only: it takes the whole machine for half an hour
}


def chosen(profile: Sequence[str], only: Sequence[str]) -> list[Scenario]:
    """Return the scenarios of a profile, or instead those that are named, alone or as a family of `--million`.

    Raises `KeyError` for what is no family.
    """
    names = list(profile)
    if only:
        known = [name for name in MILLION if name.rpartition("-")[0] in only]
        names = [*known, *(name for name in only if name.rpartition("-")[2].isdecimal())]
        if not names:
            raise KeyError(only[0])
    return [scenario(name) for name in dict.fromkeys(names)]


def scenario(name: str) -> Scenario:
    """Return the scenario of a name; raises `KeyError` where there is no such family."""
    family, _, number = name.rpartition("-")
    return FAMILIES[family](int(number))
