"""Whatever is stored, replaced and removed, in any order: no step fails, no schedule fails, and an innocent one fires.

A value may hold any bytes, and policies are combined at random. What the engine rejects as failed is a mistake of the
program, and `ScheduleWorld` raises for it.
"""

from contextlib import suppress
from datetime import date, timedelta
from random import Random
from typing import Any

import pytest

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.engine.inputs import CalendarsRead
from nats_scheduler.engine.receiving.named_calendars import MAX_VISITED_PER_STEP
from nats_scheduler.message.headers import with_headers
from nats_scheduler.schedule.calendars import KnownCalendars, read_calendar
from nats_scheduler.schedule.instants import MINUTE, SECOND
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import Desk, schedule
from tests.harness.seeds import generator, seeds
from tests.hostile.effort import at_most

pytestmark = pytest.mark.clause("hostile-headers")

INNOCENT = "safe.innocent"
CONFIGS: list[dict[str, Any]] = [
    {},
    {"retention": "interest"},
    {"max_msgs_per_subject": 1},
    {"max_age": 3_600 * SECOND},
]
SECONDS_A_STEP = 0.2
"""Process time for one step of a world: the dearest take a few milliseconds."""

SUBJECTS = ["s.one", "s.two", "s.three", "s.four", "t.out"]
PATTERNS = [b"@every 1s", b"@every 2s", b"@every 5s", b"* * * * * *", b"*/3 * * * * *", b"0 0 0 31 12 *", b"@hourly"]
PATTERNS += [b"@at 2026-01-01T00:00:%02dZ" % second for second in (0, 3, 20, 50)]
POLICIES = {
    b"X-Done-Within": [b"1s", b"10s"],
    b"X-Overlap": [b"skip", b"queue", b"allow"],
    b"X-Timeout": [b"1s", b"5s"],
    b"X-Note": [b"a note", b"\xff", b"gr\xc3\xb6\xc3\x9fe", b"\xed\xb3\xbf"],
    b"X-Owner": [b"team", b"\xff\xfe"],
    b"X-Except": [b"2026-01-02..2026-01-03", b"2026-01-02", b"calendar:closed", b"calendar:none,2026-01-05"],
    b"X-Excepted": [b"skip", b"next", b"previous"],
    b"X-Every": [b"2d from 2026-01-01", b"2w from 2025-12-29", b"2d from 2026-01-02"],
    b"X-Limit": [b"1", b"3", b"1000"],
    b"X-Missed": [b"once", b"skip", b"all", b"all 1", b"all 7"],
    b"X-Grace": [b"1s", b"3s"],
    b"X-Jitter": [b"500ms", b"3s", b"1h"],
    b"X-Spread": [b"1s", b"1h"],
    b"X-Report": [b"true"],
    b"X-Debounce": [b"true"],
    b"X-Start": [b"2026-01-01T00:00:07Z"],
    b"X-End": [b"2026-01-01T00:00:30Z", b"2026-01-01T00:00:01Z"],
}
RARE = {b"X-Target": b"elsewhere.x", b"X-Syntax": b"unix", b"X-Paused": b"@every 1s", b"X-Done-Within": b"0s"}
"""Policies that reject most schedules that have them."""
OTHERS = [(b"Nats-TTL", b"5s"), (b"Nats-Rollup", b"sub"), (b"Nats-Msg-Id", b"\xff\xfe")]
OTHERS += [(b"Nats-Schedule-Next", b"purge"), (b"Nats-Scheduler", b"s.one"), (b"Nats-Scheduler", b"s.\xff")]
OTHERS += [(b"Nats-Expected-Last-Subject-Sequence-Subject", b"x"), (b"Greeting", b"Nats-Msg-Id: Nats-Schedule: \xff")]
BYTES = [b"\xff", b"\x00", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b" ", b"\xc3\xa9", b"\t", b"9" * 40, b"%", b"\xc0\xaf"]


class BoundedWorld(ScheduleWorld):
    """A world of which each step is bounded in its work."""

    excused_until = START
    """What was due before this instant (ns), and was not fired, was due while nothing could fire it."""

    def check(self, stored_as: int) -> None:
        """Check that a schedule has fired at each second since nothing kept it from that."""
        fired = {one.fire_time for one in self.generated if one.schedule_sequence == stored_as}
        due = range(self.excused_until + SECOND - self.excused_until % SECOND, self.now, SECOND)
        assert set(due) <= fired

    def _step(self) -> None:
        with at_most(SECONDS_A_STEP, "a step"):
            super()._step()


def drawn_value(draw: Random, value: bytes) -> bytes:
    """Return a value as it is, most often, or with any bytes in it."""
    form = draw.randrange(60)
    if form == 0:
        return draw.randbytes(draw.randrange(1, 9)).replace(b"\r", b"").replace(b"\n", b"")
    if form in (1, 2):
        at = draw.randrange(len(value) + 1)
        return value[:at] + draw.choice(BYTES) + value[at:]
    return value


def drawn_names(draw: Random, pattern: bytes) -> list[bytes]:
    """Draw the names of policies, most often with what they need."""
    names = draw.sample(sorted(POLICIES), draw.choice([0, 1, 2, 3, 4, 6]))
    if pattern.startswith((b"@every", b"@at")) and draw.randrange(10):
        names = [one for one in names if one not in (b"X-Every", b"X-Excepted")]
    if b"X-Excepted" in names and b"X-Except" not in names:
        names.append(b"X-Except")
    if b"X-Timeout" in names and b"X-Overlap" not in names:
        names.append(b"X-Overlap")
    return names


def drawn_block(draw: Random, fires: list[bytes]) -> bytes:
    """Draw the headers of a schedule, of a cancel, or of what claims to be a fire."""
    if fires and draw.randrange(6) == 0:
        return bytes(draw.choice(fires)).replace(b"00:00", draw.choice([b"00:00", b"00:01", b"\xff0:00"]), 1)
    prefix = draw.choice([b"", b"X-"]) + b"Nats-Schedule"
    pattern = draw.choice(PATTERNS)
    headers = [(prefix, pattern), (prefix + b"-Target", draw.choice([b"t.out", b"t.\xc3\xa9", b"s.two"]))]
    if draw.randrange(5) == 0:
        headers.append((prefix + b"-Source", b"s.source"))
    if draw.randrange(5) == 0 and (b"*" in pattern or draw.randrange(10) == 0):
        headers.append((prefix + b"-Time-Zone", b"Europe/Dublin"))
    if draw.randrange(6) == 0:
        headers.append((prefix + b"-TTL", b"30s"))
    if draw.randrange(6) == 0:
        headers.append((prefix + b"-Rollup", b"sub"))
    names = drawn_names(draw, pattern)
    policies = [(name, draw.choice(POLICIES[name])) for name in names]
    if b"X-Done-Within" in names or b"X-Overlap" in names:
        policies.append((b"X-Consumer", b"workers"))
    if draw.randrange(15) == 0:
        policies.append(draw.choice(sorted(RARE.items())))
    headers += [(prefix + b"-" + name, value) for name, value in policies]
    headers += draw.sample(OTHERS, draw.choice([0, 0, 0, 0, 1, 2]))
    draw.shuffle(headers)
    return with_headers(None, [(name, drawn_value(draw, value)) for name, value in headers])


def drawn_life(draw: Random, world: BoundedWorld, stored_as: int) -> None:
    """Let publishers and operators do anything for a minute, and check that the innocent schedule fires."""
    for _ in range(40):
        subject, action = draw.choice([*SUBJECTS, "s.\udcff"]), draw.randrange(20)
        if action < 12:
            stored = [message.block for message in world.stream.messages() if b"Nats-Scheduler" in message.block]
            with suppress(SchedulerError):
                world.publish(subject, drawn_block(draw, stored), draw.randbytes(draw.randrange(20)))
        elif action == 12:
            world.purge(subject)
        elif action == 13:
            of = [message.sequence for message in world.stream.messages() if message.subject == subject]
            if of:
                world.delete(draw.choice(of))
        elif action == 14:
            world.set_calendar("closed", draw.choice(["", "2026-01-01", "2026-01-02..2026-01-09", "\udcff?"[1:]]))
        elif action in (15, 16):
            world.check(stored_as)
            if action == 15:
                world.restart(draw.choice([0, 3 * SECOND]), with_checkpoint=draw.random() < 0.5)
            else:
                world.lose_contact()
                world.advance(draw.choice([SECOND // 100, 2 * SECOND]))
                world.regain_contact()
            world.excused_until = world.now
        world.advance(draw.choice([SECOND // 1000, SECOND // 3, SECOND, 4 * SECOND]))
    world.advance(3 * SECOND)
    world.check(stored_as)


def test_nothing_that_is_stored_fails_and_the_innocent_schedule_fires() -> None:
    """Beside a server of 2.10 and one of 2.11."""
    for seed in seeds(10):
        draw = generator(f"sequences {seed}")
        world = BoundedWorld(guard=seed % 2 == 0, calendars={"closed": ""}, config=draw.choice(CONFIGS))
        stored_as = world.publish(INNOCENT, {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "safe.out"})
        world.excused_until = START + SECOND // 2
        drawn_life(draw, world, stored_as)


# -- one attack each, beside the innocent schedule


def world_with_innocent(**more: Any) -> tuple[BoundedWorld, int]:
    """Return a world with the innocent schedule, and its sequence."""
    world = BoundedWorld(**more)
    stored_as = world.publish(INNOCENT, {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "safe.out"})
    world.excused_until = START + SECOND // 2
    return world, stored_as


def test_a_label_that_is_not_utf_8_beside_a_deadline_ends_nothing() -> None:
    """One such message ended its stream for ever, also after each restart."""
    world, stored_as = world_with_innocent()
    prefix = b"X-Nats-Schedule"
    policies = [(b"-X-Done-Within", b"1s"), (b"-X-Consumer", b"c"), (b"-X-Owner", b"\xff")]
    headers = [(prefix + short, value) for short, value in [(b"", b"@every 5s"), (b"-Target", b"t.out"), *policies]]
    labelled = world.publish("s.one", with_headers(None, headers))
    world.advance("11s")
    world.restart()
    world.advance("11s")
    world.check(stored_as)
    fires = [one for one in world.generated if one.schedule_sequence == labelled]
    assert len(fires) == 4
    assert {one.header("X-Nats-Schedule-X-Done-Within") for one in fires} == {"1s"}


def test_what_is_dropped_is_decided_soon_with_many_excepted_days() -> None:
    """Each decision counted sixty times over all days, and each retry of a refused fire decides: gaps of seconds."""
    days = ",".join(str(date(2026, 1, 2) + timedelta(3 * number)) for number in range(990))
    missed = schedule("@every 1s", Nats_Schedule_X_Missed="all 1", Nats_Schedule_X_Grace="1s")
    block = with_headers(missed.block, [(b"Nats-Schedule-X-Except", days.encode())])
    held = Desk(missed._replace(block=block)).held()
    with at_most(1, "decisions"):
        chosen = [held.due_fire(None, START + minutes * MINUTE) for minutes in range(1, 201)]
    assert chosen == [START + minutes * MINUTE - SECOND for minutes in range(1, 201)]


def test_a_calendar_that_is_always_edited_leaves_the_work_of_one_edit() -> None:
    """Each edit was pending for each schedule: 700 MB after 20 s."""
    count, edits = 500, 60
    numbers = range(1, count + 1)
    named = [schedule("@daily", number, f"s.{number}", Nats_Schedule_X_Except="calendar:closed") for number in numbers]
    desk = Desk(*named)
    for number in range(edits):
        known = read_calendar("closed", b"2026-01-%02d" % (number % 28 + 1))
        with at_most(0.5, "an edit"):
            desk.step(CalendarsRead(KnownCalendars({"closed": known})))
    calendars = desk.engine.calendars
    assert len(calendars._to_visit) == 1
    steps = 0
    while calendars.has_work:
        with at_most(0.5, "a step"):
            desk.at(steps / 1_000)
        steps += 1
    assert steps < 3 * count / MAX_VISITED_PER_STEP, "what is left is bounded by the schedules, and not by the edits"
    assert all(held.bounded.bounds.calendars == (known,) for held in desk.engine.held)
