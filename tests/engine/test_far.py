"""The rows of far schedules: what is unpacked is what was packed, in every place and after any changes of the row."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.engine.holding.far import MAX_ROW_BYTES, NO_FIRE_TIME, FarRow, Kinds, Window
from nats_scheduler.engine.holding.flight import Flight, Stage
from nats_scheduler.engine.holding.held import NO_EXPIRY, Held
from nats_scheduler.engine.holding.roster import ROW_LENGTH
from nats_scheduler.message.definition import Definition, Terms
from nats_scheduler.message.dialect import ADR51, DIALECTS
from nats_scheduler.message.policies import Policies
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.patterns import At, Pattern, parse_pattern

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
    pattern("@at 2026-11-23T15:04:05Z"),
    pattern("@at 2026-11-23T15:04:05.250Z"),
    pattern("@at 2026-11-23T17:04:05.000+02:00"),
    pattern("@every 90s"),
    pattern("0 30 9 * * mon-fri", "Europe/Berlin"),
    pattern("@daily"),
]
SUBJECTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=30)


def held(subject: str = "s.one", of: Pattern = PATTERNS[0], *, target: str = "t.one", sequence: int = 1) -> Held:
    one = Held(subject, sequence, Definition(of, Terms(ADR51, target, None, "", False)), STORED)
    one.wake = one.fire_time - 10 * SECOND
    return one


def facts(one: Held) -> dict[str, object]:
    return {slot: getattr(one, slot) for slot in AS_IT_IS if slot != "place"} | {"flight": one.flight}


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
        assert (row.fire_times[place], row.wakes[place], row.sequences[place]) == (
            one.fire_time,
            one.wake,
            one.sequence,
        )


def test_bytes_that_are_no_text_come_back() -> None:
    row, odd = FarRow(Kinds(), 0), b"s.\xff\xfe".decode("utf-8", "surrogateescape")
    assert row.pack(0, held(odd, target=odd + ".t"))
    assert (row.unpacked(0).subject, row.unpacked(0).terms.target) == (odd, odd + ".t")


def test_what_cannot_be_packed_is_refused() -> None:
    in_progress, late, with_nul = held(), held(), held("s.\0")
    in_progress.flight = Flight(Stage.READING)
    late.wake = NO_FIRE_TIME
    kept = Terms(ADR51, "t", None, "", False, Policies(report=True))
    treated = Held("s.one", 1, Definition(PATTERNS[0], kept), STORED)
    after_2262 = held(of=pattern("@at 2300-01-01T00:00:00Z"))
    row = FarRow(Kinds(), 0)
    for one in (in_progress, late, with_nul, treated, after_2262, held("s" * (MAX_ROW_BYTES + 1))):
        assert not row.pack(0, one)
        assert not row.has(0)
    assert row.count == 0


def test_a_row_whose_texts_are_full_takes_no_more_until_some_are_removed() -> None:
    row, long = FarRow(Kinds(), 0), "s" * (MAX_ROW_BYTES // 3)
    assert [row.pack(place, held(long + str(place))) for place in range(3)] == [True, True, False]
    row.remove(0)
    assert row.pack(2, held(long + "2"))
    assert [row.unpacked(place).subject for place in (1, 2)] == [long + "1", long + "2"]


def test_a_kind_that_cannot_be_counted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nats_scheduler.engine.holding.far.MAX_KINDS", 2)
    row = FarRow(Kinds(), 0)
    assert row.pack(0, held(of=PATTERNS[3]))
    assert row.pack(1, held(of=PATTERNS[4]))
    assert not row.pack(2, held(of=PATTERNS[5]))
    row.remove(0)
    assert row.pack(2, held(of=PATTERNS[5])), "a kind that is gone makes room"
    assert [row.unpacked(place).pattern for place in (1, 2)] == [PATTERNS[4], PATTERNS[5]]


@pytest.mark.parametrize("seed", range(5))
def test_a_row_is_what_a_dictionary_is_after_any_changes(seed: int) -> None:
    random, row, known = Random(seed), FarRow(Kinds(), 0), dict[int, Held]()
    for sequence in range(1, 4_000):
        place = random.randrange(ROW_LENGTH)
        if place in known:
            row.remove(place)
            del known[place]
        else:
            known[place] = held("s" * random.randrange(1, 60), random.choice(PATTERNS), sequence=sequence)
            assert row.pack(place, known[place])
    assert row.count == len(known)
    assert sorted(row.places()) == sorted(known)
    assert all(facts(row.unpacked(place)) == facts(one) for place, one in known.items())
    assert sum(count for _kind, count in row.kinds()) == len(known)
    at = sum(isinstance(one.pattern, At) for one in known.values())
    assert Counter({kind.pattern is None: count for kind, count in row.kinds()})[True] <= at
    assert sum(count for kind, count in row.kinds() if kind.pattern is None) == at


def test_a_window_leaves_out_what_fires_outside_but_not_what_may_be_removed() -> None:
    row, window = FarRow(Kinds(), 0), Window(after=0, first=PATTERNS[0].first_fire(0) or 0)
    fading = held(of=PATTERNS[0], sequence=2)
    fading.expires = fading.fire_time - 1
    for place, one in enumerate((held(), fading, held(of=pattern("@at 2026-11-22T00:00:00Z")))):
        assert row.pack(place, one)
    assert [row.is_left_out(place, window) for place in range(3)] == [False, False, True]
    window.last = window.first - 1
    assert [row.is_left_out(place, window) for place in range(3)] == [True, False, True]


def test_facts_are_those_of_the_schedule() -> None:
    row, one = FarRow(Kinds(), 0), held("s.some")
    one.expires = one.fire_time + 5
    assert row.pack(0, one)
    assert (row.fire_times[0], *row.facts(0)) == (one.fire_time, one.expires, one.stored_at, one.shard)
