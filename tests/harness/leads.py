"""What has to be over before an instant: done again, for a later one, if the clock overtook it.

The rule: that an instant was overtaken is known from when the server had acknowledged everything, which runs on the
same clock; and each repetition is noted and listed at the end of the run.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import pytest

from nats_scheduler.control.errors import RefusedError
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

ATTEMPTS = 10
LONGER = 3.0
"""The factor between the leads of two attempts."""
LONGEST_SECONDS = 30.0
LAST_LOOK_NS = 200 * MILLISECOND
"""Before the instant: a sidecar of a 2.10 looks at a schedule 50 ms before its fire for the last time."""
OVERTAKEN = "overtaken"

T = TypeVar("T")

_noted: list[tuple[str, object]] = []
"""What was overtaken in the test that runs, as properties of its report."""


class OvertakenError(Exception):
    """An instant came before everything for it was done; says by how much, if that is known."""


async def with_more_time(act: Callable[[float], Awaitable[T]], leads: Iterable[float]) -> T:
    """Do something with a lead (s), and again with the next one where it raises `OvertakenError`; return its result."""
    for lead in leads:
        try:
            return await act(lead)
        except OvertakenError as overtaken:
            _noted.append((OVERTAKEN, " ".join(filter(None, (f"{lead:g} s were too short", str(overtaken))))))
    raise AssertionError(f"overtaken by the clock each time: {_noted}")


async def in_time(act: Callable[[int], Awaitable[T]], seconds: float = 1.0) -> tuple[int, T]:
    """Do something for an instant `seconds` from now that is over before it; return the instant (ns) and the result.

    `act` gets the instant, and returns when the server has acknowledged everything. It may be done several times, so
    that it names its subjects by the instant, or begins by removing what it has stored before.
    """
    now = SystemClock().now

    async def attempt(lead: float) -> tuple[int, T]:
        due = now() + int(lead * SECOND)
        refusal: RefusedError | None = None
        try:
            result = await act(due)
        except RefusedError as error:  # what it asks for may be gone once the instant has come
            refusal = error
        late = now() + LAST_LOOK_NS - due
        if late >= 0:
            raise OvertakenError(f"by {late / SECOND:.3f} s") from refusal
        if refusal is not None:
            raise refusal
        return due, result

    return await with_more_time(attempt, (min(seconds * LONGER**number, LONGEST_SECONDS) for number in range(ATTEMPTS)))


def note_in(report: pytest.TestReport) -> None:
    """Add what was overtaken to a test's report."""
    report.user_properties += _noted
    _noted.clear()


def write_overtaken(reporter: pytest.TerminalReporter) -> None:
    """List the cases that the clock has overtaken."""
    reports = [one for found in reporter.stats.values() for one in found if isinstance(one, pytest.TestReport)]
    lines = {f"{one.nodeid}: {said}" for one in reports for kind, said in one.user_properties if kind == OVERTAKEN}
    if lines:
        reporter.section(f"{len(lines)} attempts were overtaken by the clock, and repeated with more time")
        for line in sorted(lines):
            reporter.write_line(line)
