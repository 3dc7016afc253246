"""The picture of what a fire costs over the lateness budget, beside the native scheduler: `tests.bench.page` writes it.

The rule: what is drawn is the median of what the runs found in `budget` scenarios. The native scheduler has no budget:
its line is the median of all of them.
Cost: some milliseconds. Limit: the axes fit budgets of 1 ms to 1 s.
"""

from collections.abc import Sequence
from math import log10
from statistics import median

from tests.bench.measures import CPU_FIRE
from tests.bench.runs import Run
from tests.bench.sides import EMULATED, NATIVE

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 320, 64, 20, 24, 56
FAMILY = "budget-"

Points = Sequence[tuple[int, float]]
"""Budgets (ms), and the CPU of a fire (µs) of both processes together."""


def points(runs: Sequence[Run], side: str) -> Points:
    """Return what runs found of a side, by the budget."""
    found: dict[int, list[float]] = {}
    for run in runs:
        for scenario in run.scenarios:
            budget = scenario.removeprefix(FAMILY)
            if budget.isdecimal():
                found.setdefault(int(budget), []).extend(run.values(scenario, CPU_FIRE.sum.name, side))
    return sorted((budget, median(values)) for budget, values in found.items() if values)


def drawn(runs: Sequence[Run]) -> str:
    """Return the picture as SVG; raises `ValueError` if the runs have no `budget` scenario of both sides."""
    sidecar = points(runs, EMULATED.name)
    if len(sidecar) < 2 or not points(runs, NATIVE.name):
        raise ValueError("the runs have no budgets of both sides: two scenarios such as budget-5 and budget-250")
    base = median(value for _budget, value in points(runs, NATIVE.name))
    native = [(budget, base) for budget in (sidecar[0][0], sidecar[-1][0])]
    most = max(value for _budget, value in [*sidecar, *native]) * 1.1
    step = 10 ** int(log10(most)) / (2 if most < 5 * 10 ** int(log10(most)) else 1)
    label = f"CPU of a fire over the lateness budget, {runs[-1].date}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for number in range(int(most / step) + 1):
        y = _y(number * step, most)
        lines.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#d8dee4"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{number * step:.0f}</text>')
    for budget, _value in sidecar:
        x = _x(budget)
        lines.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{budget}</text>')
    for name, colour, anchor, found in (
        ("sidecar and server", "#0969da", "start", sidecar),
        ("native scheduler", "#bc4c00", "end", native),
    ):
        path = "L".join(f"{_x(budget):.1f} {_y(value, most):.1f}" for budget, value in found)
        lines.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x, y = _x(found[1][0]), _y(found[1][1], most) - 10  # the first point may be at the edge
        lines.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{name}</text>')
    for budget, value in sidecar:
        lines.append(f'<circle cx="{_x(budget):.1f}" cy="{_y(value, most):.1f}" r="3" fill="#0969da"/>')
    lines.append(
        f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">lateness budget, ms</text>'
    )
    lines.append(f'<text x="{LEFT}" y="16">CPU of a fire, µs, at 200 fires a second</text>')
    return "\n".join([*lines, "</svg>", ""])


def _x(budget: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * log10(budget) / 3


def _y(value: float, most: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / most
