"""A schedule fires when the native scheduler would have fired it, and says the same of its next fire.

Sides store at different instants, so what is compared is the rule: fire times relative to the stored time.
"""

import asyncio
from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from nats_scheduler.engine.events import FiresMissed
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.identity import parse_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MINUTE, SECOND, round_to_second
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.differential.differences import Allowance, Differences
from tests.differential.fire_time_cases import CADENCES, INTERVALS, STEPS, WallClock, seconds, wall_clocks
from tests.differential.random_runs import RandomRun
from tests.differential.sides import AHEAD_SECONDS, ComparedSide, delete_on_each, fresh_name, on_each
from tests.harness.account import CLOCK
from tests.harness.servers import EMULATED_VERSIONS
from tests.harness.waiting import instant_reached

DRAWN = 60
"""The number of wall clock patterns that a run draws beside the fixed ones."""

FIRES = 3
"""The number of fires of a repeating schedule that are looked at."""

PLAYS = 3
"""The number of times that a repeating schedule is played, where a pause of the machine makes it miss fires."""


def next_of(fire: StoredMessage) -> str:
    """Return what a fire says of the next one."""
    return (header_value(fire.block, b"Nats-Schedule-Next") or b"").decode()


def instant(text: str) -> int:
    """Read an instant that a header holds."""
    found = parse_rfc3339(text)
    assert not isinstance(found, Invalid), text
    return found


def fire_time_of(fire: StoredMessage) -> int | None:
    """Return the fire time that a fire of ours names; a native one names none."""
    identity = parse_identity((header_value(fire.block, b"Nats-Msg-Id") or b"").decode())
    return None if identity is None else identity[2]


async def schedule(side: ComparedSide, name: str, rest: str, pattern: str, zone: str | None = None) -> int:
    """Store a schedule with a target of its own, and return when the server stored it."""
    headers = {"Nats-Schedule": pattern, "Nats-Schedule-Target": f"{name}.o.{rest}"}
    if zone is not None:
        headers["Nats-Schedule-Time-Zone"] = zone
    answer = await side.say(f"{name}.s.{rest}", headers)
    assert "error" not in answer, (pattern, zone, answer)
    stored = await side.account.api.message(name, seq=answer["seq"])
    assert stored is not None
    return stored.stored_at


async def has_missed_fires(side: ComparedSide, name: str, rest: str) -> bool:
    """Wait for the first fires, and return whether the sidecar made up for some: the machine was paused."""
    await side.account.wait_for(name, f"{name}.o.{rest}", FIRES)
    missed = [] if side.sidecar is None else side.sidecar.of(name, FiresMissed)
    return any(event.schedule == f"{name}.s.{rest}" for event in missed)


async def fires_of(side: ComparedSide, name: str, rest: str, count: int) -> list[StoredMessage]:
    """Wait for the first fires of a schedule; none was early, and each is what the one before foretold."""
    fires = (await side.account.wait_for(name, f"{name}.o.{rest}", count))[:count]
    for before, fire in pairwise(fires):
        foretold = instant(next_of(before))
        assert fire.stored_at >= foretold, f"{side.version} fired {rest} early"
        assert fire_time_of(fire) in (None, foretold)
    return fires


async def nexts_of(side: ComparedSide, name: str, rest: str, pattern: str, anchor: int | None = None) -> list[Fraction]:
    """Play a repeating schedule and return its fire times, from the second on, in seconds from where it started.

    It starts at the stored time: rounded to the second for an interval, and for a cron pattern that matches each
    `anchor` seconds the last match before.
    """
    for play in range(PLAYS):
        stored = await schedule(side, name, f"{rest}-{play}", pattern)
        if not await has_missed_fires(side, name, f"{rest}-{play}"):
            break
    start = round_to_second(stored) if anchor is None else stored // (anchor * SECOND) * anchor * SECOND
    fires = await fires_of(side, name, f"{rest}-{play}", FIRES)
    return [Fraction(instant(next_of(fire)) - start, SECOND) for fire in fires]


def is_what_was_written(wanted: tuple[str, list[Fraction]], value: tuple[str, list[Fraction]]) -> bool:
    """Return whether the server repeats a fractional interval at whole seconds, and the side does as it says."""
    interval, cadence = seconds(value[0]), CADENCES.get(value[0])
    if cadence is None:
        return False
    ours = [interval * (number + 2) for number in range(FIRES)]
    return value[1] == ours and {after - before for before, after in pairwise(wanted[1])} == {Fraction(cadence)}


@pytest.mark.clause("every-first")
@pytest.mark.clause("every-grid")
@pytest.mark.clause("every-fraction")
@pytest.mark.clause("generated-next")
async def test_an_interval_fires_on_the_same_grid(sides: list[ComparedSide]) -> None:
    name = fresh_name()

    async def play(side: ComparedSide) -> dict[str, list[Fraction]]:
        await side.create(name)
        nexts = await asyncio.gather(
            *(nexts_of(side, name, str(number), f"@every {text}") for number, text in enumerate(INTERVALS)),
            *(nexts_of(side, name, f"c{step}", f"*/{step} * * * * *", step) for step in STEPS),
        )
        await side.account.api.call(f"STREAM.DELETE.{name}")
        return dict(zip([*INTERVALS, *(f"*/{step}" for step in STEPS)], nexts, strict=True))

    played = await on_each(sides, play)
    differences = Differences((Allowance("every-fraction", EMULATED_VERSIONS, is_what_was_written),))
    for pattern in next(iter(played.values())):
        differences.compare(pattern, {version: (pattern, nexts[pattern]) for version, nexts in played.items()})
    differences.check(at_least=len(INTERVALS) + len(STEPS))


@pytest.mark.clause("cron-next")
@pytest.mark.clause("cron-zone")
async def test_a_cron_schedule_fires_and_names_the_same_next_time(sides: list[ComparedSide]) -> None:
    run = RandomRun("a_cron_schedule_names_the_same_next_time")
    cases = wall_clocks(run.draw, run.many(DRAWN))
    name, due = await published_in_time(sides, cases)

    async def play(side: ComparedSide) -> list[tuple[bool, str]]:
        told = await asyncio.gather(*(wall_clock(side, name, str(number), due) for number in range(len(cases))))
        await side.account.api.call(f"STREAM.DELETE.{name}")
        return told

    played = await on_each(sides, play)
    differences = Differences()
    for number, case in enumerate(cases):
        differences.compare(f"{case} at {due}", {version: told[number] for version, told in played.items()})
    differences.check(at_least=len(cases))


async def published_in_time(sides: list[ComparedSide], cases: list[WallClock]) -> tuple[str, int]:
    """Publish patterns that match at one time, before that time; return their stream, and the time (ns).

    Some match at the full minute too, which must not come before that time.
    """
    for seconds_ahead in AHEAD_SECONDS:
        if CLOCK.now() // SECOND % 60 + seconds_ahead >= 60:
            await instant_reached((CLOCK.now() // MINUTE + 1) * MINUTE, CLOCK.now)
        name, due = fresh_name(), (CLOCK.now() // SECOND + seconds_ahead) * SECOND

        async def publish(side: ComparedSide, name: str = name, due: int = due) -> int:
            await side.create(name)
            return max(await asyncio.gather(*(say(side, name, str(n), case, due) for n, case in enumerate(cases))))

        stored = await on_each(sides, publish)
        if max(stored.values()) < due:
            return name, due
        await delete_on_each(sides, name)
    pytest.fail(f"it took more than {AHEAD_SECONDS[-1]} s to publish the schedules")


async def say(side: ComparedSide, name: str, rest: str, case: WallClock, due: int) -> int:
    """Store a pattern that matches at a time (ns), and return when the server stored it."""
    local = datetime.fromtimestamp(due // SECOND, UTC if case.zone is None else ZoneInfo(case.zone))
    return await schedule(side, name, rest, case.at(local), case.zone)


async def wall_clock(side: ComparedSide, name: str, rest: str, due: int) -> tuple[bool, str]:
    """Return whether a pattern fired at its time, and when it fires next."""
    [fire] = await fires_of(side, name, rest, 1)
    return fire.stored_at >= due and fire_time_of(fire) in (None, due), next_of(fire)


@pytest.mark.clause("pattern-alias")
async def test_every_alias_is_taken(sides: list[ComparedSide]) -> None:
    aliases = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
    name = fresh_name()

    async def play(side: ComparedSide) -> list[str]:
        await side.create(name)
        for alias in aliases:
            for zone in (None, "Asia/Tokyo"):
                await schedule(side, name, f"{alias[1:]}{zone}".replace("/", "-"), alias, zone)
        held = [subject async for subject in side.account.api.subjects(name, f"{name}.s.*")]
        await side.account.api.call(f"STREAM.DELETE.{name}")
        return sorted(held)

    differences = Differences()
    differences.compare("aliases", await on_each(sides, play))
    differences.check()
