"""The results of a run: each figure of each side in each scenario, once for each repeat; and how they are saved.

The rule: sides are compared within one repeat, in which they did the same work one after another on the same machine.
The ratio of a measure is the median of those ratios, its spread their range: that is the noise.
"""

import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from random import randrange
from statistics import median

from tests.bench.sides import NATIVE

Repeat = dict[str, dict[str, float]]
"""The figures of each side, by the names of side and measure."""

Key = tuple[str, str, str]
"""Scenario, measure and side."""


@dataclass(frozen=True)
class Ratio:
    """The ratio of a side to the native one, over the repeats; or any figure over them."""

    median: float
    least: float
    most: float


def machine() -> str:
    """Return the machine in a few words."""
    gigabytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1_000_000_000
    model = _processor()
    parts = [f"{os.cpu_count()} cores", *([model] if model else []), f"{gigabytes:.0f} GB"]
    return ", ".join([*parts, f"{platform.system()} {platform.machine()}", f"Python {platform.python_version()}"])


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
    seed: int = field(default_factory=lambda: randrange(1_000_000))
    """What the times at which the load is due are drawn by."""

    def add(self, scenario: str, repeat: Repeat) -> None:
        """Keep what one repeat of a scenario found."""
        self.scenarios.setdefault(scenario, []).append(repeat)

    def values(self, scenario: str, measure: str, side: str) -> list[float]:
        """Return the figure of each repeat."""
        repeats = self.scenarios.get(scenario, [])
        return [repeat[side][measure] for repeat in repeats if measure in repeat.get(side, {})]

    def value(self, scenario: str, measure: str, side: str) -> float | None:
        """Return the median figure, None if it was not measured."""
        found = self.values(scenario, measure, side)
        return median(found) if found else None

    def ratio(self, scenario: str, measure: str, side: str) -> Ratio | None:
        """Return the ratio to the native side, None if one of them was not measured."""
        found = []
        for repeat in self.scenarios.get(scenario, []):
            base = repeat.get(NATIVE.name, {}).get(measure)
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
        """Write it to a file."""
        document = asdict(self)
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Run":
        """Read a saved run; raises `ValueError` if the file holds something else."""
        document = json.loads(path.read_text(encoding="utf-8"))
        try:
            return cls(**{one.name: document[one.name] for one in fields(cls)})
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} holds no saved run") from error
