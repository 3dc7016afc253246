"""Every way to stop a schedule: on all sides nothing fires any more, and the same is stored in the end.

A case is one stream on every side, and many cases run at once.
That nothing fires is shown by a canary: a schedule due later than the stopped one, in the same stream, that has fired.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.differential.differences import Allowance, Differences
from tests.differential.sides import ComparedSide, few_at_once, fresh_name, on_each
from tests.differential.ways_to_stop import CASES, REPEATING, Case
from tests.harness.account import CLOCK
from tests.harness.flagged import FlaggedStream
from tests.harness.servers import EMULATED_VERSIONS, V2_10
from tests.harness.waiting import eventually, instant_reached

DUE_SECONDS = (4, 12, 36)
"""The delay (s) of the schedule that is stopped: if a busy machine needs longer to stop it, the case is run again."""
MARGIN_SECONDS = 0.3
"""The time before it is due by which the schedule has to be stopped, so that no step of the case finds it fired."""

PURGE_SECONDS = 3.0
"""The longest time in which a busy machine purges a schedule after its fire, and after the canary is purged."""

# -- what is compared ------------------------------------------------------------------------------------------------


Stored = dict[str, list[bytes | None]]


async def stored(stream: FlaggedStream) -> Stored:
    """Return the bodies on each subject, but for the canary's."""
    found: Stored = {}
    for message in await stream.messages(">"):
        rest = message.subject.removeprefix(f"{stream.name}.")
        if not rest.startswith("canary"):
            found.setdefault(rest, []).append(message.body)
    return found


async def stored_in_the_end(stream: FlaggedStream) -> Stored:
    """Return the bodies once a schedule that has fired is purged; in some cases what lies there stays."""

    async def is_over() -> bool:
        return not {"s", "out"} <= (await stored(stream)).keys()

    with suppress(AssertionError):
        await eventually(is_over, within_seconds=PURGE_SECONDS)
    return await stored(stream)


async def new_stream(side: ComparedSide, name: str, case: Case) -> FlaggedStream:
    await side.create(name, **{"allow_rollup_hdrs": True, **case.config})
    stream = FlaggedStream(side.account, name)
    if case.before is not None:
        await case.before(stream)
    return stream


async def stop_a_delay(side: ComparedSide, name: str, case: Case) -> Stored:
    """Stop an `@at` before it is due, and return what is stored once a later one has fired."""
    for seconds in DUE_SECONDS:
        stream = await new_stream(side, f"{name}S{seconds}", case)
        due = CLOCK.now() + seconds * SECOND
        headers = {**stream.headers(f"@at {format_rfc3339(due)}"), **case.schedule}
        try:
            async with asyncio.timeout(seconds - MARGIN_SECONDS):
                await stream.publish("s", headers, b"fires")
                await case.stop(stream)
        except TimeoutError:
            continue
        # The canary is stored last: it must neither age nor be evicted before the schedule is due.
        await instant_reached(due, CLOCK.now)
        await stream.canary(0.1)
        return await stored_in_the_end(stream)
    raise AssertionError(f"{name} on {side.version}: not stopped within {DUE_SECONDS[-1]} s")


async def stop_an_interval(side: ComparedSide, name: str, case: Case) -> tuple[Stored, bool]:
    """Stop an `@every` after its first fire; returns what is stored beside its fires, and whether it fired on."""
    stream = await new_stream(side, name, case)
    await stream.schedule("s", "@every 1s", b"fires")
    await stream.wait_for("out")
    await case.stop(stream)
    stopped = CLOCK.now()
    await stream.canary(2)
    later = [message for message in await stream.messages("out") if message.stored_at > stopped]
    found = await stored(stream)
    found.pop("out", None)
    return found, bool(later)


async def compare_all(
    sides: list[ComparedSide],
    cases: dict[str, Case],
    act: Callable[[ComparedSide, str, Case], Awaitable[Any]],
    found: Differences,
) -> None:
    """Run all cases on every side that knows them, and compare each."""
    prefix = fresh_name()

    async def run(number: int, title: str, case: Case) -> None:
        known = [side for side in sides if side.version in case.versions]
        found.compare(title, await on_each(known, lambda side: act(side, f"{prefix}N{number}", case)))

    await few_at_once(run(number, title, case) for number, (title, case) in enumerate(cases.items()))


# -- differences that the document names ---------------------------------------------------------------------------

FIRES: Stored = {"out": [b"fires"]}


def is_ended_by_a_rejected_one(wanted: Stored, value: Stored) -> bool:
    """A native server refuses an invalid replacement; where it is stored, it is the last word on its subject."""
    return wanted == FIRES and value == {"s": [b"fires", b"newer"]}


def is_stored_though_refused(wanted: Stored, value: Stored) -> bool:
    """A native server refuses a wrong cancel; where it is stored, it ends nothing."""
    return "out" in wanted and value == {**wanted, "cancels": [b"cancel"]}


def is_cancelled_under_what_landed(wanted: Stored, value: Stored) -> bool:
    """A native server refuses to cancel what something lies on; where the cancel is stored, it ends the schedule."""
    return wanted == FIRES and value == {"cancels": [b"cancel"]}


def is_refused_by_the_guard(wanted: Stored, value: Stored) -> bool:
    """Without the header for another subject the guard is checked on the cancel's own subject, and refuses."""
    return wanted == {"cancels": [b"cancel"]} and value == FIRES


NAMED = (
    Allowance("rejected-schedules", EMULATED_VERSIONS, is_ended_by_a_rejected_one),
    Allowance("cancel", EMULATED_VERSIONS, is_stored_though_refused),
    Allowance("cancel", EMULATED_VERSIONS, is_cancelled_under_what_landed),
    Allowance("cancel-guarded", (V2_10,), is_refused_by_the_guard),
)


@pytest.mark.clause("stop-delete", "stop-purge", "stop-ttl", "stop-max-age", "stop-eviction", "stop-replaced")
@pytest.mark.clause("stop-plain-message", "stop-generated-message", "stop-ack", "rejected-schedules")
@pytest.mark.clause("cancel", "cancel-guarded", "old-versions")
async def test_a_stopped_delay_ends_in_the_same_state(sides: list[ComparedSide]) -> None:
    found = Differences(NAMED)
    await compare_all(sides, CASES, stop_a_delay, found)
    found.check(at_least=len(CASES))


@pytest.mark.clause("stop-delete", "stop-purge", "stop-eviction", "stop-replaced", "stop-plain-message", "stop-ack")
@pytest.mark.clause("cancel")
async def test_a_stopped_interval_ends_in_the_same_state(sides: list[ComparedSide]) -> None:
    found = Differences()
    await compare_all(sides, REPEATING, stop_an_interval, found)
    found.check(at_least=len(REPEATING))
