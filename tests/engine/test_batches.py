"""Messages that are read many at once mean what each of them means alone."""

from nats_scheduler.engine.inputs import CaughtUp, MessagesRead
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import Desk, message_on, plain, schedule
from tests.engine.paused_builders import paused
from tests.harness.seeds import generator, seeds

MANY = 16


def at(sequence: int, subject: str, after: int = HOUR) -> StoredMessage:
    return schedule(f"@at {format_rfc3339(START + after)}", sequence, subject)


def held(desk: Desk) -> dict[str, tuple[int, int]]:
    return {one.subject: (one.sequence, one.fire_time) for one in desk.engine.held}


def test_a_subject_that_comes_again_after_another_kind_of_message_is_held_once() -> None:
    first = [at(number, f"s.{number}") for number in range(1, MANY + 1)]
    desk = Desk(*first, schedule("@daily", 50, "s.daily"), at(51, "s.5"), at(52, "s.daily"))
    assert len(desk.engine.held) == MANY + 1
    assert (desk.held("s.5").sequence, desk.held("s.daily").sequence) == (51, 52)


def test_a_batch_leaves_what_single_messages_leave() -> None:
    for seed in seeds(20):
        random, messages = generator(f"batch {seed}"), list[StoredMessage]()
        for sequence in range(1, 121):
            subject = f"s.{random.randrange(30)}"
            made = random.choice((at, at, at, at, _every, _plain, _paused, _cancel, _invalid, _soon))
            messages.append(made(sequence, subject))
        one_by_one, batches = Desk(live=False), Desk(live=False)
        for message in messages:
            one_by_one.read(message)
        while messages:
            count = random.randrange(1, 60)
            batches.step(MessagesRead(messages[:count]))
            del messages[:count]
        for desk in (one_by_one, batches):
            desk.step(CaughtUp())
        assert held(batches) == held(one_by_one), f"seed {seed}"
        inactive, expected = batches.engine.inactive, one_by_one.engine.inactive
        assert (inactive.rejected, inactive.paused) == (expected.rejected, expected.paused), f"seed {seed}"


def _every(sequence: int, subject: str) -> StoredMessage:
    return schedule("@every 1h", sequence, subject)


def _plain(sequence: int, subject: str) -> StoredMessage:
    return plain(subject, sequence)


def _paused(sequence: int, subject: str) -> StoredMessage:
    return paused("@every 1h", sequence, subject)


def _cancel(sequence: int, subject: str) -> StoredMessage:
    return message_on("x.cancel", sequence, Nats_Scheduler=subject, Nats_Schedule_Next="purge")


def _invalid(sequence: int, subject: str) -> StoredMessage:
    return schedule("@often", sequence, subject)


def _soon(sequence: int, subject: str) -> StoredMessage:
    return at(sequence, subject, 30 * SECOND)


def test_an_instant_of_long_ago_that_no_row_can_have_is_held_and_named() -> None:
    desk = Desk(schedule("@at 1600-01-01T00:00:00Z"))
    desk.engine.held.write_changed(9)
    assert desk.is_held()
    assert [*desk.engine.held.unwritten] == [1]
