"""One simulated world: first everything breaks, then it heals; what happened is recorded for the judge.

Its rule: one seed, one history. Time passes only on the timeline, and all that is random comes from the seed.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from random import Random

from nats_scheduler.engine.ownership.owners import GONE_AFTER_NS
from tests.judge.checkers import Violation, verdict
from tests.judge.history import SECOND, Fault, History, Life
from tests.simulation.clients import Forger, Publishers, Workers
from tests.simulation.files import BEFALLS, hasty, limited, near
from tests.simulation.instance import Instance
from tests.simulation.process import OF_FILES, Point
from tests.simulation.scenario import (
    CLOCK_OFF,
    LONGEST,
    LONGEST_AGREEMENT,
    LONGEST_LAG,
    NOTICED_AFTER,
    PARTITION_NOTICED,
    SILENT,
    UNANSWERED,
    Scenario,
)
from tests.simulation.server import CONSUMED_AFTER, OTHER_SEQUENCES, Server
from tests.simulation.sidecar import REAL, Parts
from tests.simulation.timeline import EndlessError, Timeline

SHARED = ("lossy", "slow", "refusing", "cut")
"""Faults of the server, which concern all instances at once."""

BUCKET_MADE_ANEW = 3 * SECOND
"""The time (ns) from its deletion until the bucket exists again, with heartbeats of all instances."""

AT_REST = 10 * SECOND
"""Length (ns) of the end phase, in which the stream should keep its owner."""

Trace = Callable[[str], None]


def silent(_line: str) -> None:
    """Trace nothing."""


class World:
    """One seed, from its beginning to its end."""

    def __init__(self, scenario: Scenario, trace: Trace = silent, parts: Parts = REAL) -> None:
        self.scenario = scenario
        self.timeline = Timeline()
        start = self.timeline.now
        self.history = History(scenario.terms, begin=start)
        written = (
            trace if trace is silent else lambda line: trace(f"{(self.timeline.now - start) / SECOND:9.4f} {line}")
        )
        self._trace = written
        self._random = Random(f"faults {scenario.seed}")
        self._befalling = Random(f"what befalls files {scenario.seed}")
        self._born: dict[str, int] = {}
        self._leaves_since: dict[str, int] = {}
        self._consumed_through = 0
        self._unable_until = 0
        self.server = Server(scenario, self.timeline, self.history, written)
        self.publishers = Publishers(self.server, scenario, written)
        if scenario.beats:
            self.publishers.store_beat()
        self.forger = Forger(self.server, scenario.seed, written)
        if scenario.overlaps or scenario.deadlines:
            self.workers = Workers(self.server, scenario.seed)
        self.instances = [
            Instance(f"i{n}", self.server, Random(f"instance {scenario.seed} {n}"), written, parts)
            for n in range(scenario.instances)
        ]
        self.server.listeners += self.instances
        self.server.calendars.readers += self.instances
        self._faults: dict[str, Callable[[Instance, int], None]] = {
            "kill": self._kill,
            "crash": self._crash,
            "leave": self._leave,
            "stall": self._stall,
            "cut": self._cut,
            "partition": self._partition,
            "lossy": self._spell("lossy"),
            "slow": self._spell("slow"),
            "refusing": self._spell("refusing"),
            "clock": self._step_clock,
            "disk full": lambda instance, _duration: instance.fill_disk(),
            "row altered": lambda instance, _duration: instance.alter_row(),
            "bucket deleted": self._delete_bucket,
            "bucket silent": self._silence_bucket,
            "denied": self._disable("denied"),
            "idle": self._disable("idle"),
            "receives nothing": self._receive_nothing,
            "forged owner": self._forge_owner,
            "forged heartbeat": self._forge_heartbeat,
        }

    def run(self) -> History:
        """Break everything, heal everything, and return what happened; what is raised names the scenario."""
        seed = self.scenario.seed
        with limited(near(seed)), limited(hasty(seed) if self.scenario.files else ()):
            try:
                return self._run()
            except Exception as error:
                error.add_note(f"in the world of {self.scenario}")
                for instance in self.instances:
                    with suppress(EndlessError):  # what steps without end does so in its end, too
                        instance.process.end()
                raise
            finally:
                self.server.remove_machines()

    def _run(self) -> History:
        for instance in self.instances:
            instance.crashed, instance.left = self._has_crashed, self._has_left
            instance.lost_file = self._has_lost_file
            self._boot(instance)
        self._may_be_unread()
        self.publishers.act_now_and_again(self.scenario.publishes_every)
        self.publishers.feed_now_and_again()
        self.publishers.purge_now_and_again()
        if self.scenario.pauses:
            self.publishers.pause_now_and_again()
        if self.scenario.elsewhere:
            self.publishers.publish_elsewhere_now_and_again()
        if self.scenario.calendars:
            self.server.calendars.begin()
        if self.scenario.forges:
            self.forger.forge_now_and_again()
        if self.scenario.consumes:
            self._consume()
        if self.scenario.lags:
            self._lag_now_and_again(Random(f"lags {self.scenario.seed}"))
        if self.scenario.disagrees:
            self._disagree_now_and_again(Random(f"agreements {self.scenario.seed}"))
        if self.scenario.disagrees and self.scenario.leads_anew:
            self._lead_anew_now_and_again(Random(f"leads {self.scenario.seed}"))
        self.timeline.after(self.scenario.breaks_every, self._break)
        self.timeline.run(self.scenario.breaks_for)
        self._heal()
        self.timeline.run(self.scenario.heals_for - AT_REST)
        before = self.server.bucket.takeovers
        self.timeline.run(AT_REST)
        self.history.takeovers = self.server.bucket.takeovers - before
        return self._closed()

    # -- phases --------------------------------------------------------------------------------------------------

    def _break(self) -> None:
        if self.publishers.is_over:
            return
        if self.scenario.kinds:
            kind = self._random.choice(self.scenario.kinds)
            duration = int(self._random.random() * LONGEST[kind])
            is_shared = kind in SHARED and self._random.random() < 0.5
            for instance in self.instances if is_shared else [self._random.choice(self.instances)]:
                self._faults[kind](instance, duration)
        self.timeline.after(int(self._random.expovariate(1 / self.scenario.breaks_every)), self._break)

    def _lag_now_and_again(self, random: Random) -> None:
        """Let the leader be behind the followed node, by another lag each time, and half of the time by none."""
        is_behind = not self.publishers.is_over and random.random() < 0.5
        self.server.stream.behind = int(random.random() * LONGEST_LAG) if is_behind else 0
        if is_behind:
            self._trace(f"server: its leader is {self.server.stream.behind / SECOND:.3f} s behind")
        self.timeline.after(int(random.random() * 2 * SECOND), lambda: self._lag_now_and_again(random))

    def _disagree_now_and_again(self, random: Random) -> None:
        """Let the replicas need long for a while to agree on fires, another time each time."""
        agreement, now = self.server.agreement, self.timeline.now
        is_slow = not (self.publishers.is_over or agreement.takes)
        agreement.takes = int(random.random() * LONGEST_AGREEMENT) if is_slow else 0
        lasts = int(random.random() * (2 if is_slow else 8) * SECOND)
        if is_slow:
            self._trace(f"server: its replicas agree after {agreement.takes / SECOND:.3f} s")
            self.history.faults.append(Fault("agreement", None, now, now + lasts + agreement.takes))
        self.timeline.after(lasts, lambda: self._disagree_now_and_again(random))

    def _lead_anew_now_and_again(self, random: Random) -> None:
        """Let another node lead while the replicas need long to agree on fires."""
        if self.server.agreement.takes:
            self._trace("server: another node leads its stream")
            self.server.agreement.change_leader()
        self.timeline.after(int(random.random() * SECOND), lambda: self._lead_anew_now_and_again(random))

    def _heal(self) -> None:
        self._trace("world: heals")
        self.publishers.is_over = self.forger.is_over = True
        if self.scenario.calendars:
            self.server.calendars.end()
        self.server.bucket.leaderless_until = min(self.server.bucket.leaderless_until, self.timeline.now)
        for instance in self.instances:
            instance.spare()
            instance.weather.kinds.clear()
            instance.weather.cut_until = min(instance.weather.cut_until, self.timeline.now)
            instance.wake(acts_first=False)
            if instance.clock.ahead:
                self._broken("clock", None, CLOCK_OFF)
                instance.step_clock(0)
            if instance.is_alive and instance.is_leaving:
                instance.kill()
                self._died(instance)
            if not instance.is_alive:
                self._boot(instance)

    def _closed(self) -> History:
        owners = [one.name for one in self.instances if one.is_owner and not one.fires_beside]
        self.history.owned_by = owners if self.scenario.elects else None
        self.history.read_by = [instance.name for instance in self.instances if instance.is_reading]
        for instance in self.instances:
            if instance.is_alive:
                self._died(instance)
                instance.process.end()
        self.history.end = self.timeline.now
        self.history.found_no_checkpoint = self.server.bucket.found_nothing_at
        self.history.remaining = {message.sequence for message in self.server.stream.messages("s.*")}
        elsewhere = {OTHER_SEQUENCES + message.sequence for message in self.server.other.messages()}
        self.history.remaining_fires = {message.sequence for message in self.server.stream.messages()} | elsewhere
        return self.history

    def _consume(self) -> None:
        if self.server.stream.last_sequence > self._consumed_through:
            self._consumed_through = self.server.stream.last_sequence
            self.server.stream.take("t.*")
        self.timeline.after(int(self._random.random() * CONSUMED_AFTER), self._consume)

    # -- record --------------------------------------------------------------------------------------------------

    def _broken(self, kind: str, instance: Instance | None, duration: int) -> None:
        """Record a fault; if clocks are wrong, the acts of one instance concern all from then on."""
        now, name = self.timeline.now, None if instance is None else instance.name
        if "clock" in self.scenario.kinds:
            name, duration = None, duration + CLOCK_OFF
        self.history.faults.append(Fault(kind, name, now, now + duration, silences=kind in SILENT))
        if kind in SILENT and instance is not None:
            self._may_be_unread(besides=instance)

    def _may_be_unread(self, besides: Instance | None = None) -> None:
        """Note that an instance is gone, or none has read yet: if no other owns the stream, one is to read first."""
        others = [one for one in self.instances if one is not besides and not one.process.is_stalled]
        if self.scenario.standbys is not None and not any(one.is_owner for one in others):
            now = self.timeline.now
            until = now + GONE_AFTER_NS + self.scenario.reads_for
            self.history.faults.append(Fault("unread", None, now, until))

    def _boot(self, instance: Instance) -> None:
        chance = self._random.random()
        memory = "none" if chance < 0.2 else "latest"
        if chance > 0.8 and not self.scenario.consumes and not self.scenario.elects:
            memory = "older"
        if instance.machine is not None and self.scenario.alters_files:
            instance.machine.befall(self._befalling.choices([*BEFALLS], [*BEFALLS.values()])[0])
        instance.boot(memory)
        self._born[instance.name] = self.timeline.now
        if "clock" in self.scenario.kinds:
            self._broken("boot", None, 0)

    def _died(self, instance: Instance) -> None:
        """Record a life; one that was asked to end starts no fires, for as long as that may take."""
        since = self._leaves_since.pop(instance.name, None)
        if since is not None:
            gone = min(self.timeline.now, since + self.scenario.terms.resumes_within)
            self.history.faults.append(Fault("leave", instance.name, since, gone, silences=True))
        self.history.lives.append(Life(instance.name, self._born[instance.name], self.timeline.now))
        self._may_be_unread(besides=instance)

    # -- faults --------------------------------------------------------------------------------------------------

    def _kill(self, instance: Instance, duration: int) -> None:
        if instance.is_alive:
            instance.kill()
            self._died(instance)
            self.timeline.after(duration, lambda: self._boot_again(instance))

    def _boot_again(self, instance: Instance) -> None:
        if not instance.is_alive:
            self._boot(instance)

    def _crash(self, instance: Instance, duration: int) -> None:
        """Let it die at one of the next points, or at the next one of a kind that may be rare."""
        points = [point for point in Point if self.scenario.files or point not in OF_FILES]
        at = self._random.choice([None, *points])
        instance.doom(at, duration % 7 if at is None else 0)
        if at is Point.LEAVE:
            self._asked_to_end(instance)

    def _has_crashed(self, instance: Instance) -> None:
        self._died(instance)
        wait = int(self._random.random() * LONGEST["crash"])
        self.timeline.after(wait, lambda: self._boot_again(instance))

    def _has_lost_file(self, instance: Instance) -> None:
        """Record that an instance reads the stream anew from now on."""
        now = self.timeline.now
        self.history.faults.append(Fault("file lost", instance.name, now, now, silences=True))
        self._may_be_unread(besides=instance)

    def _leave(self, instance: Instance, _duration: int) -> None:
        self._asked_to_end(instance)

    def _asked_to_end(self, instance: Instance) -> None:
        instance.leave()
        if instance.is_leaving:
            self._leaves_since.setdefault(instance.name, self.timeline.now)

    def _has_left(self, instance: Instance) -> None:
        self._died(instance)
        wait = int(self._random.random() * LONGEST["leave"])
        self.timeline.after(wait, lambda: self._boot_again(instance))

    def _stall(self, instance: Instance, duration: int) -> None:
        if instance.is_alive and not instance.process.is_stalled:
            instance.process.stall()
            self._broken("stall", instance, duration)
            acts_first = self._random.random() < 0.5
            self.timeline.after(duration, lambda: instance.wake(acts_first=acts_first))

    def _cut(self, instance: Instance, duration: int) -> None:
        instance.cut(duration)
        self._broken("cut", instance, duration)

    def _partition(self, instance: Instance, duration: int) -> None:
        """Let nothing through; a long partition is noticed, and successive ones count as one.

        What was sent before it is noticed arrives then, so that the others receive its last heartbeat.
        """
        weather, now = instance.weather, self.timeline.now
        if weather.cut_until <= now:
            weather.silent_since = now
        delay = max(weather.silent_since + PARTITION_NOTICED - now, 0)
        weather.cut_until = max(weather.cut_until, now + min(duration, delay))
        self._broken("partition", instance, min(duration, delay))
        if duration > delay:
            self.timeline.after(delay, lambda: self._cut(instance, duration - delay))

    def _spell(self, kind: str) -> Callable[[Instance, int], None]:
        def begin(instance: Instance, duration: int) -> None:
            self._trace(f"{instance.name}: is {kind} for {duration / SECOND:.3f} s")
            instance.weather.kinds.add(kind)
            self._broken(kind, instance, duration)
            self.timeline.after(duration, lambda: instance.weather.kinds.discard(kind))

        return begin

    def _is_unable(self, kind: str, instance: Instance, duration: int) -> int:
        """Record that an instance is unable from now on, unless another one is: one that is able is to take over.

        Returns for how long (ns).
        """
        now = self.timeline.now
        duration = min(duration, self.history.begin + self.scenario.breaks_for - now)
        was_idle = any(fault.kind == "idle" for fault in self.history.faults)
        if self._unable_until > now or not instance.is_alive or (was_idle and kind == "idle"):
            return 0
        self._unable_until = now + duration
        self._trace(f"{instance.name}: is {kind} for {duration / SECOND:.3f} s")
        within, end = NOTICED_AFTER[kind], now + duration + (UNANSWERED if kind == "idle" else 0)
        self.history.faults.append(Fault(kind, instance.name, now, end, noticed_after=within))
        return duration

    def _disable(self, kind: str) -> Callable[[Instance, int], None]:
        def begin(instance: Instance, duration: int) -> None:
            if duration := self._is_unable(kind, instance, duration):
                instance.weather.kinds.add(kind)
                self.timeline.after(duration, lambda: instance.weather.kinds.discard(kind))

        return begin

    def _receive_nothing(self, instance: Instance, duration: int) -> None:
        if duration := self._is_unable("receives nothing", instance, duration):
            instance.weather.receives_from = self.timeline.now + duration

    def _forge_owner(self, instance: Instance, _duration: int) -> None:
        """Have the record name an instance that never was, or one that may not be the owner."""
        owner = self._random.choice(["i9-1", *self.server.links])
        self._forge("owner.emulated.SIM", {"owner": owner, "since": 0, "before": "", "reason": "first"})

    def _forge_heartbeat(self, _instance: Instance, _duration: int) -> None:
        name = f"i{self._random.randint(4, 9)}-1"
        self._forge(f"instance.{name}", {"serves": ["emulated.SIM"], "last_received": None})

    def _forge(self, key: str, value: dict[str, object]) -> None:
        self._trace(f"forger: writes {value} as {key}")
        if self.server.bucket.stream is not None:
            self.server.bucket.write(key, json.dumps(value).encode())
        self.history.faults.append(Fault("forged", None, self.timeline.now, self.timeline.now))

    def _delete_bucket(self, _instance: Instance, _duration: int) -> None:
        self._trace("world: deletes the bucket")
        for instance in self.instances:
            instance.receive_bucket_deletion()
        self.server.bucket.delete()
        now = self.timeline.now
        self.history.faults.append(Fault("bucket deleted", None, now, now + BUCKET_MADE_ANEW, delays_only=True))

    def _silence_bucket(self, _instance: Instance, duration: int) -> None:
        self._trace(f"world: the bucket does not answer for {duration / SECOND:.3f} s")
        bucket, now = self.server.bucket, self.timeline.now
        bucket.leaderless_until = max(bucket.leaderless_until, now + duration)
        self.history.faults.append(Fault("bucket silent", None, now, now + duration, delays_only=True))

    def _step_clock(self, instance: Instance, duration: int) -> None:
        self._broken("clock", None, CLOCK_OFF)
        instance.step_clock(self._random.randint(-CLOCK_OFF, CLOCK_OFF))


def judged(scenario: Scenario, trace: Trace = silent, parts: Parts = REAL) -> list[Violation]:
    """Run a world, and return what it shows to be broken."""
    return verdict(World(scenario, trace, parts).run())
