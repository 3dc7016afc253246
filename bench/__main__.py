"""`python -m bench`: lateness of spread schedules and herds due at one instant, native against sidecar, in one run.

Lateness is the stored message's own timestamp less the due time of its schedule; nothing is measured in between.
"""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from bench.load import at_patterns, generated, schedule_number, store
from bench.sides import EMULATED, NATIVE, PORTABLE, STREAM, Kind, Side, running
from nats_scheduler.cli.output import print_table

MILLISECOND = 1_000_000
SECOND = 1_000_000_000
CACHE = Path(__file__).parent.parent / ".cache" / "nats-server"


@dataclass(frozen=True)
class Result:
    """What one side did in one scenario: milliseconds."""

    scenario: str
    side: str
    loading_per_second: float
    p50: float
    p99: float
    last: float


async def spread(side: Side, count: int, seconds: float) -> Result:
    """Store `count` schedules due evenly over `seconds`, and measure each fire."""
    lead = int((1.5 + count / 15_000) * SECOND)
    begin = time.time_ns() + lead
    dues = [begin + int(number * seconds * SECOND / count) for number in range(count)]
    return await _measure(side, f"{count:,} spread over {seconds:g} s", dues)


async def herd(side: Side, count: int) -> Result:
    """Store `count` schedules due at one instant, and measure until the last is stored."""
    due = (time.time_ns() // SECOND + 3 + count // 10_000) * SECOND
    return await _measure(side, f"herd of {count:,}", [due] * count)


async def _measure(side: Side, name: str, dues: Sequence[int]) -> Result:
    started = time.perf_counter()
    await store(side.connection, STREAM, at_patterns(dues), side.kind.prefix)
    loading = len(dues) / (time.perf_counter() - started)
    if time.time_ns() > dues[0]:
        raise click.ClickException(f"{name}: the schedules were due before all were stored; this machine is too slow")
    await side.wait_for(len(dues), within_seconds=120)
    fired = await generated(side.connection, side.api, STREAM)
    late = sorted((message.stored_at - dues[schedule_number(message)]) / MILLISECOND for message in fired)
    if len(late) != len(dues) or late[0] < 0:
        raise click.ClickException(f"{name}: {len(late)} fires of {len(dues)}, the earliest {late[0]} ms late")
    return Result(name, side.kind.name, loading, late[len(late) // 2], late[int(len(late) * 0.99)], late[-1])


async def run(kinds: Sequence[Kind], spreads: Sequence[int], herds: Sequence[int]) -> list[Result]:
    """Run every scenario on every side, each on a fresh server."""
    results = []
    for scenario, count in [*(("spread", n) for n in spreads), *(("herd", n) for n in herds)]:
        for kind in kinds:
            with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                async with running(kind, Path(folder), CACHE) as side:
                    done = await (spread(side, count, 10.0) if scenario == "spread" else herd(side, count))
                    click.echo(f"{done.scenario} {done.side}: p50 {done.p50:.2f} p99 {done.p99:.2f} ms", err=True)
                    results.append(done)
    return results


@click.command()
@click.option("--spread", "spreads", multiple=True, type=int, default=(20, 2_000), show_default=True)
@click.option("--herd", "herds", multiple=True, type=int, default=(1_000, 20_000), show_default=True)
@click.option("--side", "sides", multiple=True, type=click.Choice(["native", "emulated", "portable"]))
def main(spreads: Sequence[int], herds: Sequence[int], sides: Sequence[str]) -> None:
    """Measure the sidecar beside the native scheduler and print the ratios."""
    kinds = [kind for kind in (NATIVE, EMULATED, PORTABLE) if not sides or kind.name in sides]
    results = asyncio.run(run(kinds, spreads, herds))
    native = {result.scenario: result for result in results if result.side == "native"}
    rows = []
    for result in results:
        base = native.get(result.scenario)
        ratios = ["", ""] if base is None else [f"{result.p99 / base.p99:.3f}", f"{result.last / base.last:.3f}"]
        figures = [f"{value:,.2f}" for value in (result.p50, result.p99, result.last)]
        rows.append([result.scenario, result.side, f"{result.loading_per_second:,.0f}", *figures, *ratios])
    print_table(["scenario", "side", "loaded/s", "p50 ms", "p99 ms", "last ms", "p99 ratio", "last ratio"], rows)


if __name__ == "__main__":
    main()
