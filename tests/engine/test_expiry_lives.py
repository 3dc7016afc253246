"""Random lives of a world without message TTLs, compared with a simple model of what should be left of it.

The model has the time of storage and the lifetime of every message that was ever stored, and nothing else.
"""

import os
from random import Random

import pytest

from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.world import ScheduleWorld
from tests.harness.tiers import sample

SEED = int(os.environ.get("NATS_SCHEDULER_SEED", "20260101"))
LIVES = 20 * int(os.environ.get("NATS_SCHEDULER_DIFFERENTIAL", "1"))

TTLS = {"": None, "1s": 1, "2500ms": 2, "5": 5, "0012": 12, "1m": 60, "never": None, "00": None}
"""The texts that are used, and the seconds that they stand for."""

GRACE_SECONDS = 2
"""Time (ns) for rounding up to the second, and for a last fire that needs the message before its removal."""


class Life:
    """One world, what is done to it, and what was ever stored in it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = ScheduleWorld(guard=False)
        self.messages: dict[int, StoredMessage] = {}
        self.ends: dict[int, int | None] = {}
        self.gone_early: list[int] = []
        self.world.stream.listen(self._stored)

    def act(self) -> None:
        """Do one thing, and let some time pass."""
        self.random.choice([self.schedule, self.schedule, self.message, self.restart, self.cut])()
        self.world.advance(self.random.randint(1, 12 * SECOND))
        self._look_for_what_went_early()

    def schedule(self) -> None:
        """Store a schedule with any lifetime, of itself and of what it generates."""
        subject = f"s.{self.random.randint(1, 6)}"
        pattern = self.random.choice(["@every 3s", "@every 10s", "*/7 * * * * *"])
        headers = {"Nats-Schedule": pattern, "Nats-Schedule-Target": f"t.{subject}"}
        for name in ("Nats-TTL", "Nats-Schedule-TTL"):
            if text := self.random.choice(list(TTLS)):
                headers[name] = text
        self.world.publish(subject, headers)

    def message(self) -> None:
        """Store a message of an application, which lives as long as it always did."""
        self.world.publish("x.any", {"Nats-TTL": "1s"})

    def restart(self) -> None:
        """Kill the sidecar, and start another after a while."""
        self.world.restart(self.random.choice([0, 3, 30]) * SECOND, with_checkpoint=self.random.random() < 0.5)

    def cut(self) -> None:
        """Cut the connection for a while."""
        self.world.lose_contact()
        self.world.advance(self.random.choice([1, 15]) * SECOND)
        self.world.regain_contact()

    def left(self) -> set[int]:
        """Return what the stream holds, without schedules that were replaced."""
        return {message.sequence for message in self.world.stream.messages() if self._counts(message)}

    def wanted(self) -> set[int]:
        """Return what it should hold."""
        now = self.world.now
        return {n for n, end in self.ends.items() if (end is None or end > now) and self._counts(self.messages[n])}

    def too_late(self) -> list[str]:
        """Return the fires for a time at which their schedule had expired."""
        ends = {sequence: end for sequence, end in self.ends.items() if end is not None}
        return [
            f"{fire.schedule} ({fire.schedule_sequence}) at {fire.fire_time}"
            for fire in self.world.generated
            if fire.fire_time >= ends.get(fire.schedule_sequence, fire.fire_time + 1)
        ]

    def _counts(self, message: StoredMessage) -> bool:
        newer = (m for m in self.messages.values() if m.subject == message.subject and m.sequence > message.sequence)
        return not (message.subject.startswith("s.") and any(newer))

    def _stored(self, message: StoredMessage) -> None:
        self.messages[message.sequence] = message
        lines = message.block.decode().split("\r\n")
        text = next((line[len("Nats-TTL: ") :] for line in lines if line.startswith("Nats-TTL: ")), "")
        seconds = None if message.subject == "x.any" else TTLS[text]
        self.ends[message.sequence] = None if seconds is None else message.stored_at + seconds * SECOND

    def _look_for_what_went_early(self) -> None:
        self.gone_early += sorted(self.wanted() - self.left())


@pytest.mark.clause("ttl-generated", "ttl-schedule", "ttl-restart")
@pytest.mark.parametrize("seed", sample(range(SEED, SEED + LIVES), fast=8))
def test_whatever_happens_what_has_expired_goes_and_all_else_stays(seed: int) -> None:
    life = Life(seed)
    for _ in range(40):
        life.act()
    life.world.advance(GRACE_SECONDS * SECOND)
    overdue = {
        n for n in life.left() if (end := life.ends[n]) is not None and end + GRACE_SECONDS * SECOND < life.world.now
    }
    assert (life.gone_early, life.too_late(), overdue) == ([], [], set())
    assert len(life.world.generated) > 20, "a life in which nothing fires shows nothing"
    assert len(life.messages) > len(life.left()), "nor does one in which nothing expires"
