"""A random life of a world: schedules come, change and go, the sidecar is killed, connections are cut, time passes.

Its rule: one seed, one life. What is done is recorded in the form that the reference takes.
"""

from random import Random

from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.reference import Version
from tests.judge.patterns import SECOND, Pattern

SUBJECTS = [f"s.{number}" for number in range(4)]
LONGEST_OUTAGE_SECONDS = 25
"""Well inside the duplicate window, which detects a repeated fire whose message was consumed."""


class RandomLife:
    """Acts on a world at random, at 0.3 s past a full second."""

    def __init__(self, seed: int, world: ScheduleWorld, *, consumes: bool = False) -> None:
        self.random = Random(seed)
        self.world = world
        self.versions: list[Version] = []
        self.served: list[tuple[int, int]] = []
        self._consumes = consumes
        self._active: dict[str, Version] = {}
        self._served_since = world.now
        self._acts = [
            self.store,
            self.store,
            self.store,
            self.overwrite,
            self.remove,
            self.cancel,
            self.restart,
            self.cut,
        ]
        world.advance(SECOND * 3 // 10)

    def act(self) -> None:
        """Do one thing, and let some time pass."""
        self.random.choice(self._acts)()
        if self._consumes:
            self.world.stream.take("t.>")
        self.world.advance(self.random.choice([1, 2, 5, 20, 40]) * SECOND)

    def end(self) -> None:
        """Close the record."""
        self._not_served()

    @property
    def active(self) -> list[Version]:
        """The versions that are the last message on their subjects, as far as a publisher knows."""
        return list(self._active.values())

    # -- acts ----------------------------------------------------------------------------------------------------

    def store(self) -> None:
        """Store a schedule, perhaps in place of another."""
        subject = self.random.choice(SUBJECTS)
        now = self.world.now
        kind = self.random.choice(["at", "every", "cron"])
        number = self.random.choice([1, 2, 3, 7, 20, 30])
        if kind == "at":
            number = now // SECOND + self.random.randint(-60, 60)
        version = Version(subject, self.world.stream.last_sequence + 1, now, Pattern(kind, number))
        self._end(subject)
        self._active[subject] = version
        self.versions.append(version)
        headers = {"Nats-Schedule": version.pattern.text, "Nats-Schedule-Target": f"t.{subject[2:]}"}
        assert self.world.publish(subject, headers, b"body") == version.sequence

    def overwrite(self) -> None:
        """Publish an ordinary message on the subject of a schedule."""
        subject = self.random.choice(SUBJECTS)
        self._end(subject)
        self.world.publish(subject, b"", b"plain")

    def remove(self) -> None:
        """Delete or purge a schedule."""
        subject = self.random.choice(SUBJECTS)
        self._end(subject)
        stored = [message.sequence for message in self.world.stream.messages(subject)]
        if len(stored) == 1 and self.random.random() < 0.5:
            self.world.delete(stored[0])
        else:
            self.world.purge(subject)

    def cancel(self) -> None:
        """Cancel a schedule by a cancel message."""
        subject = self.random.choice(SUBJECTS)
        self._end(subject, by_cancel=True)
        self.world.publish("x.cancel", {"Nats-Scheduler": subject, "Nats-Schedule-Next": "purge"})

    def restart(self) -> None:
        """Kill the sidecar and start another after a while."""
        self._not_served()
        self.world.restart(self._outage(), with_checkpoint=self._consumes or self.random.random() < 0.5)
        self._served_since = self.world.now

    def cut(self) -> None:
        """Cut the connection; meanwhile schedules come and go."""
        self._not_served()
        self.world.lose_contact()
        for _ in range(self.random.randint(0, 2)):
            self.random.choice([self.store, self.overwrite, self.remove, self.cancel])()
            self.world.advance(self.random.choice([1, 3, 8]) * SECOND)
        self.world.regain_contact()
        self._served_since = self.world.now

    # -- record --------------------------------------------------------------------------------------------------

    def _outage(self) -> int:
        return self.random.choice([0, 1, 6, LONGEST_OUTAGE_SECONDS]) * SECOND

    def _end(self, subject: str, *, by_cancel: bool = False) -> None:
        version = self._active.pop(subject, None)
        if version is not None:
            version.ended_at = self.world.now
            version.was_cancelled = by_cancel

    def _not_served(self) -> None:
        self.served.append((self._served_since, self.world.now))
