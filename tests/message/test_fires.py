"""Fires as they are stored: past ones are found backwards, and a forged one is none.

A past fire has its fire time, or none if nothing that is stored shows it.
"""

from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect, dialect_named
from nats_scheduler.message.fire_faults import (
    MAX_CLOCK_DIFFERENCE_NS,
    TOO_EARLY,
    fault_of,
    fault_of_following,
    is_too_early,
    names_end,
)
from nats_scheduler.message.fires import (
    FireReader,
    ScheduleKind,
    StoredFire,
    StoredSchedule,
    fired_schedule_of,
    following_offset,
)
from nats_scheduler.message.identity import beside_identity, fire_identity
from nats_scheduler.message.jitter import delay_of, stored_timetable
from nats_scheduler.message.past_fires import PastFire, PastFires
from nats_scheduler.message.reading import Generated, read_message
from nats_scheduler.message.schedule_form import Terms
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule.instants import HOUR, MILLISECOND, MINUTE, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.harness.blocks import block_of
from tests.message.blocks import meaning
from tests.schedule.reading import read as read_pattern

RULES = StreamRules.from_config({"name": "S", "subjects": ["S.>"]})
START = 1_800_000_000 * SECOND
LATE = 3 * MILLISECOND


def at(second: int) -> int:
    return START + second * SECOND


def schedule(sequence: int, second: int, *more: tuple[str, str]) -> StoredSchedule:
    """Return `@every 10s`, stored at a second."""
    block = block_of(("Nats-Schedule", "@every 10s"), ("Nats-Schedule-Target", "S.out"), *more)
    reading = meaning(read_message(block, "S.s", at(second), RULES, DIALECTS))
    assert reading.definition is not None
    pattern, terms = reading.definition
    return StoredSchedule(sequence, stored_timetable(pattern, terms.policies, at(second), "S.s", sequence), terms)


def following(second: int | None) -> str:
    return "purge" if second is None else format_rfc3339(at(second))


def ours(
    sequence: int, due: int, then: int | None, *, of: int = 1, stored: int | None = None, x: str = ""
) -> StoredMessage:
    """Return a fire of a sidecar."""
    block = block_of(
        (f"{x}Nats-Scheduler", "S.s"),
        (f"{x}Nats-Schedule-Next", following(then)),
        ("Nats-Msg-Id", fire_identity("S.s", of, at(due))),
    )
    return StoredMessage("S.out", sequence, at(due) + LATE if stored is None else stored, block, None)


def servers(sequence: int, stored: int, then: int | None) -> StoredMessage:
    """Return a fire of the scheduler inside the server, stored `LATE` after a second."""
    block = block_of(("Nats-Scheduler", "S.s"), ("Nats-Schedule-Next", following(then)))
    return StoredMessage("S.out", sequence, at(stored) + LATE, block, None)


def read(
    *messages: StoredMessage, native: bool = False, stored: StoredSchedule | None = None, is_all: bool = True
) -> list[PastFire]:
    """Read messages that are given in the order of their stream."""
    past = PastFires("S.s", is_native=native, stored=stored)
    found = [fire for message in reversed(messages) for fire in past.read(message)]
    return found + past.rest(is_all=is_all)


def dues(fires: list[PastFire]) -> list[tuple[int, int | None]]:
    """Return sequence and fire time, in seconds from the start."""
    return [(one.sequence, None if one.fire_time is None else (one.fire_time - START) // SECOND) for one in fires]


def test_a_fire_of_a_sidecar_has_its_fire_time_in_its_identity() -> None:
    for x in ("", "X-"):
        found = read(ours(5, 10, 20, x=x), ours(6, 20, None, x=x))
        assert dues(found) == [(6, 20), (5, 10)]
        assert [one.lateness for one in found] == [LATE, LATE]
        assert [one.next_fire for one in found] == [None, at(20)]
        assert [(one.schedule_sequence, one.fired_by) for one in found] == [(1, "sidecar"), (1, "sidecar")]
        assert {(one.schedule, one.target) for one in found} == {("S.s", "S.out")}


def test_the_fires_of_a_subject_that_is_not_utf_8_are_found() -> None:
    fire = ours(5, 10, 20)
    other = fire._replace(block=fire.block.replace(b"S.s", b"S.\xff"))
    found = PastFires("S.\udcff", is_native=False, stored=None).read(other)
    assert [(one.schedule, one.fire_time) for one in found] == [("S.\udcff", at(10))]


def test_the_lateness_of_a_delayed_fire_counts_from_its_send_time() -> None:
    delay = delay_of("S.s", 2, at(20), 8 * SECOND)
    late = ours(7, 20, 30, of=2, stored=at(20) + delay + LATE)
    (fire,) = read(late, stored=schedule(2, 0, ("Nats-Schedule-X-Jitter", "8s")))
    assert (fire.fire_time, fire.lateness) == (at(20), LATE)
    (of_a_version_that_is_gone,) = read(late, stored=schedule(5, 15, ("Nats-Schedule-X-Jitter", "8s")))
    assert of_a_version_that_is_gone.lateness == delay + LATE


def test_messages_that_cannot_be_fires_are_passed_over() -> None:
    other = block_of(("Nats-Scheduler", "S.t"), ("Nats-Msg-Id", fire_identity("S.t", 1, at(10))))
    cancel = block_of(("Nats-Scheduler", "S.s"), ("Nats-Schedule-Next", "purge"))
    assert not read(
        StoredMessage("S.out", 4, at(10), b"", None),
        StoredMessage("S.out", 5, at(10), other, None),
        StoredMessage("S.out", 6, at(10), cancel, None),
        ours(7, 60, 70, stored=at(10)),
        ours(8, 20, 10),
        ours(9, 20, 30, of=9),
        stored=schedule(2, 0),
    )
    off_the_grid = ours(5, 13, 20, of=2)
    assert dues(read(off_the_grid, ours(6, 20, 30, of=2), stored=schedule(2, 0))) == [(6, 20)]
    others = [block_of(("A", "S.s")), block_of(("Nats-Scheduler", "S.s")), block_of(("Nats-Scheduler", "S.s.t"))]
    others.append(block_of(("Nats-Scheduler", "S.s"), ("Nats-Schedule-Next", "soon")))
    assert not read(
        *(StoredMessage("S.out", 4, at(10), one, None) for one in others), native=True, stored=schedule(2, 0)
    )
    early = block_of(("Nats-Scheduler", "S.s"), ("Nats-Msg-Id", beside_identity("S.s", 1, at(100))))
    assert read(StoredMessage("S.out", 3, at(13), early, None), stored=schedule(1, 0)) == []


def test_a_fire_of_the_server_is_due_when_the_one_before_it_says() -> None:
    found = read(servers(5, 10, 20), servers(6, 20, 30), servers(7, 30, None), native=True, stored=schedule(2, 0))
    assert dues(found) == [(7, 30), (6, 20), (5, 10)]
    assert [one.lateness for one in found] == [LATE] * 3
    assert {(one.fired_by, one.schedule_sequence) for one in found} == {("server", None)}
    assert {(one.schedule, one.target) for one in found} == {("S.s", "S.out")}


def test_the_oldest_fire_of_a_server_needs_its_schedule_for_a_time() -> None:
    assert dues(read(servers(5, 10, 20), servers(6, 20, 30), native=True)) == [(6, 20), (5, None)]
    later = schedule(9, 25)
    assert dues(read(servers(5, 10, 20), servers(6, 20, 30), native=True, stored=later)) == [(6, 20), (5, None)]
    unread = read(servers(5, 10, 20), native=True, stored=schedule(2, 0), is_all=False)
    assert dues(unread) == [(5, None)]


def test_a_replacement_or_a_cancel_is_told_by_the_time_that_was_named() -> None:
    found = read(servers(5, 10, 20), servers(7, 25, 35), native=True, stored=schedule(6, 15))
    assert dues(found) == [(7, 25), (5, None)]
    assert dues(read(servers(5, 10, 60), servers(7, 25, 35), native=True)) == [(7, None), (5, None)]
    assert dues(read(servers(5, 10, 20), servers(6, 15, None), native=True, stored=schedule(2, 0))) == [(5, 10)]
    assert not read(servers(5, 10, 20), stored=schedule(2, 0))


def test_fires_from_before_and_after_graduation_are_one_history() -> None:
    found = read(ours(5, 10, 20), servers(6, 20, 30), native=True, stored=schedule(1, 0))
    assert dues(found) == [(6, 20), (5, 10)]
    assert [one.by_server for one in found] == [True, False]


def test_a_fire_that_was_requested_says_nothing_of_its_neighbours() -> None:
    block = block_of(("X-Nats-Scheduler", "S.s"), ("Nats-Msg-Id", beside_identity("S.s", 1, at(12))))
    asked = StoredMessage("S.out", 3, at(13), block, None)
    for native in (True, False):
        fires = [servers(2, 10, 20), servers(4, 20, 30)] if native else [ours(2, 10, 20), ours(4, 20, 30)]
        found = read(fires[0], asked, fires[1], native=native, stored=schedule(1, 0))
        requested = [(one.fire_time, one.fired_by, one.lateness) for one in found if one.was_requested]
        assert requested == [(at(12), "request", None)]
        assert [one.fire_time for one in found if not one.was_requested] == [at(20), at(10)]


def test_the_sequences_of_another_stream_say_nothing() -> None:
    """A fire into another stream may have a lower sequence there than its schedule has in its own."""
    for form in (b"", b"beside:"):
        fire = ours(3, 10, 20, of=700)
        named = fire._replace(block=fire.block.replace(b"nats-scheduler:700:", b"nats-scheduler:%b700:" % form))
        for is_to_other_stream in (True, False):
            past = PastFires("S.s", is_native=False, stored=schedule(700, 0), is_to_other_stream=is_to_other_stream)
            assert [one.sequence for one in past.read(named)] == ([3] if is_to_other_stream else [])


def test_a_fire_on_another_subject_is_none_unless_it_was_moved() -> None:
    moved = ours(5, 10, 20, of=2)._replace(subject="S.moved")
    for is_moved in (True, False):
        past = PastFires("S.s", is_native=False, stored=schedule(2, 0), is_moved=is_moved)
        assert [one.target for one in past.read(moved)] == (["S.moved"] if is_moved else [])


# -- fires in the order of their stream -----------------------------------------------------------------------------


def watched(config: dict[str, bool], *messages: StoredMessage) -> list[StoredFire | None]:
    """Read messages in the order of their stream."""
    reader = FireReader({"name": "S", "subjects": ["S.>"], **config})
    return [reader.read(message) for message in messages]


def defining(sequence: int, pattern: str, *more: tuple[str, str], x: str = "") -> StoredMessage:
    """Return a schedule for `S.out` that was stored 5 s before the start."""
    block = block_of((f"{x}Nats-Schedule", pattern), (f"{x}Nats-Schedule-Target", "S.out"), *more)
    return StoredMessage("S.s", sequence, at(-5), block, None)


def test_a_watched_fire_names_its_schedule_and_its_kind() -> None:
    source = ("Nats-Schedule-Source", "S.from")
    for pattern, more, kind in (
        ("@every 10s", (), "interval"),
        ("*/10 * * * * *", (), "cron"),
        (f"@at {format_rfc3339(at(10))}", (), "delayed"),
        ("@every 10s", (source,), "sampling"),
        (f"@at {format_rfc3339(at(10))}", (source,), "sampling"),
    ):
        _none, fire = watched({}, defining(1, pattern, *more), ours(5, 10, None))
        assert fire == StoredFire("S", "S.s", "S.out", ScheduleKind(kind), at(10), at(10) + LATE, at(-5)), pattern
        assert (fire.send_time, fire.lateness) == (at(10), LATE)
    delay = delay_of("S.s", 1, at(15), 8 * SECOND)
    late = ours(5, 15, None, stored=at(15) + delay + LATE)
    _none, fire = watched({}, defining(1, "@every 10s", ("Nats-Schedule-X-Jitter", "8s")), late)
    assert fire is not None
    assert (fire.delay, fire.lateness) == (delay, LATE)
    (fire,) = watched({}, ours(5, 10, None))
    assert fire == StoredFire("S", "S.s", "S.out", ScheduleKind.UNKNOWN, at(10), at(10) + LATE, at(10))


def test_a_watched_fire_of_a_server_is_due_when_the_one_before_says() -> None:
    native, every = {"allow_msg_schedules": True}, defining(1, "@every 10s")
    off_target, early = servers(3, 10, 20)._replace(subject="S.other"), servers(3, 10, 20)._replace(stored_at=at(5) - 1)
    other = StoredMessage("S.out", 4, at(20), block_of(("Nats-Scheduler", "S.t")), None)
    passed = watched(native, servers(1, 1, 2), every, off_target, early, other)
    assert passed == [None] * 5
    _none, first, second, last, after = watched(
        native, every, servers(2, 5, 16), servers(3, 16, 29), servers(4, 29, None), servers(5, 40, 50)
    )
    assert after is None, "its schedule has ended"
    found = [(one.due, one.stored_at, one.since, one.kind) for one in (first, second, last) if one]
    assert found == [(at(due), at(due) + LATE, at(-5), "interval") for due in (5, 16, 29)]
    assert watched(native, every, servers(2, 5, 15)._replace(stored_at=at(5)))[1] is not None, "not a moment early"
    assert watched({}, every, servers(2, 5, 15)) == [None, None], "no server fires on this stream"
    replaced = every._replace(sequence=2, block=b"")
    assert watched(native, every, replaced, servers(3, 5, 15)) == [None] * 3, "by an ordinary message"
    assert watched(native, defining(1, "@every 10s", x="X-"), ours(2, 5, None, x="X-"))[1] is not None


def test_a_schedule_is_held_until_it_has_fired_or_is_replaced() -> None:
    reader = FireReader({"name": "S", "subjects": ["S.>"]})
    every, once = defining(3, "@every 10s"), defining(8, f"@at {format_rfc3339(at(10))}")
    held = []
    for message in (every, ours(4, 10, 20), every._replace(sequence=7, block=b""), once, ours(6, 10, None)):
        reader.read(message)
        held.append(reader.holds("S.s"))
    assert (held, reader.last_read) == ([True, True, False, True, False], 8)


def test_a_fire_says_in_both_spellings_what_fired_and_what_follows() -> None:
    for dialect in DIALECTS:
        block = block_of((dialect.scheduler, b"S.\xff"), (dialect.next, "2027-01-15T09:00:00+01:00"))
        assert (fired_schedule_of(block), following_offset(block, dialect)) == ("S.\udcff", 3_600)
        assert following_offset(block_of((dialect.next, "purge")), dialect) is None
        assert dialect_named(dialect.name) is dialect
    assert (fired_schedule_of(b""), following_offset(b"", ADR51), dialect_named("other")) == ("", None, None)


# -- a message that claims to be a fire counts only if the schedule can have generated it, at that time ------------

NOON = 1_768_564_800 * SECOND
FIRE = NOON + MINUTE
FIRED = Generated("s.one", 1, FIRE)
EVERY = "@every 1m"
AT = f"@at {format_rfc3339(FIRE)}"


def claiming(following: str | None, stored_at: int = FIRE, dialect: Dialect = ADR51) -> StoredMessage:
    """Make a message on the target that says what follows."""
    lines = [] if following is None else [(dialect.next, following)]
    return StoredMessage("t.out", 5, stored_at, block_of((b"A", b"b"), *lines), b"")


def judged(pattern: str, message: StoredMessage, *, fire_time: int = FIRE, due: int = FIRE) -> str:
    """Return the fault of a message that claims to be the fire of a schedule that was stored at noon."""
    terms = Terms(ADR51, "t.out", "", "", False)
    return fault_of(FIRED._replace(fire_time=fire_time), message, Timetable(read_pattern(pattern), NOON), terms, due)


def test_its_time_is_a_fire_time_and_not_later_than_clocks_differ() -> None:
    assert not is_too_early(FIRE - MAX_CLOCK_DIFFERENCE_NS, FIRE)
    assert is_too_early(FIRE - MAX_CLOCK_DIFFERENCE_NS - 1, FIRE)
    early = claiming("purge", FIRE - MAX_CLOCK_DIFFERENCE_NS - 1)
    assert judged(EVERY, early) == TOO_EARLY
    assert judged(EVERY, claiming(format_rfc3339(FIRE + MINUTE), dialect=PORTABLE)) == ""
    assert judged(EVERY, claiming(format_rfc3339(FIRE - MINUTE), dialect=PORTABLE))
    assert judged(EVERY, claiming("purge", NOON + HOUR), fire_time=NOON + 3 * MINUTE) == ""
    other = NOON + 3 * MINUTE + SECOND
    assert judged(EVERY, claiming("purge", NOON + HOUR), fire_time=other) == "its time is no fire time of the schedule"
    assert judged(EVERY, claiming("purge", NOON + HOUR), fire_time=other, due=other) == ""


def test_what_follows_is_the_end_or_a_later_fire() -> None:
    for pattern, following, is_possible in (
        (EVERY, "purge", True),
        (EVERY, format_rfc3339(FIRE + 1), True),
        (EVERY, format_rfc3339(FIRE), False),
        (EVERY, "soon", False),
        (EVERY, "", False),
        (EVERY, None, False),
        (AT, "purge", True),
        (AT, format_rfc3339(FIRE + HOUR), False),
    ):
        fault = "" if is_possible else "its Nats-Schedule-Next is neither 'purge' nor a later fire time"
        assert judged(pattern, claiming(following)) == fault, (pattern, following)


def test_of_a_schedule_that_is_gone_any_later_fire_may_follow() -> None:
    for dialect in DIALECTS:
        none = f"its {dialect.next.decode()} is none that follows"
        terms = Terms(dialect, "t.out", "", "", False)
        assert names_end(claiming("purge", dialect=dialect).block, terms)
        assert not names_end(claiming(format_rfc3339(FIRE + 1), dialect=dialect).block, terms)
        for following, fault in (("purge", ""), (format_rfc3339(FIRE + 1), ""), (format_rfc3339(FIRE), none)):
            assert fault_of_following(FIRED, claiming(following, dialect=dialect)) == fault
    assert fault_of_following(FIRED, claiming(None)) == "it does not say what follows"
