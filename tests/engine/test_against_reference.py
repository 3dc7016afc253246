"""Random lives of a stream: exactly the fires are stored that a naive reference expects, at the instants it expects.

The reference uses nothing of the package, so that a mistake there is not repeated here. Everything but the fires
happens between full seconds, so that the order of events is never ambiguous: ambiguous histories, and networks that
are late, are for the simulation and the checkers of `tests.judge`.
"""

from dataclasses import dataclass

import pytest

from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.fire import Fire
from nats_scheduler.testing.network import Fate, Perfect
from nats_scheduler.testing.world import ScheduleWorld
from tests.harness.seeds import generator, seeds
from tests.judge.patterns import SECOND, Pattern

SUBJECTS = [f"s.{number}" for number in range(4)]
OUTAGES_SECONDS = [0, 1, 6, 25]
"""Well inside the duplicate window, which detects a repeated fire whose message was consumed."""
ACTS = 60

Stored = tuple[str, int, int, int]
"""Schedule, its sequence, fire time (ns), and when the fire must have been stored (ns)."""


@dataclass
class Version:
    """One version of a schedule, from its storing to its end."""

    subject: str
    sequence: int
    stored_at: int
    pattern: Pattern
    ended_at: int | None = None

    def fires(self, served: list[tuple[int, int]]) -> list[Stored]:
        """List its fires if the stream was served in these stretches (from, to; ns)."""
        found: list[Stored] = []
        last = -(1 << 62)
        for begin, end in served:
            begin, end = max(begin, self.stored_at), min(end, self.ended_at or end)
            if begin >= end or (found and not self.pattern.repeats):
                continue
            dues = self.pattern.dues(self.stored_at, end)
            overdue = [due for due in dues if last < due <= begin]
            coming = [due for due in dues if begin < due < end]
            fires = [(due, begin) for due in overdue[-1:]] + [(due, due) for due in coming]
            found += [(self.subject, self.sequence, due, at) for due, at in fires]
            last = fires[-1][0] if fires else last
        return found


class LostAnswers(Perfect):
    """Everything arrives at once, but first answers get lost, and so do purges.

    The answer to a repeated fire arrives: a fire that was consumed cannot be read back, and would never be concluded.
    """

    def __init__(self, name: str) -> None:
        self._random = generator(f"network of {name}")
        self._sent: set[tuple[int, int]] = set()

    def publish(self, fire: Fire) -> Fate:
        identity = (fire.sequence, fire.fire_time)
        repeated = identity in self._sent
        self._sent.add(identity)
        return Fate(answered=repeated or self._random.random() < 0.7)

    def purge(self, request: PurgeSchedule) -> Fate:
        return Fate(arrives=self._random.random() < 0.7, answered=self._random.random() < 0.7)


class RandomLife:
    """Acts on a world at random, at 0.3 s past a full second, and records what the reference needs."""

    def __init__(self, name: str, *, consumes: bool, guard: bool) -> None:
        self.random = generator(name)
        self.world = ScheduleWorld(network=LostAnswers(name), guard=guard)
        self.versions: list[Version] = []
        self.served: list[tuple[int, int]] = []
        self._consumes = consumes
        self._active: dict[str, Version] = {}
        self._served_since = self.world.now
        self.world.advance(SECOND * 3 // 10)

    def act(self) -> None:
        """Do one thing, and let some time pass."""
        acts = [self.store] * 3 + [self.overwrite, self.remove, self.cancel, self.restart, self.cut]
        self.random.choice(acts)()
        if self._consumes:
            self.world.stream.take("t.>")
        self.world.advance(self.random.choice([1, 2, 5, 20, 40]) * SECOND)

    def store(self) -> None:
        """Store a schedule, perhaps in place of another."""
        kind, number = self.random.choice(["at", "every", "cron"]), self.random.choice([1, 2, 3, 7, 20, 30])
        if kind == "at":
            number = self.world.now // SECOND + self.random.randint(-60, 60)
        subject = self._ended()
        following = self.world.stream.last_sequence + 1
        version = Version(subject, following, self.world.now, Pattern(kind, number))
        self._active[subject] = version
        self.versions.append(version)
        headers = {"Nats-Schedule": version.pattern.text, "Nats-Schedule-Target": f"t.{subject[2:]}"}
        assert self.world.publish(subject, headers, b"body") == version.sequence

    def overwrite(self) -> None:
        """Publish an ordinary message on the subject of a schedule."""
        self.world.publish(self._ended(), b"", b"plain")

    def remove(self) -> None:
        """Delete or purge a schedule."""
        subject = self._ended()
        stored = [message.sequence for message in self.world.stream.messages(subject)]
        if len(stored) == 1 and self.random.random() < 0.5:
            self.world.delete(stored[0])
        else:
            self.world.purge(subject)

    def cancel(self) -> None:
        """Cancel a schedule by a cancel message."""
        self.world.publish("x.cancel", {"Nats-Scheduler": self._ended(), "Nats-Schedule-Next": "purge"})

    def restart(self) -> None:
        """Kill the sidecar and start another after a while."""
        self.not_served()
        outage = self.random.choice(OUTAGES_SECONDS) * SECOND
        self.world.restart(outage, with_checkpoint=self._consumes or self.random.random() < 0.5)
        self._served_since = self.world.now

    def cut(self) -> None:
        """Cut the connection; meanwhile schedules come and go."""
        self.not_served()
        self.world.lose_contact()
        for _ in range(self.random.randint(0, 2)):
            self.random.choice([self.store, self.overwrite, self.remove, self.cancel])()
            self.world.advance(self.random.choice([1, 3, 8]) * SECOND)
        self.world.regain_contact()
        self._served_since = self.world.now

    def not_served(self) -> None:
        """Record the stretch in which the stream was served."""
        self.served.append((self._served_since, self.world.now))

    def _ended(self) -> str:
        """Choose a subject; what is stored there ends."""
        subject = self.random.choice(SUBJECTS)
        version = self._active.pop(subject, None)
        if version is not None:
            version.ended_at = self.world.now
        return subject


@pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])
@pytest.mark.parametrize("consumes", [False, True], ids=["kept", "consumed"])
@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_exactly_the_fires_that_came_due_are_stored(count: int, consumes: bool, guard: bool) -> None:
    for seed in seeds(count):
        life = RandomLife(f"life {count} {seed}", consumes=consumes, guard=guard)
        for _ in range(ACTS):
            life.act()
        life.not_served()
        wanted = sorted(fire for version in life.versions for fire in version.fires(life.served))
        stored = sorted((m.schedule, m.schedule_sequence, m.fire_time, m.stored_at) for m in life.world.generated)
        assert stored == wanted, f"seed {seed}"
        assert len(stored) > ACTS
