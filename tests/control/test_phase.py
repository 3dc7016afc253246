"""A schedule that is stored again keeps its fire times."""

from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.control.current import read_current
from nats_scheduler.control.port import Served
from nats_scheduler.control.storing import with_phase
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from tests.control.world import SUBJECT, block

SERVED = Served(StreamRules("S", ("S.>",)), (ADR51,), is_native=False)
STORED_AT = 1_790_000_000 * SECOND


@given(
    st.integers(1_000, 10_000_000),
    st.integers(0, 2 * SECOND),
    st.integers(0, 10**7 * SECOND),
    st.lists(st.integers(SECOND, 10**7 * SECOND), max_size=3),
)
def test_the_grid_survives_any_number_of_edits(
    interval_ms: int, fraction: int, asked_after: int, edits_after: list[int]
) -> None:
    stored_at = STORED_AT + fraction
    message = StoredMessage(SUBJECT, 1, stored_at, block(f"@every {interval_ms}ms"), b"")
    first = read_current(message, SERVED)
    assert first is not None
    for after in sorted(edits_after):
        found = read_current(message, SERVED)
        assert found is not None
        again, _notes = with_phase(found, message.block)
        message = message._replace(block=again, sequence=message.sequence + 1, stored_at=stored_at + after + 1)
    last = read_current(message, SERVED)
    assert last is not None
    at = max(stored_at + asked_after, message.stored_at)
    expected = first.timetable().next_fire(at)
    assert last.timetable().next_fire(at) == expected
    assert expected is not None
    assert expected - at <= interval_ms * MILLISECOND + SECOND


@given(st.integers(1, 10_000), st.integers(0, 2 * SECOND), st.integers(0, 2 * SECOND))
def test_an_interval_of_whole_seconds_may_be_edited_at_once(seconds: int, fraction: int, after: int) -> None:
    message = StoredMessage(SUBJECT, 1, STORED_AT + fraction, block(f"@every {seconds}s"), b"")
    first = read_current(message, SERVED)
    assert first is not None
    again, _notes = with_phase(first, message.block)
    edited = message._replace(block=again, sequence=2, stored_at=message.stored_at + after)
    last = read_current(edited, SERVED)
    assert last is not None
    assert last.timetable().first_fire() == first.timetable().next_fire(edited.stored_at)
