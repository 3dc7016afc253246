"""No more fires are in flight than the cap allows, whatever made them due: the window of a cancel depends on it."""

from typing import Any

import pytest

from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.holding.lifecycle import MAX_IN_FLIGHT
from nats_scheduler.engine.inputs import ContentRead, PublishConcluded, Stored, Unknown
from nats_scheduler.message.stored import StoredMessage
from tests.engine.direct import Desk, schedule

COUNT = 2 * MAX_IN_FLIGHT + 50
STEPS = 50
"""More steps than any test here needs, so that one that never ends fails."""


class Server:
    """Answers everything that a desk asks for, and counts what is in flight."""

    def __init__(self, desk: Desk, stored: list[StoredMessage]) -> None:
        self.desk = desk
        self.messages = {message.sequence: message for message in stored}
        self.in_flight: list[Fire] = []
        self.most_in_flight = 0

    def answer_reads(self) -> None:
        """Answer reads until none is asked for."""
        while True:
            self.in_flight += self.desk.fires
            self.most_in_flight = max(self.most_in_flight, len(self.in_flight))
            answers = [ContentRead(*asked, self.messages[asked[1]], None) for asked in self.desk.reads]
            if not answers and not self.desk.fires:
                return
            self.desk.step(*answers)

    def conclude_all(self, *, known: bool = True) -> list[str]:
        """Conclude what is in flight; returns the schedules of these fires."""
        concluded, self.in_flight = self.in_flight, []
        outcomes = [Stored(10_000 + fire.sequence) if known else Unknown("no answer") for fire in concluded]
        self.desk.step(*map(PublishConcluded, concluded, outcomes))
        self.answer_reads()
        return [fire.schedule for fire in concluded]


def server_with(source: str | None, *, guard: bool) -> Server:
    more: Any = {} if source is None else {"Nats_Schedule_Source": source}
    stored = [schedule("@at 2026-01-01T00:00:05Z", number, f"s.{number}", **more) for number in range(1, COUNT + 1)]
    return Server(Desk(*stored, guard=guard), stored)


@pytest.mark.parametrize("guard", [True, False])
@pytest.mark.parametrize("source", [None, "t.source"])
def test_overdue_and_sampled_fires_whose_content_arrives_late_stay_within_the_cap(
    guard: bool, source: str | None
) -> None:
    server = server_with(source, guard=guard)
    server.desk.at(60)  # after an outage: everything is overdue, and nothing was read
    server.answer_reads()
    done: list[str] = []
    for _ in range(STEPS):
        done += server.conclude_all()
    assert server.most_in_flight == MAX_IN_FLIGHT
    assert sorted(done) == sorted(message.subject for message in server.messages.values())


def test_fires_of_unknown_outcome_are_repeated_within_the_cap() -> None:
    server = server_with(None, guard=False)
    server.desk.at(60)
    server.answer_reads()
    server.conclude_all(known=False)
    for seconds in range(61, 61 + STEPS):
        server.desk.at(seconds)
        server.answer_reads()
        server.conclude_all()
    assert server.most_in_flight == MAX_IN_FLIGHT
    assert server.desk.engine.fires_stored == COUNT
