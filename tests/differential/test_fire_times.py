"""A pattern is accepted or refused alike, a schedule fires when the native scheduler would have fired it, and says the
same of its next fire.

Sides store at different instants, so of intervals the rule is compared: fire times relative to the stored time.
A cron pattern is written such that it fires a few seconds from now, in its own zone, whatever else it means: the search
for the fire after that one is what is compared, as `Nats-Schedule-Next` names it.
"""

import asyncio
from collections.abc import Iterator
from datetime import datetime
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest

from nats_scheduler.engine.events import FiresMissed
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.identity import parse_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MINUTE, SECOND, round_to_second
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.differential.differences import Allowance, Differences
from tests.differential.header_cases import Case
from tests.differential.language_cases import (
    TEMPLATES,
    ZONES,
    is_costly,
    random_pattern,
    random_zone,
    written_at,
)
from tests.differential.sides import AHEAD_SECONDS, ComparedSide, fresh_name, on_each
from tests.differential.test_validation import compare
from tests.harness.account import CLOCK
from tests.harness.leads import OvertakenError, with_more_time
from tests.harness.log_lines import capture_logs
from tests.harness.seeds import draws, generator
from tests.harness.servers import EMULATED_VERSIONS
from tests.harness.waiting import instant_reached

INTERVALS = ("1s", "2s", "3s", "1s1s", "2000ms", "1.4s", "2.5s", "1.5s", "1500000µs")
REPEATING = (*(f"@every {text}" for text in INTERVALS), *(f"*/{step} * * * * *" for step in (1, 2, 3)))

CADENCES = {"@every 1.4s": 1, "@every 2.5s": 3, "@every 1.5s": 2, "@every 1500000µs": 2}
"""The seconds at which a native scheduler repeats an interval that is not whole."""

LENGTHS = {"1s1s": "2", "2000ms": "2", "1500000µs": "1.5"}
"""The seconds of an interval that is not written in them."""

FIRES = 3
"""The number of fires of a repeating schedule that are looked at."""

PLAYS = 3
"""The number of times that a repeating schedule is played, where a pause of the machine makes it miss fires."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Keep a line for each schedule out of the report of a failure."""
    with capture_logs():
        yield


def next_of(fire: StoredMessage) -> int:
    """Return what a fire says of the next one (ns)."""
    text = (header_value(fire.block, b"Nats-Schedule-Next") or b"").decode()
    found = parse_rfc3339(text)
    assert isinstance(found, int), text
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
        foretold = next_of(before)
        assert fire.stored_at >= foretold, f"{side.version} fired {rest} early"
        assert fire_time_of(fire) in (None, foretold)
    return fires


async def nexts_of(side: ComparedSide, name: str, rest: str, pattern: str) -> list[Fraction]:
    """Play a repeating schedule and return its fire times, from the second on, in seconds from where it started.

    It starts at the stored time: rounded to the second for an interval, and for a cron pattern the last match before.
    """
    is_cron, length = not pattern.startswith("@every"), length_of(pattern)
    for play in range(PLAYS):
        stored = await schedule(side, name, f"{rest}-{play}", pattern)
        await instant_reached(stored + int(FIRES * length * SECOND), CLOCK.now)
        if not await has_missed_fires(side, name, f"{rest}-{play}"):
            break
    start = stored // int(length * SECOND) * int(length * SECOND) if is_cron else round_to_second(stored)
    fires = await fires_of(side, name, f"{rest}-{play}", FIRES)
    return [Fraction(next_of(fire) - start, SECOND) for fire in fires]


def length_of(pattern: str) -> Fraction:
    """Return the seconds between two fires of one of the repeating patterns."""
    written = pattern.removeprefix("@every ").removeprefix("*/").removesuffix(" * * * * *")
    return Fraction(LENGTHS.get(written, written.rstrip("s")))


def is_what_was_written(wanted: tuple[str, list[Fraction]], value: tuple[str, list[Fraction]]) -> bool:
    """Return whether the server repeats a fractional interval at whole seconds, and the side does as it says."""
    ours = [length_of(value[0]) * (number + 2) for number in range(FIRES)]
    return value[1] == ours and {after - before for before, after in pairwise(wanted[1])} == {CADENCES.get(value[0])}


@pytest.mark.clause("every-first", "every-grid", "every-fraction", "generated-next", "pattern-every")
async def test_an_interval_fires_on_the_same_grid(sides: list[ComparedSide]) -> None:
    name = fresh_name()

    async def play(side: ComparedSide) -> dict[str, list[Fraction]]:
        await side.create(name)
        plays = (nexts_of(side, name, str(number), pattern) for number, pattern in enumerate(REPEATING))
        return dict(zip(REPEATING, await asyncio.gather(*plays), strict=True))

    played = await on_each(sides, play)
    differences = Differences((Allowance("every-fraction", EMULATED_VERSIONS, is_what_was_written),))
    for pattern in REPEATING:
        differences.compare(pattern, {version: (pattern, nexts[pattern]) for version, nexts in played.items()})
    differences.check(at_least=len(REPEATING))


# -- cron patterns ---------------------------------------------------------------------------------------------------


class Soon(NamedTuple):
    """A pattern in a zone that fires first at an instant (ns)."""

    text: str
    zone: str
    first: int


@pytest.mark.clause("cron-next", "cron-zone", "pattern-cron", "time-zone")
async def test_a_cron_schedule_fires_and_names_the_same_next_time(sides: list[ComparedSide]) -> None:
    name, cases = await with_more_time(partial(published, sides), AHEAD_SECONDS)

    async def play(side: ComparedSide) -> list[int]:
        await instant_reached(cases[0].first, CLOCK.now)
        return list(await asyncio.gather(*(next_fire(side, name, str(n), case) for n, case in enumerate(cases))))

    nexts = await on_each(sides, play)
    differences = Differences()
    for number, case in enumerate(cases):
        differences.compare(str(case), {version: found[number] for version, found in nexts.items()})
    differences.check(at_least=len(cases))


async def published(sides: list[ComparedSide], seconds_ahead: float) -> tuple[str, list[Soon]]:
    """Publish patterns that match at one time, before that time; return their stream, and what they are.

    Some match at the full minute too, which must not come before that time.
    """
    if CLOCK.now() // SECOND % 60 + seconds_ahead >= 60:
        await instant_reached((CLOCK.now() // MINUTE + 1) * MINUTE, CLOCK.now)
    name, first = fresh_name(), CLOCK.now() // SECOND + int(seconds_ahead)
    walls = {zone: datetime.fromtimestamp(first, ZoneInfo(zone)) for zone in ZONES}
    cases = [Soon(written_at(one, wall), zone, first * SECOND) for zone, wall in walls.items() for one in TEMPLATES]

    async def publish(side: ComparedSide) -> int:
        await side.create(name)
        said = (schedule(side, name, str(n), case.text, case.zone) for n, case in enumerate(cases))
        return max(await asyncio.gather(*said))

    stored = await on_each(sides, publish)
    if max(stored.values()) >= first * SECOND:
        raise OvertakenError
    return name, cases


async def next_fire(side: ComparedSide, name: str, rest: str, case: Soon) -> int:
    """Wait for the first fire of a pattern, which has to come at its time, and return the next one that it names."""
    [fire] = await fires_of(side, name, rest, 1)
    assert fire.stored_at >= case.first
    assert fire_time_of(fire) in (None, case.first)
    return next_of(fire)


@pytest.mark.clause("pattern-at", "pattern-every", "pattern-alias", "pattern-cron", "time-zone")
async def test_random_patterns_and_zones_are_accepted_or_refused_alike(sides: list[ComparedSide]) -> None:
    draw, cases = generator("language"), list[Case]()
    while len(cases) < draws(400):
        pattern = random_pattern(draw)
        zone = (f"Nats-Schedule-Time-Zone: {random_zone(draw)}",) if draw.random() < 0.4 else ()
        if not is_costly(pattern):
            cases.append(Case("full", (f"Nats-Schedule: {pattern}", "Nats-Schedule-Target: {n}.due", *zone)))
    differences = Differences()
    await compare(sides, cases, differences)
    differences.check(at_least=len(cases))
