"""The same messages with the same TTLs on every server: what is left of them after a while.

A message that is stored last, and has the longest TTL of those that run out, shows when to look: when it is gone, so
is everything that had less time. Every schedule is due when it is published, so no case depends on how long that takes.
"""

import pytest

from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.differential.differences import Allowance, Differences
from tests.differential.sides import ComparedSide, fresh_name, on_each
from tests.harness.account import CLOCK
from tests.harness.servers import V2_10
from tests.harness.waiting import eventually

SHORT = ("1s", "2s", "1", "002", "1.9s", "1500ms", "18446744073709551617")
"""TTLs that run out while the test looks on."""

LONG = ("1h", "3600", "never", "NEVER", "00", "18446744073709551616", "1000000h")
"""TTLs that do not; some of them say so in the server's own way."""

HUGE = ("9223372037", "18446744074", "2562047h", "9223372036854775807")
"""TTLs whose end lies beyond the year 2262, where the nanoseconds of a server wrap."""

CANARY = "5s"
"""Three seconds beyond the longest of the short ones: servers look once a second, and a native fire may be late."""


ORDINARY = Allowance("ttl-ordinary", (V2_10,), lambda wanted, value: wanted == 0 and value == 1)
"""A message that is neither a schedule nor generated is the server's, and a server of 2.10 leaves it."""

NO_WRAP = Allowance("ttl-overflow", (V2_10,), lambda wanted, value: (wanted, value) == ("expired at once", "kept"))
"""Our integers do not wrap: what is to live for centuries does."""


async def say(side: ComparedSide, subject: str, headers: dict[str, str]) -> None:
    """Publish, and insist that it is stored."""
    answer = await side.say(subject, headers, b"body")
    assert "error" not in answer, (side.version, subject, headers, answer)


async def say_all(side: ComparedSide, stream: str) -> None:
    """Publish every case: generated messages first, then schedules, then what is neither."""
    at = f"@at {format_rfc3339(CLOCK.now())}"
    for number, ttl in enumerate((*SHORT, *LONG)):
        target = f"{stream}.out.{number}"
        headers = {"Nats-Schedule": at, "Nats-Schedule-Target": target, "Nats-Schedule-TTL": ttl}
        await say(side, f"{stream}.s.{number}", headers)
        rolled = {**headers, "Nats-Schedule-Target": f"{stream}.rolled.{number}", "Nats-Schedule-Rollup": "sub"}
        await say(side, f"{stream}.r.{number}", rolled)
        lasting = {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": f"{stream}.never", "Nats-TTL": ttl}
        await say(side, f"{stream}.lasting.{number}", lasting)
        await say(side, f"{stream}.plain.{number}", {"Nats-TTL": ttl})
    for number, ttl in enumerate(HUGE):
        headers = {"Nats-Schedule": at, "Nats-Schedule-Target": f"{stream}.huge.{number}", "Nats-Schedule-TTL": ttl}
        await say(side, f"{stream}.h.{number}", headers)
    for number in range(3):
        mixed = {"Nats-Schedule": at, "Nats-Schedule-Target": f"{stream}.mixed"}
        await say(side, f"{stream}.m.{number}", {**mixed, "Nats-Schedule-TTL": ("1h", "1s", "never")[number]})


async def say_what_expires_first(side: ComparedSide, stream: str) -> None:
    """Publish schedules that expire before they are due, and one that fires until it does."""
    at, target = f"@at {format_rfc3339(CLOCK.now() + HOUR)}", f"{stream}.never"
    for number, ttl in enumerate(("1s", "2s", "1")):
        headers = {"Nats-Schedule": at, "Nats-Schedule-Target": target, "Nats-TTL": ttl}
        await say(side, f"{stream}.early.{number}", headers)
    await say(
        side,
        f"{stream}.repeats",
        {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": f"{stream}.ticks", "Nats-TTL": "3600ms"},
    )


async def counts(side: ComparedSide, stream: str) -> dict[str, int]:
    """Return how many messages each subject holds."""
    info = await side.account.api.call(f"STREAM.INFO.{stream}", {"subjects_filter": ">"})
    return {subject[len(stream) + 1 :]: count for subject, count in (info["state"].get("subjects") or {}).items()}


async def left_on(side: ComparedSide, stream: str) -> dict[str, int]:
    """Run every case on one side and return what is left, by subject."""
    await say_all(side, stream)
    await say_what_expires_first(side, stream)
    canary = {"Nats-Schedule-Target": f"{stream}.out.canary", "Nats-Schedule-TTL": CANARY}
    await say(side, f"{stream}.canary", {"Nats-Schedule": f"@at {format_rfc3339(CLOCK.now())}", **canary})
    await side.account.wait_for(stream, f"{stream}.out.canary")

    async def gone() -> dict[str, int] | None:
        found = await counts(side, stream)
        return None if "out.canary" in found else found

    return await eventually(gone, describe=f"the canary expires on {side.version}")


@pytest.mark.clause("ttl-generated", "ttl-schedule", "ttl-ordinary", "ttl-overflow")
async def test_the_same_messages_are_left_on_every_server(sides: list[ComparedSide]) -> None:
    stream = fresh_name()
    await on_each(sides, lambda side: side.create(stream, allow_msg_ttl=True))
    left = await on_each(sides, lambda side: left_on(side, stream))
    differences = Differences((ORDINARY, NO_WRAP))
    subjects = {subject for found in left.values() for subject in found if not subject.startswith(("ticks", "huge"))}
    for subject in sorted(subjects):
        differences.compare(subject, {version: found.get(subject, 0) for version, found in left.items()})
    for number in range(len(HUGE)):
        kept = {v: "kept" if found.get(f"huge.{number}") else "expired at once" for v, found in left.items()}
        differences.compare(f"a TTL of {HUGE[number]}", kept)
    for version, found in left.items():
        # The fire of the fourth second races the expiry: a native server may be a second late with either.
        # A sidecar that a busy machine stops for seconds stores the latest of the fires that it missed.
        if not 1 <= found.get("ticks", 0) <= 5:
            differences.note("a schedule fires until it expires", f"{version}: {found.get('ticks', 0)} fires")
    differences.check(at_least=2 * len(LONG))


OLD_AGE = Allowance("ttl-max-age", (V2_10,), lambda wanted, value: (wanted, value) == (["never"], []))
"""On a server of 2.10 no TTL saves a message from `max_age`."""


async def outlive_old_age(side: ComparedSide, stream: str) -> list[str]:
    """Generate messages on a stream on which they live three seconds, and return which of them are left after that."""
    at = f"@at {format_rfc3339(CLOCK.now())}"
    for name, ttl in (("never", "never"), ("long", "1h"), ("short", "1s"), ("none", "")):
        headers = {"Nats-Schedule": at, "Nats-Schedule-Target": f"{stream}.out.{name}"}
        await say(side, f"{stream}.s.{name}", headers | ({"Nats-Schedule-TTL": ttl} if ttl else {}))

    async def aged() -> bool:
        found = await counts(side, stream)
        return not found.keys() & {"out.none", "out.short"} and not any(rest.startswith("s.") for rest in found)

    await eventually(aged, describe=f"messages age on {side.version}")
    return sorted(rest.removeprefix("out.") for rest in await counts(side, stream))


@pytest.mark.clause("ttl-max-age")
async def test_a_message_may_outlive_the_age_limit_of_its_stream(sides: list[ComparedSide]) -> None:
    stream = fresh_name()
    await on_each(sides, lambda side: side.create(stream, allow_msg_ttl=True, max_age=3 * SECOND))
    differences = Differences((OLD_AGE,))
    differences.compare("what is left", await on_each(sides, lambda side: outlive_old_age(side, stream)))
    differences.check()
