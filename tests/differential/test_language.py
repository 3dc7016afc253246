"""A pattern that is drawn at random is accepted or refused alike, and its next fire is the same instant.

A server says when a schedule fires next in the message that it generates (`Nats-Schedule-Next`).
So every pattern is drawn such that it fires a few seconds from now, in its own zone, whatever else it means: the search
for the fire after that one is what is compared.
Where a native server answers what its own pattern does not say, the meaning of what was drawn is the judge.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND, SECONDS_PER_DAY, round_to_second
from nats_scheduler.schedule.patterns import Cron, parse_pattern
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.differential.differences import Allowance, Differences
from tests.differential.header_cases import Case
from tests.differential.language_cases import ZONES, firing_at, is_costly, random_pattern, random_zone
from tests.differential.random_runs import RandomRun
from tests.differential.sides import AHEAD_SECONDS, ComparedSide, delete_on_each, fresh_name, on_each
from tests.differential.test_validation import compare
from tests.harness.account import CLOCK, WAIT_SECONDS
from tests.harness.blocks import block_to_send
from tests.harness.log_lines import capture_logs
from tests.harness.servers import EMULATED_VERSIONS
from tests.harness.waiting import eventually
from tests.schedule.oracle import Meaning, wall_at
from tests.schedule.test_zones import standard

AT_ONCE = 400
"""Patterns said to a stream; many of them fire each second until the stream is deleted."""

HOST_ZONES = Path("/usr/share/zoneinfo")
YEARS = 6
"""So far ahead the next fire may be."""

pytestmark = [pytest.mark.clause("pattern-cron"), pytest.mark.clause("time-zone")]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Keep a line for each schedule out of the report of a failure."""
    with capture_logs():
        yield


@dataclass(frozen=True)
class Soon:
    """A pattern in a zone, and the instant (ns) at which it fires first."""

    meaning: Meaning
    zone: str | None
    first: int

    def matches(self, instant: int) -> bool:
        """Say whether the wall clock of the zone matches at an instant."""
        at_a_second = instant % SECOND == 0
        return at_a_second and self.meaning.matches(wall_at(instant // SECOND, standard(self.zone or "UTC")))

    def headers(self, target: str) -> dict[str, str]:
        """Write the headers of a schedule."""
        zone = {} if self.zone is None else {"Nats-Schedule-Time-Zone": self.zone}
        return {"Nats-Schedule": self.meaning.text, "Nats-Schedule-Target": target, **zone}


@pytest.mark.clause("pattern-at")
@pytest.mark.clause("pattern-every")
@pytest.mark.clause("pattern-alias")
async def test_random_patterns_and_zones_are_accepted_or_refused_alike(sides: list[ComparedSide]) -> None:
    run = RandomRun("language")
    differences = Differences()
    for _ in range(run.many(1)):
        await compare(sides, _random_cases(run, AT_ONCE), differences)
    differences.check(at_least=run.many(AT_ONCE))


def _random_cases(run: RandomRun, count: int) -> list[Case]:
    """Draw schedules with any pattern, some with any zone."""
    cases: list[Case] = []
    while len(cases) < count:
        pattern = random_pattern(run.draw)
        zone = (f"Nats-Schedule-Time-Zone: {random_zone(run.draw)}",) if run.draw.random() < 0.4 else ()
        if not is_costly(pattern):
            cases.append(Case("full", (f"Nats-Schedule: {pattern}", "Nats-Schedule-Target: {n}.due", *zone)))
    return cases


async def test_the_next_fire_of_random_patterns_is_the_same_instant(sides: list[ComparedSide]) -> None:
    run = RandomRun("next fire")
    await asyncio.to_thread(zones_known_alike)  # it takes seconds, and a sidecar of this process must not be paused
    name, cases = await _published_in_time(sides, run)

    async def stamped(side: ComparedSide) -> list[str]:
        return list(await asyncio.gather(*(_next_of(side, name, f"{name}.t{i}", case) for i, case in enumerate(cases))))

    by_version = await on_each(sides, stamped)
    differences = Differences()
    for number, case in enumerate(cases):
        values = {version: texts[number] for version, texts in by_version.items()}
        ours = values[EMULATED_VERSIONS[0]]
        _judge(differences, case, values, ours)
    await delete_on_each(sides, name)
    differences.check(at_least=run.many(150))


async def _published_in_time(sides: list[ComparedSide], run: RandomRun) -> tuple[str, list[Soon]]:
    """Publish schedules on each side before the first of them fires; return their stream, and what they are."""
    for seconds in AHEAD_SECONDS:
        name = fresh_name()
        await asyncio.gather(*(side.create(name) for side in sides))
        first = (CLOCK.now() // SECOND + seconds) * SECOND
        cases = [soon for soon in (_soon(run, first) for _ in range(run.many(200))) if soon is not None]
        blocks = [block_to_send(case.headers(f"{name}.t{number}")) for number, case in enumerate(cases)]

        async def publish(side: ComparedSide, name: str = name, blocks: Sequence[bytes] = blocks) -> None:
            answers = await asyncio.gather(*(side.say(f"{name}.s{i}", block) for i, block in enumerate(blocks)))
            assert not [answer for answer in answers if "error" in answer]

        await on_each(sides, publish)
        if CLOCK.now() < first:
            return name, cases
        await delete_on_each(sides, name)
    pytest.fail(f"it took more than {AHEAD_SECONDS[-1]} s to publish the schedules")


def _soon(run: RandomRun, first: int) -> Soon | None:
    """Draw a pattern whose first fire is `first`; None where it has no second one within the horizon."""
    zone = run.draw.choice([None, *zones_known_alike()])
    meaning = firing_at(run.draw, wall_at(first // SECOND, standard(zone or "UTC")))
    pattern = parse_pattern(meaning.text, zone)
    assert isinstance(pattern, Cron), (meaning.text, zone, pattern)
    return None if pattern.next_fire(first, 0) is None else Soon(meaning, zone, first)


@cache
def zones_known_alike() -> list[str]:
    """List the zones of which the host's files, which servers read, say what the package's files say.

    Governments change their minds more often than hosts are updated.
    """
    start = CLOCK.now() // SECOND
    weeks = range(start, start + YEARS * 366 * SECONDS_PER_DAY, 7 * SECONDS_PER_DAY)
    return [name for name in ZONES if _is_known_alike(name, weeks)]


def _is_known_alike(name: str, seconds: range) -> bool:
    try:
        host = (HOST_ZONES / name).open("rb")
    except OSError:
        return False
    with host:
        known = ZoneInfo.from_file(host)
    return all(wall_at(second, known) == wall_at(second, standard(name)) for second in seconds)


def _judge(differences: Differences, case: Soon, values: dict[str, str], ours: str) -> None:
    """Compare the instants; where a native server passes over a match, or names none, what was drawn is right."""
    text = f"{case.meaning.text!r} in {case.zone} after {case.first}"
    fire = _instant(ours)
    if fire <= case.first or not case.matches(fire):
        differences.note(text, f"{ours} does not match what was drawn")
    for version, theirs in values.items():
        if version not in EMULATED_VERSIONS and theirs != ours:
            passed_over = _instant(theirs) > fire or not case.matches(_instant(theirs))
            values = {**values, version: ours} if passed_over else values
    differences.compare(text, values)


async def _next_of(side: ComparedSide, stream: str, target: str, case: object) -> str:
    """Wait for the first generated message on a target and return the next fire that it names."""

    async def stored() -> StoredMessage | None:
        return await side.account.api.message(stream, seq=1, next_by_subj=target)

    message = await eventually(stored, within_seconds=WAIT_SECONDS, describe=f"a fire of {case} ({side.version})")
    return (header_value(message.block, b"Nats-Schedule-Next") or b"").decode()


def _instant(text: str) -> int:
    instant = parse_rfc3339(text)
    assert isinstance(instant, int), text
    return instant


@pytest.mark.clause("pattern-every")
async def test_an_interval_is_counted_from_the_second_in_which_the_schedule_was_stored(
    sides: list[ComparedSide],
) -> None:
    name = fresh_name()
    await asyncio.gather(*(side.create(name) for side in sides))
    intervals = ("2s", "3s", "2000ms", "1.5s", "2.5s")

    async def steps(side: ComparedSide) -> list[int]:
        return list(await asyncio.gather(*(_second_fire(side, name, interval) for interval in intervals)))

    by_version = await on_each(sides, steps)
    rounded = Allowance(
        "pattern-every", EMULATED_VERSIONS, lambda wanted, given: given % 1000 == 0 and wanted - given == 500
    )
    differences = Differences((rounded,))
    for number, interval in enumerate(intervals):
        values = {version: found[number] for version, found in by_version.items()}
        differences.compare(f"@every {interval}, ms to the second fire", values)
    await delete_on_each(sides, name)
    differences.check(at_least=len(intervals))


async def _second_fire(side: ComparedSide, name: str, interval: str) -> int:
    """Return how long after the second in which it was stored a schedule fires for the second time (ms)."""
    target = f"{name}.every.{interval.replace('.', '-')}"
    headers = {"Nats-Schedule": f"@every {interval}", "Nats-Schedule-Target": target}
    answer = await side.say(f"{target}.schedule", headers)
    schedule = await side.account.api.message(name, seq=answer["seq"])
    assert schedule is not None
    second = _instant(await _next_of(side, name, target, interval))
    return (second - round_to_second(schedule.stored_at)) // (SECOND // 1000)
