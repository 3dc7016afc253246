"""Which scenarios there are, by name, and which of them a profile runs.

A name is a family and a number, as in `herd-20000`; any number will do.
"""

from collections.abc import Callable, Mapping, Sequence

from bench.scenarios.asked import Asked
from bench.scenarios.held import Held
from bench.scenarios.herd import Herd
from bench.scenarios.ordinary import Ordinary
from bench.scenarios.scenario import Scenario
from bench.scenarios.spread import Spread
from bench.scenarios.streams import Streams
from bench.scenarios.takeover import Takeover
from bench.scenarios.watched import Watched

STEADY_SECONDS = 60
BUSY_SCHEDULES = 2_000

FAMILIES: Mapping[str, Callable[[int], Scenario]] = {
    "spread": Spread,
    "steady": lambda rate: Spread(rate * STEADY_SECONDS, STEADY_SECONDS, family="steady", asked=rate),
    "busy": lambda rate: Spread(BUSY_SCHEDULES, others_per_second=rate, family="busy", asked=rate),
    "sampling": lambda count: Spread(count, sampling=True, family="sampling"),
    "herd": Herd,
    "repeating": lambda count: Herd(count, repeating=True),
    "held": Held,
    "asked": Asked,
    "watched": Watched,
    "ordinary": Ordinary,
    "takeover": Takeover,
    "streams-takeover": lambda count: Takeover(count, lead_seconds=4.0, family="streams-takeover", is_in_many=True),
    "streams": Streams,
}
"""What the number of a name is: of schedules, of messages, of either a second, or of streams."""

QUICK = ("spread-2000", "herd-1000", "herd-20000")
DEFAULT = (
    "spread-20",
    "spread-2000",
    "spread-20000",
    "herd-1000",
    "herd-20000",
    "herd-100000",
    "repeating-20000",
    "held-1000",
    "held-10000",
    "held-100000",
    "busy-20000",
    "sampling-2000",
    "takeover-2000",
    "streams-100",
    "streams-1000",
    "streams-takeover-1000",
)
FULL = (
    *DEFAULT,
    "steady-1000",
    "repeating-1000",
    "repeating-100000",
    "held-1000000",
    "asked-1000000",
    "watched-1000000",
    "ordinary-1000000",
)
PROFILES: Mapping[str, Sequence[str]] = {"quick": QUICK, "default": DEFAULT, "full": FULL}


class UnknownScenarioError(Exception):
    """No family has that name."""


def scenario(name: str) -> Scenario:
    """Return the scenario of a name."""
    family, _, number = name.rpartition("-")
    if family not in FAMILIES or not number.isdecimal() or int(number) == 0:
        raise UnknownScenarioError(f"{name!r} is no scenario; a family and a number, such as {', '.join(FULL)}")
    return FAMILIES[family](int(number))


def chosen(profile: Sequence[str], only: Sequence[str]) -> list[Scenario]:
    """Return the scenarios of a profile, or instead those that are named, alone or as a family of the full profile."""
    names = list(profile)
    if only:
        names = [found for name in only for found in ([name] if name not in FAMILIES else _family(name))]
    return [scenario(name) for name in dict.fromkeys(names)]


def _family(family: str) -> list[str]:
    return [name for name in FULL if name.rpartition("-")[0] == family]
