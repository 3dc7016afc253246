"""The results of a run: each figure of each side in each scenario, once for each repeat; and how they are saved.

A file holds several runs, and a run is made in as many pieces as one likes: what is measured on the same machine, on
the same day and with the same draws is the same run.
The rule: sides are compared within one repeat, in which they did the same work one after another on the same machine.
The ratio of a measure is the median of those ratios, its spread their range: that is the noise.
"""

import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from statistics import median

from tests.bench.sides import KINDS, base_of

Repeat = dict[str, dict[str, float]]
"""The figures of each side, by the names of side and measure."""

Key = tuple[str, str, str]
"""Scenario, measure and side."""


@dataclass(frozen=True)
class Ratio:
    """The ratio of a side to the one that it is compared with, over the repeats; or any figure over them."""

    median: float
    least: float
    most: float


def machine() -> str:
    """Return the machine in a few words."""
    gigabytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1_000_000_000
    model = _processor()
    parts = [f"{os.cpu_count()} cores", *([model] if model else []), f"{gigabytes:.0f} GB"]
    kernel = f"{platform.system()} {platform.release()} {platform.machine()}"
    return ", ".join([*parts, kernel, f"Python {platform.python_version()}"])


def _processor() -> str:
    """Return the processor's model as the kernel names it, "" if it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def today() -> str:
    """Return the date."""
    return datetime.now(UTC).date().isoformat()


def range_of(found: Sequence[float]) -> Ratio | None:
    """Return median and range of what the repeats found, None if they found nothing."""
    return Ratio(median(found), min(found), max(found)) if found else None


def load_average() -> float:
    """Return the load average over the last minute, which shows other work on the machine."""
    return round(os.getloadavg()[0], 1)


@dataclass
class Run:
    """One run of the benchmark."""

    date: str = field(default_factory=today)
    machine: str = field(default_factory=machine)
    scenarios: dict[str, list[Repeat]] = field(default_factory=dict)
    load_before: float = field(default_factory=load_average)
    """The machine's load average before the run: figures from a busy machine mean little."""
    seed: int = field(default_factory=lambda: int(today().replace("-", "")))
    """What the times at which the load is due are drawn by; other ones each day, if none is given."""
    servers: dict[str, str] = field(default_factory=lambda: {kind.name: kind.server for kind in KINDS})
    """The version of the server of each side."""

    def add(self, scenario: str, repeat: Repeat) -> None:
        """Keep what one repeat of a scenario found, to four decimals."""
        rounded = {side: {name: round(value, 4) for name, value in found.items()} for side, found in repeat.items()}
        self.scenarios.setdefault(scenario, []).append(rounded)

    def take(self, piece: "Run") -> None:
        """Take what another piece of this run measured, in place of what is known of the same scenario and side."""
        for scenario, repeats in piece.scenarios.items():
            anew = {side for repeat in repeats for side in repeat}
            known = [
                {side: found for side, found in repeat.items() if side not in anew}
                for repeat in self.scenarios.get(scenario, [])
            ]
            self.scenarios[scenario] = [old | new for old, new in zip_longest(known, repeats, fillvalue=Repeat())]
        self.load_before = max(self.load_before, piece.load_before)

    def values(self, scenario: str, measure: str, side: str) -> list[float]:
        """Return the figure of each repeat."""
        repeats = self.scenarios.get(scenario, [])
        return [repeat[side][measure] for repeat in repeats if measure in repeat.get(side, {})]

    def value(self, scenario: str, measure: str, side: str) -> float | None:
        """Return the median figure, None if it was not measured."""
        found = self.values(scenario, measure, side)
        return median(found) if found else None

    def ratio(self, scenario: str, measure: str, side: str) -> Ratio | None:
        """Return the ratio to the side that it is compared with, None if one of them was not measured."""
        found = []
        for repeat in self.scenarios.get(scenario, []):
            base = repeat.get(base_of(side), {}).get(measure)
            value = repeat.get(side, {}).get(measure)
            if base and base > 0 and value is not None:
                found.append(value / base)
        return range_of(found)

    def entries(self) -> Iterator[Key]:
        """Yield what was measured, in the order of the run."""
        for scenario, repeats in self.scenarios.items():
            seen = {(measure, side): None for repeat in repeats for side, found in repeat.items() for measure in found}
            yield from ((scenario, measure, side) for measure, side in seen)

    def save(self, path: Path) -> None:
        """Add it to a file: to the last run in it, if this is a piece of that one."""
        runs = read_runs(path) if path.exists() else []
        if runs and all(getattr(runs[-1], name) == getattr(self, name) for name in CONDITIONS):
            runs[-1].take(self)
        else:
            runs.append(self)
        path.write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n", encoding="utf-8")


CONDITIONS = ("date", "machine", "seed", "servers")
"""What the pieces of a run have in common."""


def read_runs(path: Path) -> list[Run]:
    """Read the runs that a file holds, the last one at the end; raises `ValueError` if it holds something else."""
    try:
        runs = [Run(**{one.name: saved[one.name] for one in fields(Run)}) for saved in json.loads(path.read_bytes())]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no saved run") from error
    if not runs:
        raise ValueError(f"{path} holds no saved run")
    return runs
