"""The figures of the page are those of the saved runs, and several runs are ranges."""

import re

from tests.bench.curve import drawn
from tests.bench.measures import CPU_FIRE, P99
from tests.bench.page import PAGE, PICTURE, RUNS, derived_parts, page_with
from tests.bench.runs import Run, read_runs


def test_the_page_has_what_the_saved_runs_found() -> None:
    runs = read_runs(RUNS)
    parts = derived_parts(runs)
    assert PAGE.read_text(encoding="utf-8") == page_with(parts), "python -m tests.bench.page"
    assert PICTURE.read_text(encoding="utf-8") == drawn(runs), "python -m tests.bench.page"
    assert re.findall("derived: begin (\\w+)", PAGE.read_text(encoding="utf-8")) == [*parts]


def test_several_machines_are_ranges_and_each_is_named() -> None:
    runs = [Run("2026-01-01", machine, load_before=0.1, seed=7) for machine in ("one, 8 GB", "two, 16 GB")]
    for run, cpu in zip(runs, (400.0, 800.0), strict=True):
        figures = {CPU_FIRE.sum.name: cpu, CPU_FIRE.kernel.name: 100.0, P99.name: 2.0}
        run.add("spread-2000", {"native": {CPU_FIRE.sum.name: 40.0}, "emulated": figures})
    parts = derived_parts(runs)
    assert [line.partition(", ")[0] for line in parts["conditions"].splitlines()] == [
        "- 2026-01-01: one",
        "- 2026-01-01: two",
    ]
    assert "nats-server 2.15.1 for native, 2.11.11 for emulated" in parts["conditions"]
    assert "| 2,000 over 10 s | – | 2.00 ms |" in parts["lateness"]
    assert "| 40.0 µs | – | 400.0 to 800.0 µs | 100.0 µs | – | – | 10.00 to 20.00 |" in parts["cpu"]
    assert "| 40.0 µs | 400.0 to 800.0 µs | 10.00 to 20.00 | ≤ 12 × native | not met |" in parts["aims"]
    assert parts["aims"].startswith("1 of 2 aims that were measured are met.")
