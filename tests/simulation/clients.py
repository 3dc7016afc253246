"""The other clients: publishers of schedules, a forger that may publish anywhere but on a target at its time, workers.

Publishers store, replace, overwrite, delete, purge, cancel, pause and resume, some without an answer. Each target has a
consumer, whose worker finishes every message after a while, not always in order.

Its rule: a request does one thing at one moment between its invocation and its completion, or, if unanswered, at
some moment later or never; what was asked is recorded as the publisher knows it. What a forger stores keeps no schedule
from firing and stands for no fire, so the judge's history has of it only which identities it took.
Limit: a forger does not cancel, which it could, nor does it write a fire that could be genuine (`message.fire_faults`
says why).
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from nats_scheduler.engine.inputs import RemovalRequested, Stored
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.headers import with_headers
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.stored import StoredMessage
from tests.judge.history import EVERYTHING, SECOND, FireKey, IdentityTaken, Operation, Verb, headers_of
from tests.judge.patterns import NO_POLICIES, Pattern, Policies, moved_by
from tests.simulation.calendars import MOVING, NAMES
from tests.simulation.scenario import MILLISECOND, Scenario
from tests.simulation.server import ELSEWHERE, FORGED, SOURCES, Server
from tests.simulation.server import ELSEWHERE as OTHER_STREAM

WORK_SECONDS = (0.01, 0.05, 0.3, 0.8, 2, 5, 12, 24)
"""The times (s) that the work on one message takes."""

TARGETS = 12

TODAY = [(2, "d", "2025-12-30"), (3, "w", "2026-01-04"), (53, "w", "2024-12-29")]
"""Days and weeks among which is the day of all simulated worlds, the first of January 2026."""

EVERY = [*TODAY, (4, "d", "2025-12-30")]
"""And some among which is neither that day nor the one before, of which a spread would move times over midnight."""


def worker_of(target: str) -> str:
    """Return the name of the consumer of a target."""
    return f"worker-{target.removeprefix('t.')}"


class Workers:
    """All workers of a world."""

    def __init__(self, server: Server, seed: int) -> None:
        """Begin to work on what is stored on the targets of schedules."""
        self._server = server
        self._random = Random(f"work {seed}")
        self._open: dict[str, list[int]] = {}
        self._done: set[int] = set()
        for number in range(TARGETS):
            target = f"t.{number}"
            server.stream.add_consumer(worker_of(target), target)
        server.stream.listen(self._stored)

    def _stored(self, message: StoredMessage) -> None:
        if not message.subject.startswith("t."):
            return
        self._open.setdefault(message.subject, []).append(message.sequence)
        takes = round(self._random.choice(WORK_SECONDS) * SECOND)
        self._server.timeline.after(takes, lambda: self._finished(message.subject, message.sequence))

    def _finished(self, target: str, sequence: int) -> None:
        self._server.stream.consumers[worker_of(target)].acknowledge(sequence)
        self._done.add(sequence)
        self._server.history.acknowledged[sequence] = self._server.timeline.now
        left, stored = self._open[target], self._server.stream.message
        while left and (left[0] in self._done or stored(left[0]) is None):  # what was purged holds up nothing
            self._server.history.finished[left.pop(0)] = self._server.timeline.now


SUBJECTS = [f"s.{number}" for number in range(12)]
VERBS = [Verb.STORE] * 8 + [Verb.OVERWRITE, Verb.DELETE, Verb.DELETE, Verb.PURGE, Verb.PURGE, Verb.CANCEL, Verb.CANCEL]

SAMPLED = [f"{SOURCES}{number}" for number in range(3)]

SHARED_TARGETS = [f"{ELSEWHERE}{number}" for number in range(3)]
"""Targets in the other stream."""

PUBLISHED_ELSEWHERE_EVERY = 900 * MILLISECOND
"""Mean time (ns) between two messages of others there."""

FED_EVERY = 700 * MILLISECOND
"""Mean time (ns) between two messages on the sources."""

PAUSED_EVERY = 800 * MILLISECOND
"""Mean time (ns) between two requests to pause or resume a schedule."""

PURGED_EVERY = 12 * SECOND
"""Mean time (ns) between two purges of everything."""


class Publishers:
    """All publishers of a world."""

    def __init__(self, server: Server, scenario: Scenario, trace: Callable[[str], None]) -> None:
        self._server = server
        self._scenario = scenario
        self._timeline = server.timeline
        self._random = Random(f"publishers {scenario.seed}")
        self._content = Random(f"what is published {scenario.seed}")
        """Draws the features that were added later, so that the worlds of existing seeds do not change."""
        self._landing = Random(f"what lands {scenario.seed}")
        self._bounding = Random(f"what is bounded {scenario.seed}")
        self._dating = Random(f"which days are named {scenario.seed}")
        self._spreading = Random(f"what is spread {scenario.seed}")
        self._jittering = Random(f"what is jittered {scenario.seed}")
        self._naming = Random(f"what names a calendar {scenario.seed}")
        self._missing = Random(f"what is missed {scenario.seed}")
        self._elsewhere = Random(f"what is elsewhere {scenario.seed}")
        self._overlapping = Random(f"what overlaps {scenario.seed}")
        self._pausing = Random(f"what is paused {scenario.seed}")
        self._rolling_up = Random(f"what rolls up {scenario.seed}")
        self._doing = Random(f"what is to be done {scenario.seed}")
        self._zoning = Random(f"what follows a clock {scenario.seed}")
        self._combining = Random(f"what is combined {scenario.seed}")
        """Draws a further policy of a schedule that has another one already."""
        self._trace = trace
        self._stored_last: dict[str, Operation] = {}
        """The last schedule that was to be stored on each subject, which may be paused now."""
        self._paused: set[str] = set()
        self._last: dict[str, int] = {}
        self._fed = 0
        self.is_over = False

    def act_now_and_again(self, mean: int) -> None:
        """Send requests, with pauses, until the end."""
        if self.is_over:
            return
        self._act()
        self._timeline.after(int(self._random.expovariate(1 / mean)), lambda: self.act_now_and_again(mean))

    def store_beat(self) -> None:
        """Store a schedule that fires each second, and that nobody changes."""
        beat = Operation(Verb.STORE, "s.beat", self._timeline.now, pattern=Pattern("every", 1), target="t.beat")
        beat.body, beat.headers = b"beat", (("X-Origin", "beat"),)
        self._server.history.operations.append(beat)
        self._happens(beat, is_answered=True)

    def feed_now_and_again(self) -> None:
        """Store something on a source, or empty it, repeatedly, if sources are sampled."""
        if self.is_over or not self._scenario.samples:
            return
        source = self._content.choice(SAMPLED)
        if self._content.random() < 0.2:
            self._server.empty(source)
        else:
            self._fed += 1
            self._stored(source, self._sample_headers(), b"sample %d" % self._fed)
        self._timeline.after(int(self._content.expovariate(1 / FED_EVERY)), self.feed_now_and_again)

    def purge_now_and_again(self) -> None:
        """Purge everything after a while, repeatedly, if the scenario does that."""
        if self._scenario.purges:
            self._timeline.after(int(self._content.expovariate(1 / PURGED_EVERY)), self._purge)

    def _purge(self) -> None:
        if not self.is_over:
            self._ask(Operation(Verb.PURGE, EVERYTHING, self._timeline.now), self._content)
            self.purge_now_and_again()

    def pause_now_and_again(self) -> None:
        """Pause a schedule, or resume a paused one, repeatedly: its message with a header renamed."""
        if self.is_over:
            return
        draw = self._pausing
        subject = draw.choice(SUBJECTS)
        stored = self._stored_last.get(subject)
        if stored is not None:
            verb = Verb.STORE if subject in self._paused and draw.random() < 0.7 else Verb.PAUSE
            (self._paused.discard if verb is Verb.STORE else self._paused.add)(subject)
            again = replace(stored, verb=verb, invoked_at=self._timeline.now, completed_at=None, sequence=None)
            self._ask(again, draw)
        self._timeline.after(int(draw.expovariate(1 / PAUSED_EVERY)), self.pause_now_and_again)

    def publish_elsewhere_now_and_again(self) -> None:
        """Publish on the targets in the other stream, repeatedly: their last messages are no fires then."""
        if self.is_over:
            return
        self._server.other.publish(self._elsewhere.choice(SHARED_TARGETS), b"", b"of others")
        wait = int(self._elsewhere.expovariate(1 / PUBLISHED_ELSEWHERE_EVERY))
        self._timeline.after(wait, self.publish_elsewhere_now_and_again)

    def _sample_headers(self) -> dict[str, str]:
        """Return headers of which only the first may be found in a fire."""
        headers = {"X-Sample": str(self._fed), "Nats-Msg-Id": f"sample {self._fed}", "Nats-Trace-Dest": "elsewhere"}
        if self._content.random() < 0.3 and not self._scenario.rolls_up:
            headers["Nats-Rollup"] = "sub"
        return headers

    def _act(self) -> None:
        subject, verb = self._random.choice(SUBJECTS), self._random.choice(VERBS)
        if verb is Verb.DELETE and subject not in self._last:
            verb = Verb.STORE
        operation = Operation(verb, subject, self._timeline.now)
        if verb is Verb.STORE:
            operation.pattern = self._spread(self._pattern(), subject)
            operation.target = self._target_of(subject)
            operation.pattern = self._to_be_done(self._held_back(operation.pattern, operation.target), operation.target)
            operation.body = b"%d" % len(self._server.history.operations)
            self._fill(operation)
            self._stored_last[subject] = operation
            self._paused.discard(subject)
        elif verb is Verb.DELETE:
            operation.names = self._last[subject]
        self._ask(operation, self._random)

    def _target_of(self, subject: str) -> str:
        """Draw where a schedule fires to: onto another one, now and again, where that happens."""
        if self._scenario.elsewhere and self._elsewhere.random() < 0.6:
            return self._elsewhere.choice(SHARED_TARGETS)
        own = f"t.{subject[2:]}"
        if not self._scenario.lands or self._landing.random() < 0.6:
            return own
        return self._landing.choice([other for other in SUBJECTS if other != subject])

    def _ask(self, operation: Operation, random: Random) -> None:
        """Send a request; it may get lost, or its answer."""
        self._server.history.operations.append(operation)
        chance = random.random()
        if chance < 0.03:
            return  # lost in transit
        way = int(random.random() * (200 if chance > 0.9 else 3) * MILLISECOND)
        self._timeline.after(way, lambda: self._happens(operation, is_answered=chance > 0.06))

    def _fill(self, operation: Operation) -> None:
        """Draw what else a schedule asks for."""
        operation.headers = (("X-Origin", operation.body.decode()),)
        chance = self._content.random
        if self._scenario.samples and chance() < 0.6:
            operation.source = self._content.choice(SAMPLED)
        if self._scenario.expires and chance() < 0.3:
            operation.ttl = self._content.randint(1, 20) * SECOND
        if self._scenario.expires and chance() < 0.4:
            fire_ttl = self._content.choice([1, 5, 20])
            # A server of 2.10 does not act on it, and the sidecar does not either in another stream.
            operation.fire_ttl = 0 if operation.target in SHARED_TARGETS else fire_ttl
        is_own = operation.target.startswith("t.")
        # What is removed counts as finished, and so a policy of overlaps sees a roll-up as the end of the fire before.
        is_held_back = operation.pattern is not None and bool(operation.pattern.policies.consumer)
        if self._scenario.rolls_up and is_own and not is_held_back:
            operation.rolls_up = self._rolling_up.random() < 0.6

    def _pattern(self) -> Pattern:
        kind = self._random.choice(["at", "at", "every", "cron"])
        if kind == "at":
            number = self._timeline.now // SECOND + self._random.randint(-3, 15)
            return Pattern(kind, number, self._named(self._missed(self._jittered(NO_POLICIES))))
        number = self._random.choice([1, 2, 3, 7, 10, 20, 20])
        policies = self._named(self._missed(self._jittered(self._policies(kind))))
        if kind == "cron" and policies.calendar and policies.every is None and self._dating.random() < 0.5:
            policies = replace(policies, calendar=MOVING, is_moved=True)
        return Pattern(kind, number, policies)

    def _named(self, policies: Policies) -> Policies:
        """Draw a calendar."""
        if not self._scenario.calendars or self._naming.random() < 0.4:
            return policies
        is_counted = policies.limit is not None or policies.end is not None or policies.missed or policies.report
        return replace(policies, calendar=(self._combining if is_counted else self._naming).choice(NAMES))

    def _missed(self, policies: Policies) -> Policies:
        """Draw what happens to missed fires, after how long, and whether fires report it."""
        if not self._scenario.misses or self._missing.random() < 0.2:
            return policies
        draw = self._missing
        missed = draw.choice(["", "once", "skip", "skip", "all", "all", "all 2", "all 5"])
        return replace(policies, missed=missed, grace=draw.choice([None, 1, 3, 5]), report=draw.random() < 0.5)

    def _jittered(self, policies: Policies) -> Policies:
        """Draw a jitter: shorter than a look-ahead, or as long as the intervals, or much longer than most."""
        if not self._scenario.jitters or self._jittering.random() < 0.4:
            return policies
        return replace(policies, jitter=self._jittering.choice([1, 30, 700, 3_000, 8_000, 8_000, 60_000]))

    def _spread(self, pattern: Pattern, subject: str) -> Pattern:
        """Draw over which time schedules are spread: less than an interval, or more than most."""
        if not self._scenario.spreads or self._spreading.random() < 0.4:
            return pattern
        spread = self._spreading.choice([1, 3, 8, 30])
        return replace(pattern, policies=replace(pattern.policies, spread=spread, moved=moved_by(subject, spread)))

    def _held_back(self, pattern: Pattern, target: str) -> Pattern:
        """Draw what happens while the fire before is unfinished, for a target that has a worker."""
        if not self._scenario.overlaps or not target.startswith("t.") or self._overlapping.random() < 0.3:
            return pattern
        is_counted = pattern.policies.missed or pattern.policies.report
        draw = self._combining if is_counted else self._overlapping
        overlap, timeout = draw.choice(["skip", "queue"]), draw.choice([None, None, None, 400, 3_000, 9_000])
        blocked = replace(pattern.policies, overlap=overlap, consumer=worker_of(target), timeout=timeout)
        return replace(pattern, policies=blocked)

    def _to_be_done(self, pattern: Pattern, target: str) -> Pattern:
        """Draw within which time a fire is to be done, for a target that has a worker."""
        if not self._scenario.deadlines or not target.startswith("t.") or self._doing.random() < 0.4:
            return pattern
        within = self._doing.choice([1, 1, 3, 9])
        return replace(pattern, policies=replace(pattern.policies, done_within=within, consumer=worker_of(target)))

    def _policies(self, kind: str) -> Policies:
        """Draw the bounds of a pattern that repeats; each leaves at least one fire, of today if there is an end."""
        if not self._scenario.bounds or self._bounding.random() < 0.4:
            return NO_POLICIES
        draw, now = self._bounding, self._timeline.now // SECOND
        clock_changes = ["", "after", "first", "after,last"] if kind == "cron" else [""]
        policies = Policies(
            clock_change=self._zoning.choice(clock_changes),
            start=now + draw.randint(-5, 10) if draw.random() < 0.4 else None,
            end=now + draw.randint(35, 60) if draw.random() < 0.4 else None,
            limit=draw.randint(1, 4) if draw.random() < 0.5 else None,
            anchor=now + draw.randint(-30, 10) if kind == "every" and draw.random() < 0.5 else None,
        )
        if kind == "cron" and self._dating.random() < 0.3:
            policies = replace(policies, every=self._dating.choice(TODAY if policies.end is not None else EVERY))
        return policies

    def _happens(self, operation: Operation, *, is_answered: bool) -> None:
        self._trace(f"publisher: {operation.verb} {operation.schedule} {operation.names or ''} answered={is_answered}")
        sequence = self._done(operation)
        if is_answered:
            way = int(self._random.random() * 3 * MILLISECOND)
            self._timeline.after(way, lambda: self._completed(operation, sequence))

    def _completed(self, operation: Operation, sequence: int | None) -> None:
        operation.completed_at, operation.sequence = self._timeline.now, sequence
        if sequence is not None and operation.verb is not Verb.CANCEL:
            self._last[operation.schedule] = sequence

    def _done(self, operation: Operation) -> int | None:
        """Let the server do it; returns the sequence of what was stored."""
        stream, subject = self._server.stream, operation.schedule
        if operation.verb is Verb.DELETE and operation.names is not None:
            stream.delete(operation.names)
            self._server.tell_of_removal(RemovalRequested(sequence=operation.names))
            return None
        if operation.verb is Verb.PURGE:
            stream.purge(subject)
            self._server.tell_of_removal(RemovalRequested(filter=None if subject == EVERYTHING else subject))
            for source in SAMPLED if subject == EVERYTHING else ():
                self._server.empty(source)
            return None
        if operation.verb is Verb.CANCEL:
            return self._stored("x.cancel", {"Nats-Scheduler": subject, "Nats-Schedule-Next": "purge"}, b"")
        headers = headers_of(operation, elsewhere=operation.target in SHARED_TARGETS)
        return self._stored(subject, _paused(headers) if operation.verb is Verb.PAUSE else headers, operation.body)

    def _stored(self, subject: str, headers: dict[str, str], body: bytes) -> int:
        block = with_headers(b"", [(name.encode(), value.encode()) for name, value in headers.items()])
        outcome = self._server.stream.publish(subject, block, body)
        assert isinstance(outcome, Stored), f"{subject}: {outcome}"
        return outcome.sequence


def _paused(headers: dict[str, str]) -> dict[str, str]:
    """Return the headers of the paused schedule: that of the pattern has another name."""
    names = {name: f"{name}-X-Paused" for name in ("Nats-Schedule", "X-Nats-Schedule")}
    return {names.get(name, name): value for name, value in headers.items()}


FORGES_EVERY = SECOND
"""Mean time (ns) between two forgeries."""

LONG_WINDOW = 100 * SECOND
"""It blocks identities if the duplicate window (ns) is not shorter: no fire is excused at the end of the window."""

YEAR_9000 = 221_845_392_000 * SECOND

ELSEWHERE = "x.forged"


class Forger:
    """A client that forges fires in a world."""

    def __init__(self, server: Server, seed: int, trace: Callable[[str], None]) -> None:
        self._server = server
        self._random = Random(f"forgeries {seed}")
        self._trace = trace
        self._refused = Random(f"refused forgeries {seed}")
        stream = server.stream
        self._blocks = int(stream.config["num_replicas"]) > 1 and stream.rules.duplicate_window >= LONG_WINDOW
        self.is_over = False

    def forge_now_and_again(self) -> None:
        """Forge a fire of some schedule after a while, and again, until it is over."""
        self._server.timeline.after(int(self._random.expovariate(1 / FORGES_EVERY)), self._forge_again)

    def _forge_again(self) -> None:
        if self.is_over:
            return
        schedules = list(self._server.stream.messages("s.*"))
        if schedules:
            self._forge(self._random.choice(schedules))
        self.forge_now_and_again()

    def _forge(self, schedule: StoredMessage) -> None:
        rules, now = self._server.stream.rules, self._server.timeline.now
        reading = read_message(schedule.block, schedule.subject, schedule.stored_at, rules, DIALECTS)
        if reading is None or reading.definition is None:
            return
        pattern, terms = reading.definition.pattern, reading.definition.terms
        next_fire = pattern.next_fire(now, schedule.stored_at)
        if next_fire is not None and self._blocks and self._refused.random() < 0.5:
            self._block(schedule, next_fire)
        if next_fire is None or self._random.random() < 0.5:
            subject = self._random.choice([terms.target, ELSEWHERE])
            # Onto the subject of a schedule it would be an ordinary message, which ends it.
            self._store(ELSEWHERE if subject in SUBJECTS else subject, schedule, YEAR_9000, claims=True)
        else:
            self._store(ELSEWHERE, schedule, next_fire, claims=self._random.random() < 0.5)

    def _block(self, schedule: StoredMessage, fire_time: int) -> None:
        """Publish something under an identity of a fire that the server refuses: it keeps the identity in process."""
        taken = self._refused.choice([0, 0, schedule.sequence])
        identity = fire_identity(schedule.subject, schedule.sequence, fire_time, taken)
        headers = [(b"Nats-Expected-Last-Subject-Sequence", b"9999999"), (b"Nats-Msg-Id", identity.encode())]
        outcome = self._server.stream.publish(ELSEWHERE, with_headers(b"", headers), b"forged")
        self._trace(f"forger: blocks {identity} {outcome}")

    def _store(self, subject: str, schedule: StoredMessage, fire_time: int, *, claims: bool) -> None:
        """Store something under the identity of a fire, which `claims` to be that fire or makes no such claim."""
        headers = {FORGED: "yes", "Nats-Msg-Id": fire_identity(schedule.subject, schedule.sequence, fire_time)}
        if claims:
            prefix = "X-" if subject.startswith(OTHER_STREAM) else ""
            headers |= {f"{prefix}Nats-Scheduler": schedule.subject}
            headers |= {f"{prefix}Nats-Schedule-Next": "9999-01-01T00:00:00Z"}
        block = with_headers(b"", [(name.encode(), value.encode()) for name, value in headers.items()])
        outcome = self._server.stream_of(subject).publish(subject, block, b"forged")
        if isinstance(outcome, Stored) and not outcome.duplicate:
            fire, now = FireKey(schedule.sequence, fire_time), self._server.timeline.now
            self._server.history.taken.append(IdentityTaken(fire, outcome.sequence, now))
        self._trace(f"forger: on {subject} {headers['Nats-Msg-Id']} claims={claims} {outcome}")
