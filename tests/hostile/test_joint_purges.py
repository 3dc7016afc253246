"""Requests to purge whatever a filter matches, as anybody may send them who may purge a stream, cost a standby little.

The rule: a standby believes that what is done may be gone, and nothing else of such a request.
"""

import pytest

from nats_scheduler.engine.actions import WakeAt
from nats_scheduler.engine.holding.purges import MAX_JOINT_FILTERS
from nats_scheduler.engine.inputs import (
    ContentFetched,
    Input,
    MessagesRead,
    OwnershipChanged,
    RemovalRequested,
    Stored,
)
from nats_scheduler.jetstream.request_watch import MAX_SUBJECT_CHARACTERS
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import Desk, schedule, standing_by
from tests.engine.test_standby import fires_of
from tests.harness.seeds import generator, seeds
from tests.hostile.effort import at_most, bytes_kept

pytestmark = pytest.mark.clause("hostile-subjects")

LARGEST = 2**63 - 1
SECONDS = 1.5
"""Process time for 60 long filters and 300 schedules: about 0.1 s, and 2 s if each is split each time."""

MAX_KEPT = 4 << 20
"""Bytes that are kept of 1,200 long filters: about 3 MB, and 6 MB if all are kept."""


def burst(count: int) -> list[StoredMessage]:
    """Make schedules of one burst."""
    return [schedule("@at 2026-01-01T00:00:05Z", number, f"s.{number}.x") for number in range(1, count + 1)]


def long_filter(number: int, first: str = "s") -> str:
    """Make a filter as long as the longest that is compared; each number makes another one."""
    return f"{first}.{number}." + ("*." * MAX_SUBJECT_CHARACTERS)[: MAX_SUBJECT_CHARACTERS - 12] + "*"


def test_long_filters_are_compared_with_what_is_done_in_little_time() -> None:
    messages = burst(300)
    desk, fires = standing_by(*messages).at(5), fires_of(messages)
    desk.read(*fires[:150])
    with at_most(SECONDS):
        for number in range(60):
            desk.step(RemovalRequested(long_filter(number), below=LARGEST))
        desk.read(*fires[150:])  # each of them is compared with the filters that are kept
    assert len(desk.engine.held) == len(messages)


def test_of_many_long_filters_few_are_kept() -> None:
    messages = burst(10)
    fires = fires_of(messages)

    def asked() -> Desk:
        desk = standing_by(*messages).at(5)
        desk.read(*fires)
        for number in range(1_200):
            desk.step(RemovalRequested(long_filter(number), below=LARGEST - number))
        return desk

    assert bytes_kept(asked, attempts=1) < MAX_KEPT
    assert MAX_JOINT_FILTERS <= 16


def fired_by(desk: Desk, messages: list[StoredMessage], seconds: float) -> list[int]:
    """Have an engine take over, answer all that it asks, and return the sequences of the schedules that it fires."""
    stored = {one.subject: one for one in messages}
    fired: list[int] = []
    desk.now = START + int(seconds * SECOND)
    desk.step(OwnershipChanged(True))
    for _ in range(200):
        reads, fires = desk.reads, desk.fires
        fired += [fire.sequence for fire in fires]
        is_woken = desk.asked(WakeAt) and desk.asked(WakeAt)[-1].instant <= desk.now
        if not (reads or fires or is_woken):
            return sorted(fired)
        desk.step(*(ContentFetched(subject, sequence, stored[subject], None) for subject, sequence in reads))
        actions = [*desk.actions]
        for fire in fires:
            desk.concluded(fire, Stored(20_000 + fire.sequence))
            actions += desk.actions
        desk.actions = actions
    raise AssertionError("it comes to no end")


def test_whatever_is_requested_no_schedule_is_lost_or_fires_twice() -> None:
    messages = burst(60)
    fires = fires_of(messages)
    for seed in seeds(10):
        random = generator(f"joint purges {seed}")
        desk, done = standing_by(*messages).at(4), set[int]()
        for _ in range(60):
            tokens = random.choices(["s", "*", "x", ">", "", "7", "*x", "\udcff"], k=random.randint(1, 4))
            wanted = ".".join(tokens) if random.random() < 0.8 else f"s.{random.randint(1, 60)}.x"
            below = random.choice([None, 1, random.randint(1, 70), LARGEST])
            some = random.sample(range(60), random.randint(0, 3))
            facts: list[Input] = [
                MessagesRead([fires[number] for number in some]),
                RemovalRequested(wanted, below=below),
            ]
            random.shuffle(facts)
            desk.now = max(desk.now, START + 5 * SECOND)
            desk.step(*facts)
            done.update(number + 1 for number in some)
        assert fired_by(desk, messages, 7) == sorted(set(range(1, 61)) - done), seed
