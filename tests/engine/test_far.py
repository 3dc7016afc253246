"""Far schedules: their rows, the agenda that makes them near, and that they are held like near ones."""

from array import array
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.engine.actions import Action, WakeAt
from nats_scheduler.engine.holding.far import (
    MAX_ROW_BYTES,
    MIN_ORDER_LENGTH,
    NO_FIRE_TIME,
    FarAgenda,
    FarRow,
    Kinds,
    Window,
)
from nats_scheduler.engine.holding.flight import Flight, Stage
from nats_scheduler.engine.holding.held import NO_EXPIRY, Held
from nats_scheduler.engine.holding.roster import ROW_LENGTH, Roster
from nats_scheduler.engine.inputs import CaughtUp, Checkpoint, MessagesRead, OwnershipChanged
from nats_scheduler.message.definition import Definition, Terms
from nats_scheduler.message.dialect import ADR51, DIALECTS
from nats_scheduler.message.policies import Policies
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.patterns import At, Pattern, parse_pattern
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339
from nats_scheduler.testing.clock import START
from tests.engine.direct import Desk, plain, schedule
from tests.engine.test_snapshots import kinds_of_messages
from tests.harness.seeds import draws, generator

FIRST_PLACE = 5 * ROW_LENGTH
STORED = 1_790_000_000 * SECOND + 7

NOT_COMPARED = ("flight", "__dict__")
AS_IT_IS = [slot for kind in Held.__mro__ for slot in getattr(kind, "__slots__", ()) if slot not in NOT_COMPARED]


def pattern(text: str, zone: str | None = None) -> Pattern:
    parsed = parse_pattern(text, zone)
    assert parsed is not None
    assert not isinstance(parsed, Invalid), parsed
    return parsed


PATTERNS = [
    *map(pattern, ["@at 2026-11-23T15:04:05Z", "@at 2026-11-23T15:04:05.250Z", "@at 2026-11-23T17:04:05.000+02:00"]),
    *(pattern("@every 90s"), pattern("0 30 9 * * mon-fri", "Europe/Berlin"), pattern("@daily")),
]
SUBJECTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=30)


def held(subject: str = "s.one", of: Pattern = PATTERNS[0], *, target: str = "t.one", sequence: int = 1) -> Held:
    one = Held(subject, sequence, Definition(of, Terms(ADR51, target, None, "", False)), STORED)
    one.wake = one.fire_time - 10 * SECOND
    return one


def facts(one: Held) -> dict[str, object]:
    return {slot: getattr(one, slot) for slot in AS_IT_IS if slot != "place"} | {"flight": one.flight}


@settings(max_examples=draws(20))
@given(
    st.lists(
        st.tuples(
            *(SUBJECTS, SUBJECTS, st.none() | SUBJECTS, st.sampled_from(PATTERNS), st.sampled_from(DIALECTS)),
            *(st.sampled_from(["", "5m", "never"]), st.booleans(), st.none() | st.integers(0, NO_FIRE_TIME)),
            st.integers(1, (1 << 63) - 1),
        ),
        max_size=20,
    )
)
def test_what_is_unpacked_is_what_was_packed(drawn: list[tuple[object, ...]]) -> None:
    row = FarRow(Kinds(), FIRST_PLACE)
    packed = []
    for place, values in enumerate(drawn):
        subject, target, source, of, dialect, ttl, rollup, expires, sequence = values
        one = Held(subject, sequence, Definition(of, Terms(dialect, target, source, ttl, rollup)), STORED)  # type: ignore[arg-type]
        one.expires = NO_EXPIRY if expires is None else expires  # type: ignore[assignment]
        one.wake = one.fire_time - SECOND
        assert row.pack(place, one)
        packed.append(one)
    for place, one in enumerate(packed):
        unpacked = row.unpacked(place)
        assert facts(unpacked) == facts(one)
        assert unpacked.place == FIRST_PLACE + place
        assert unpacked.pattern.text == one.pattern.text
        assert row.subject(place) == one.subject.encode()
        assert row.facts(place) == (one.expires, one.stored_at)
        found = row.fire_times[place], row.wakes[place], row.sequences[place]
        assert found == (one.fire_time, one.wake, one.sequence)


def test_bytes_that_are_no_text_come_back() -> None:
    row, odd = FarRow(Kinds(), 0), b"s.\xff\xfe".decode("utf-8", "surrogateescape")
    assert row.pack(0, held(odd, target=odd + ".t"))
    assert (row.unpacked(0).subject, row.unpacked(0).terms.target) == (odd, odd + ".t")


def test_what_cannot_be_packed_is_refused() -> None:
    in_progress, late = held(), held()
    in_progress.flight = Flight(Stage.READING)
    late.wake = NO_FIRE_TIME
    kept = Terms(ADR51, "t", None, "", False, Policies(report=True))
    treated = Held("s.one", 1, Definition(PATTERNS[0], kept), STORED)
    after_2262 = held(of=pattern("@at 2300-01-01T00:00:00Z"))
    row = FarRow(Kinds(), 0)
    for one in (in_progress, late, held("s.\0"), treated, after_2262, held("s" * (MAX_ROW_BYTES + 1))):
        assert not row.pack(0, one)
        assert not row.has(0)
    assert row.count == 0


def test_what_there_is_no_room_for_is_refused_until_something_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    row, long = FarRow(Kinds(), 0), "s" * (MAX_ROW_BYTES // 3)
    assert [row.pack(place, held(long + str(place))) for place in range(3)] == [True, True, False]
    row.remove(0)
    assert row.pack(2, held(long + "2"))
    assert [row.unpacked(place).subject for place in (1, 2)] == [long + "1", long + "2"]
    monkeypatch.setattr("nats_scheduler.engine.holding.far.MAX_KINDS", 2)
    kinds = FarRow(Kinds(), 0)
    assert [kinds.pack(place, held(of=PATTERNS[3 + place])) for place in range(3)] == [True, True, False]
    kinds.remove(0)
    assert kinds.pack(2, held(of=PATTERNS[5])), "a kind that is gone makes room"
    assert [kinds.unpacked(place).pattern for place in (1, 2)] == [PATTERNS[4], PATTERNS[5]]


def test_a_row_is_what_a_dictionary_is_after_any_changes() -> None:
    random, row, known = generator("changes of a row"), FarRow(Kinds(), 0), dict[int, Held]()
    for sequence in range(1, draws(1_500)):
        place = random.randrange(ROW_LENGTH)
        if place in known:
            row.remove(place)
            del known[place]
        else:
            known[place] = held("s" * random.randrange(1, 60), random.choice(PATTERNS), sequence=sequence)
            assert row.pack(place, known[place])
    assert sorted(row.places()) == sorted(known)
    assert all(facts(row.unpacked(place)) == facts(one) for place, one in known.items())
    assert row.count == sum(count for _kind, count in row.kinds()) == len(known)
    at = sum(isinstance(one.pattern, At) for one in known.values())
    assert sum(count for kind, count in row.kinds() if kind.pattern is None) == at
    assert len([kind for kind, _count in row.kinds() if kind.pattern is None]) == 1, "those of all instants are one"


def test_a_window_leaves_out_what_fires_outside_but_not_what_may_be_removed() -> None:
    row, window = FarRow(Kinds(), 0), Window(after=0, first=PATTERNS[0].first_fire(0) or 0)
    fading = held(of=PATTERNS[0], sequence=2)
    fading.expires = fading.fire_time - 1
    for place, one in enumerate((held(), fading, held(of=pattern("@at 2026-11-22T00:00:00Z")))):
        assert row.pack(place, one)
    assert [row.is_left_out(place, window) for place in range(3)] == [False, False, True]
    window.last = window.first - 1
    assert [row.is_left_out(place, window) for place in range(3)] == [True, False, True]


# -- the agenda hands out every place in time, and keeps few entries that are stale -----------------------------------

BITS = 10
SPAN = 1 << BITS


def agenda_at(now: int) -> FarAgenda:
    agenda = FarAgenda(BITS)
    agenda.comes_to(now)
    return agenda


def taken(agenda: FarAgenda, now: int) -> list[int]:
    agenda.comes_to(now)
    found: list[int] = []
    while part := agenda.take(3):
        found += part
    return found


def test_what_is_in_the_next_span_or_this_one_is_near_also_after_the_clock_was_set_back() -> None:
    agenda = agenda_at(7 * SPAN + 5)
    for now in (7 * SPAN + 5, 0):
        agenda.comes_to(now)
        assert [agenda.is_far(instant) for instant in (7 * SPAN, 9 * SPAN - 1, 9 * SPAN)] == [False, False, True]


def test_places_become_near_when_the_span_before_theirs_begins() -> None:
    agenda = agenda_at(0)
    agenda.add(4, 9 * SPAN + 3)
    agenda.add(5, 12 * SPAN)
    assert agenda.next_unpacking() == agenda.unpacking_of(9 * SPAN + 3) == 8 * SPAN
    assert (taken(agenda, 8 * SPAN - 1), taken(agenda, 8 * SPAN)) == ([], [4])
    assert agenda.next_unpacking() == 11 * SPAN
    assert (taken(agenda, 11 * SPAN), agenda.next_unpacking()) == ([5], None)
    for place in range(5):
        agenda.add(place, 19 * SPAN)
    agenda.comes_to(30 * SPAN)
    assert len(agenda.take(3)) == 3
    assert agenda.near_through(30 * SPAN) == 19 * SPAN - 1, "a part of an earlier span is left"
    assert len(agenda.take(3)) == 2
    assert agenda.near_through(30 * SPAN) == 30 * SPAN


def test_a_row_becomes_near_as_a_whole_with_its_earliest_wake() -> None:
    agenda = agenda_at(0)
    agenda.add_row(256, array("q", [20 * SPAN, 9 * SPAN + 3, 12 * SPAN]))
    agenda.add_row(512, array("q", [9 * SPAN]))
    agenda.add(4, 9 * SPAN + 7)
    agenda.became_stale(20 * SPAN, {256: 20 * SPAN}.get)
    assert agenda.next_unpacking() == 8 * SPAN
    assert (taken(agenda, 8 * SPAN - 1), agenda.take_row()) == ([], None)
    assert agenda.near_through(9 * SPAN) == 9 * SPAN - 1
    assert taken(agenda, 8 * SPAN) == [4]
    assert agenda.near_through(9 * SPAN) == 9 * SPAN - 1, "rows are left"
    assert {agenda.take_row(), agenda.take_row()} == {256, 512}
    assert (agenda.take_row(), agenda.near_through(9 * SPAN), agenda.next_unpacking()) == (None, 9 * SPAN, None)


def test_stale_entries_are_few_and_no_valid_one_is_lost() -> None:
    random, agenda, wakes = generator("stale entries"), agenda_at(0), dict[int, int]()
    entries = 0
    for step in range(draws(2_500)):
        place = random.randrange(250)
        before = wakes.get(place)
        wakes[place] = (5 + random.randrange(4)) * SPAN + random.randrange(SPAN)
        agenda.add(place, wakes[place])
        if before is not None:
            agenda.became_stale(before, wakes.get)
        entries = sum(map(len, agenda.spans.values()))
        assert entries <= 2 * len(wakes) + 10, f"step {step}"
    assert entries >= len(wakes)
    assert set(taken(agenda, 20 * SPAN)) == set(wakes)


def test_spans_that_begin_and_end_again_and_again_leave_little_behind() -> None:
    agenda = agenda_at(0)
    agenda.add_row(256, array("q", [30 * SPAN]))
    agenda.add(1, 40 * SPAN)
    for _ in range(5 * MIN_ORDER_LENGTH):
        agenda.add(2, 20 * SPAN)
        agenda.became_stale(20 * SPAN, {2: 50 * SPAN}.get)
        assert len(agenda.order) <= MIN_ORDER_LENGTH + 2 * 3
    agenda.became_stale(20 * SPAN, {2: 50 * SPAN}.get)
    assert agenda.next_unpacking() == 29 * SPAN
    agenda.comes_to(40 * SPAN)
    assert (agenda.take_row(), list(agenda.take(3)), agenda.next_unpacking()) == (256, [1], None)


# -- a schedule that is far when it is read is held like one that was near before -------------------------------------

DAY_SECONDS = 86_400


def asked(desk: Desk) -> list[Action]:
    """Return what the last step asked for: only when it wants the next one depends on what is far."""
    return [action for action in desk.actions if not isinstance(action, WakeAt)]


def asked_until(desk: Desk, seconds: float) -> list[Action]:
    """Step at an instant as often as the engine wants, and return what it asked for."""
    found = asked(desk.at(seconds))
    while any(isinstance(action, WakeAt) and action.instant <= desk.now for action in desk.actions):
        desk.step()
        found += asked(desk)
    return found


def fleet(random: Random, count: int, first: int) -> list[StoredMessage]:
    """Make the schedules of one program, nearly all on subjects of their own, and some due soon."""
    found = []
    for sequence in range(first, first + count):
        due = START + random.choice([SECOND, *[900 * 3_600 * SECOND] * 50]) + random.randrange(1_000) * MILLISECOND
        subject, target = f"s.{random.randrange(30 * count)}", f"t.{sequence}"
        pattern = f"@at {format_rfc3339(due)}"
        found.append(schedule(pattern, sequence, subject, stored_at=START, Nats_Schedule_Target=target))
    return [*found, found[0]._replace(sequence=first + count), plain(found[1].subject, first + count + 1)]


@pytest.mark.parametrize("is_owner", [True, False])
@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize(
    "parts",
    [{}, {"max_age": 40 * DAY_SECONDS * SECOND}, {"removes_expired": True}, {"reads_all": False}],
    ids=["usual", "max_age", "removes_expired", "work queue"],
)
def test_it_is_held_and_reported_and_read_like_a_near_one(
    monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any], live: bool, is_owner: bool
) -> None:
    random = generator(f"far like near {parts} {live} {is_owner}")
    far = Desk(live=live, **parts)
    with monkeypatch.context() as patch:
        patch.setattr(Roster, "far_bits", 62)  # nothing is ever far
        near = Desk(live=live, **parts)
    messages = kinds_of_messages(random, 150)
    settled = START + random.choice([-SECOND, 900 * 3600 * SECOND])
    for desk in (far, near):
        desk.step(OwnershipChanged(is_owner, Checkpoint(settled, 75)))
    runs = [messages[first : first + 17] for first in range(0, len(messages), 17)]
    for run in (*runs, fleet(random, 300, 151)):
        for desk in (far, near):
            desk.step(MessagesRead(run))
        assert asked(far) == asked(near)
        known = [
            sorted(
                (
                    *(one.subject, one.sequence, one.stored_at, one.fire_time),
                    one.wake,
                    one.expires,
                    one.terms,
                )
                for one in desk.engine.held
            )
            for desk in (far, near)
        ]
        assert known[0] == known[1]
    for desk in (far, near):
        desk.step(CaughtUp(), OwnershipChanged(True))
    assert far.engine.held.rows.far_count > 30 > near.engine.held.rows.far_count == 0
    for day in range(40):
        assert asked_until(far, day * DAY_SECONDS + 1) == asked_until(near, day * DAY_SECONDS + 1), f"day {day}"


def test_it_is_never_an_object_if_one_like_it_was_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    packed, pack = list[str](), FarRow.pack

    def noted(row: FarRow, place: int, held: Held) -> bool:
        packed.append(held.subject)
        return pack(row, place, held)

    monkeypatch.setattr(FarRow, "pack", noted)
    desk = Desk()
    desk.read(*(schedule("@at 2100-01-01T00:00:00Z", number, f"s.{number}") for number in range(1, 40)))
    assert desk.engine.held.rows.far_count == 39
    assert packed == ["s.1"]


def test_a_later_version_of_it_is_held_instead() -> None:
    desk = Desk()
    first, second, third = (
        [schedule(f"@at {year}-01-01T00:00:00Z", place + after, f"s.{place}") for place in (1, 2)]
        for year, after in ((2100, 0), (2101, 2), (2102, 4))
    )
    for versions in (first, second, third):
        desk.read(*versions)
        assert [(one.subject, one.sequence) for one in desk.engine.held] == [
            (one.subject, one.sequence) for one in versions
        ]


def test_texts_and_times_that_do_not_fit_into_a_row_are_held_all_the_same() -> None:
    desk = Desk()
    longest = "x" * 900
    many: list[StoredMessage] = [
        schedule("@at 2100-01-01T00:00:00Z", number, f"s.{longest}.{number}", stored_at=START + number * MILLISECOND)
        for number in range(1, 300)
    ]
    desk.read(*many)
    assert sorted(one.subject for one in desk.engine.held) == sorted(one.subject for one in many)
    assert len(desk.engine.held) == len(many)
    for due in ("2262-04-11T23:47:16Z", "2262-04-11T23:47:17Z", "9999-12-31T23:59:59Z"):
        first, *others = [schedule(f"@at {due}", number, f"s.{number}") for number in range(1, 5)]
        desk = Desk(first)
        desk.read(*others)
        assert all(desk.is_held(f"s.{number}") for number in range(1, 5)), due
        assert desk.engine.held.rows.far_count in (0, 4)
        assert {one.fire_time for one in desk.engine.held} == {parse_rfc3339(due)}
