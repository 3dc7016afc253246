"""A message that claims to be a fire counts only if the schedule can have generated it, at that time."""

import pytest

from nats_scheduler.message.definition import Terms
from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.fires import (
    MAX_CLOCK_DIFFERENCE_NS,
    TOO_EARLY,
    fault_of,
    fault_of_following,
    is_too_early,
)
from nats_scheduler.message.reading import Generated
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule.instants import HOUR, MINUTE, SECOND
from nats_scheduler.schedule.patterns import At, Every, parse_pattern
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.harness.blocks import block_of

NOON = 1_768_564_800 * SECOND
FIRE = NOON + MINUTE
FIRED = Generated("s.one", 1, FIRE)
EVERY = "@every 1m"
AT = f"@at {format_rfc3339(FIRE)}"


def stored(following: str | None, stored_at: int = FIRE, dialect: Dialect = ADR51) -> StoredMessage:
    """Make a message on the target that says what follows."""
    lines = [] if following is None else [(dialect.next, following)]
    return StoredMessage("t.out", 5, stored_at, block_of((b"A", b"b"), *lines), b"")


def judged(pattern: str, message: StoredMessage, *, fire_time: int = FIRE, due: int = FIRE) -> str:
    """Return the fault of a message that claims to be the fire of a schedule that was stored at noon."""
    read = parse_pattern(pattern)
    assert isinstance(read, At | Every)
    terms = Terms(ADR51, "t.out", "", "", False)
    return fault_of(FIRED._replace(fire_time=fire_time), message, Timetable(read, NOON), terms, due)


def test_clocks_may_differ_by_that_much_and_no_more() -> None:
    assert not is_too_early(FIRE - MAX_CLOCK_DIFFERENCE_NS, FIRE)
    assert is_too_early(FIRE - MAX_CLOCK_DIFFERENCE_NS - 1, FIRE)
    early = stored("purge", FIRE - MAX_CLOCK_DIFFERENCE_NS - 1)
    assert judged(EVERY, early) == TOO_EARLY


def test_a_make_up_fire_beside_a_server_has_the_portable_names() -> None:
    assert judged(EVERY, stored(format_rfc3339(FIRE + MINUTE), dialect=PORTABLE)) == ""
    assert judged(EVERY, stored(format_rfc3339(FIRE - MINUTE), dialect=PORTABLE))


def test_its_time_is_a_fire_time_or_the_one_that_is_due() -> None:
    assert judged(EVERY, stored("purge", NOON + HOUR), fire_time=NOON + 3 * MINUTE) == ""
    other = NOON + 3 * MINUTE + SECOND
    assert judged(EVERY, stored("purge", NOON + HOUR), fire_time=other) == "its time is no fire time of the schedule"
    assert judged(EVERY, stored("purge", NOON + HOUR), fire_time=other, due=other) == ""


@pytest.mark.parametrize(
    ("pattern", "following", "is_possible"),
    [
        (EVERY, "purge", True),
        (EVERY, format_rfc3339(FIRE + 1), True),
        (EVERY, format_rfc3339(FIRE), False),
        (EVERY, "soon", False),
        (EVERY, "", False),
        (EVERY, None, False),
        (AT, "purge", True),
        (AT, format_rfc3339(FIRE + HOUR), False),
    ],
)
def test_what_follows_is_the_end_or_a_later_fire_of_a_repeating_schedule(
    pattern: str, following: str | None, is_possible: bool
) -> None:
    fault = "" if is_possible else "its Nats-Schedule-Next is neither 'purge' nor a later fire time"
    assert judged(pattern, stored(following)) == fault


@pytest.mark.parametrize("dialect", DIALECTS)
def test_of_a_schedule_that_is_gone_any_later_fire_may_follow(dialect: Dialect) -> None:
    none = f"its {dialect.next.decode()} is none that follows"
    for following, fault in (("purge", ""), (format_rfc3339(FIRE + 1), ""), (format_rfc3339(FIRE), none)):
        assert fault_of_following(FIRED, stored(following, dialect=dialect)) == fault
    assert fault_of_following(FIRED, stored(None)) == "it does not say what follows"
