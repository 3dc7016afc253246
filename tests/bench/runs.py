"""The results of a run: each figure of each side in each scenario, and how they are saved.

A file holds several runs, and a run is made in as many pieces as one likes: what is measured on the same machine, on
the same day and with the same draws is the same run.
"""

import json
import os
import platform
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.sides import KINDS

CONDITIONS = ("date", "machine", "seed", "servers")
"""What the pieces of a run have in common."""


def machine() -> str:
    """Return the machine in a few words."""
    gigabytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1_000_000_000
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    parts = [f"{os.cpu_count()} cores", *([model] if model else []), f"{gigabytes:.0f} GB"]
    kernel = f"{platform.system()} {platform.release()} {platform.machine()}"
    return ", ".join([*parts, kernel, f"Python {platform.python_version()}"])


def today() -> str:
    """Return the date."""
    return datetime.now(UTC).date().isoformat()


@dataclass
class Run:
    """One run of the benchmark."""

    date: str = field(default_factory=today)
    machine: str = field(default_factory=machine)
    scenarios: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    """The figures by the names of scenario, side and measure."""
    load_before: float = field(default_factory=lambda: round(os.getloadavg()[0], 1))
    """The machine's load average before the run: figures from a busy machine mean little."""
    seed: int = field(default_factory=lambda: int(today().replace("-", "")))
    """What the times at which the load is due are drawn by; other ones each day, if none is given."""
    servers: dict[str, str] = field(default_factory=lambda: {kind.name: kind.server for kind in KINDS})
    """The version of the server of each side."""

    def add(self, scenario: str, side: str, found: dict[str, float]) -> None:
        """Keep what was found, to four decimals, in place of what was found before."""
        rounded = {name: round(value, 4) for name, value in found.items()}
        self.scenarios.setdefault(scenario, {})[side] = rounded

    def save(self, path: Path) -> None:
        """Add it to a file: to the last run in it, if this is a piece of that one."""
        runs = read_runs(path) if path.exists() else []
        if runs and all(getattr(runs[-1], name) == getattr(self, name) for name in CONDITIONS):
            for scenario, sides in self.scenarios.items():
                runs[-1].scenarios[scenario] = runs[-1].scenarios.get(scenario, {}) | sides
            runs[-1].load_before = max(runs[-1].load_before, self.load_before)
        else:
            runs.append(self)
        path.write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n", encoding="utf-8")


def read_runs(path: Path) -> list[Run]:
    """Read the runs that a file holds, the last one at the end."""
    return [Run(**{one.name: saved[one.name] for one in fields(Run)}) for saved in json.loads(path.read_bytes())]
