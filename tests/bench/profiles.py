"""The scenarios, by name, and those of them that a profile runs.

A name is a family and a number, as in `herd-20000`; any number will do.
"""

from collections.abc import Callable, Mapping, Sequence

from tests.bench.scenarios.asked import Asked
from tests.bench.scenarios.divided import Divided
from tests.bench.scenarios.held import Held, Loaded, Ordinary
from tests.bench.scenarios.herd import Herd
from tests.bench.scenarios.mixed import Mixed
from tests.bench.scenarios.scenario import Scenario
from tests.bench.scenarios.spread import Budget, Rate, Spread, Steady
from tests.bench.scenarios.streams import HandOver, Streams, Takeover

BUSY_SCHEDULES = 2_000

FAMILIES: Mapping[str, Callable[[int], Scenario]] = {
    "spread": Spread,
    "budget": Budget,
    "budget-slow": lambda budget: Budget(budget, 20, "budget-slow"),
    "budget-fast": lambda budget: Budget(budget, 2_000, "budget-fast"),
    "steady": Steady,
    "rate": Rate,
    "mixed": Mixed,
    "busy": lambda rate: Spread(BUSY_SCHEDULES, others_per_second=rate, family="busy", asked=rate),
    "sampling": lambda count: Spread(count, sampling=True, family="sampling"),
    "herd": Herd,
    "repeating": lambda count: Herd(count, repeating=True),
    "loaded": Loaded,
    "held": Held,
    "asked": Asked,
    "ordinary": Ordinary,
    "takeover": Takeover,
    "handover": HandOver,
    "streams-takeover": lambda count: Takeover(count, lead_seconds=4.0, family="streams-takeover", is_in_many=True),
    "streams": Streams,
    "divided": Divided,
    "fleet": lambda streams: Divided(streams, family="fleet", is_one_each=True),
}
"""The families; the number in a name counts schedules, messages, either a second (`rate`: at most), ms, or streams."""

QUICK = ("spread-2000", "herd-1000", "herd-20000")
DEFAULT = (
    *("spread-20", "spread-2000", "spread-20000", "steady-1000", "rate-16000", "mixed-300"),
    *("budget-5", "budget-50", "budget-250", "budget-slow-250", "budget-fast-250"),
    *("herd-1000", "herd-20000", "herd-100000", "repeating-20000", "loaded-100000"),
    *("held-1000", "held-10000", "held-100000", "busy-20000", "sampling-2000"),
    *("takeover-2000", "handover-2000"),
    *("streams-100", "streams-1000", "streams-takeover-1000", "fleet-1000"),
)
MILLION = (
    *DEFAULT,
    *(
        "repeating-1000",
        "repeating-100000",
        "loaded-1000000",
        "held-1000000",
        "asked-1000000",
        "ordinary-1000000",
        "divided-1000000",
    ),
)
TEN_MILLION = ("held-10000000",)
"""By hand only: it takes the whole machine for half an hour."""
PROFILES: Mapping[str, Sequence[str]] = dict(
    zip(("quick", "default", "million", "ten-million"), (QUICK, DEFAULT, MILLION, TEN_MILLION), strict=True)
)


class UnknownScenarioError(Exception):
    """No family has that name."""


def scenario(name: str) -> Scenario:
    """Return the scenario of a name."""
    family, _, number = name.rpartition("-")
    if family not in FAMILIES or not number.isdecimal() or int(number) == 0:
        raise UnknownScenarioError(f"{name!r} is no scenario; a family and a number, such as {', '.join(MILLION)}")
    return FAMILIES[family](int(number))


def chosen(profile: Sequence[str], only: Sequence[str]) -> list[Scenario]:
    """Return the scenarios of a profile, or instead those that are named, alone or as a family of `--million`."""
    names = list(profile)
    if only:
        names = [found for name in only for found in ([name] if name not in FAMILIES else _family(name))]
    return [scenario(name) for name in dict.fromkeys(names)]


def _family(family: str) -> list[str]:
    return [name for name in MILLION if name.rpartition("-")[0] == family]
