"""Lives of one engine of which everything is drawn: what is published and removed, what is answered, who is the owner.

The rule: each input is one that the contract of the port allows (`engine.stream_port`), however unlikely. Most answers
are those of a stream in memory, behind a network that loses, delays and refuses; some are replaced by other allowed
ones.
Its limits are small, so that a few schedules come to what takes hundreds of them elsewhere.
"""

from dataclasses import replace
from random import Random

import pytest

from nats_scheduler.engine import stream
from nats_scheduler.engine.actions import PublishFires, PurgeSchedule, RemoveExpired, Report, WakeAt
from nats_scheduler.engine.events import ScheduleRejected
from nats_scheduler.engine.fire import AwaitProposals, FetchContent, Fire, LookForFire
from nats_scheduler.engine.firing import advancing, sending
from nats_scheduler.engine.firing.building import assembled
from nats_scheduler.engine.firing.machine import stage_of
from nats_scheduler.engine.holding import in_flight
from nats_scheduler.engine.holding.contents import ContentMemory
from nats_scheduler.engine.holding.flight import Stage
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.inputs import (
    NO_STREAM,
    Checkpoint,
    ContactLost,
    ContentFetched,
    DuplicateFetched,
    FinishChecked,
    FireLookedFor,
    Input,
    Outcome,
    OwnershipChanged,
    ProposalsApplied,
    PublishConcluded,
    PurgeConcluded,
    Refused,
    RemovalRequested,
    SchedulesGone,
    ServerLimits,
    Stored,
    Unanswered,
    Unknown,
)
from nats_scheduler.engine.ownership import takeover
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.headers import MSG_ID, header_value
from nats_scheduler.message.rejection import FAILED, NOT_PERMITTED
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START, ManualClock
from nats_scheduler.testing.memory_contact import MemoryContact
from nats_scheduler.testing.memory_stream import MemoryStream
from nats_scheduler.testing.network import Fate, Perfect
from tests.harness.blocks import block_of

SUBJECTS = [f"s.{number}" for number in range(6)]
ELSEWHERE = "jobs.run"

PREFIX = "X-Nats-Schedule"

POLICIES = {
    "X-Missed": ["skip", "all", "all 2"],
    "X-Overlap": ["queue", "skip"],
    "X-Jitter": ["500ms"],
    "X-Limit": ["1", "3"],
    "X-Report": ["true"],
}
"""What a schedule may say, and the values."""

FULL = Refused(503, 10077, "maximum messages exceeded")
BY_GUARD = Refused(400, 10071, "wrong last sequence")
IN_PROCESS = Refused(0, 0, "in process")
SILENCE = Refused(0, 0, "no answer")
"""These two stand for what is no refusal."""
DENIED = Refused(NOT_PERMITTED, NOT_PERMITTED, "the user may not publish to the target")


def small_limits(patch: pytest.MonkeyPatch, burst: int) -> None:
    """Have more fires than these few be a burst, and few schedules be many to take over."""
    for module in (in_flight, sending, advancing):
        patch.setattr(module, "BURST_IN_FLIGHT", burst)
    for module in (in_flight, stream):
        patch.setattr(module, "MAX_IN_FLIGHT", 3)
    patch.setattr(takeover, "MAX_TAKEN_OVER_PER_STEP", 1)


class Rough(Perfect):
    """A network that delays, loses and refuses."""

    def __init__(self, random: Random, *, lost: float, silent: bool) -> None:
        self._random = random
        self._slowest = random.choice([0, 50, 500, 1_000]) * MILLISECOND
        self._lost = lost
        self._is_silent = silent
        self._in_process: set[bytes] = set()
        """The identities that the server keeps for nothing."""

    def publish(self, fire: Fire) -> Fate:
        """Decide what happens to a fire."""
        identity = header_value(fire.block, MSG_ID) or b""
        if self._random.random() < self._lost / 2:
            self._in_process.add(identity)
        if identity in self._in_process:
            return Fate(refusal=IN_PROCESS)
        if self._is_silent:
            return Fate(answered=False) if self._random.random() < 0.5 else Fate(refusal=SILENCE)
        return self._fate(FULL, BY_GUARD, DENIED, NO_STREAM)

    def read(self, request: FetchContent) -> Fate:
        """Decide what happens to a read."""
        return self._fate()

    def purge(self, request: PurgeSchedule) -> Fate:
        """Decide what happens to a purge."""
        return self._fate(FULL)

    def remove(self, request: RemoveExpired) -> Fate:
        """Decide what happens to the removal of a message that has expired."""
        return self._fate()

    def follow(self, message: StoredMessage) -> int:
        """Return how long (ns) a stored message takes to the follower."""
        return self._way() if self._random.random() < 0.5 else 0

    def _fate(self, *refusals: Refused) -> Fate:
        drawn = self._random.random
        refusal = self._random.choice(refusals) if refusals and drawn() < self._lost else None
        return Fate(drawn() >= self._lost, drawn() >= self._lost, refusal, self._way(), self._way())

    def _way(self) -> int:
        return int(self._random.random() * self._slowest)


class Life:
    """One engine and its stream. In half of the lives little fails, so that schedules come further."""

    def __init__(self, seed: int) -> None:
        self._random = random = Random(f"life {seed}")
        self._is_easy = easy = seed % 2 == 0
        silent = seed % 6 == 4
        guard = easy or random.random() < 0.7
        self.clock = ManualClock(START)
        config = {"name": "LIFE", "subjects": ["s.>", "t.>"], "allow_msg_ttl": True, "retention": "workqueue"}
        more = {"allow_rollup_hdrs": random.random() < 0.5, "duplicate_window": random.choice([1, 120]) * SECOND}
        self.stream = MemoryStream({**config, **more}, self.clock.now, guard=guard)
        other = {"name": "JOBS", "subjects": ["jobs.>"], "duplicate_window": SECOND}
        self.other = MemoryStream(other, self.clock.now, guard=guard)
        self.engine = StreamEngine(
            self.stream.rules,
            DIALECTS,
            ServerLimits(
                guard,
                max_payload=random.choice([1_000_000 if easy else 400, 1_000_000]),
                look_ahead=random.choice([1, 10]) * SECOND,
                blocks_refused=not easy and random.random() < 0.2,
                replicated=not easy and random.random() < 0.4,
                silent=silent,
            ),
            removes_expired=not guard,
            reads_all=random.random() < 0.7,
            memory=ContentMemory(random.choice([1 << 20 if easy else 1_000, 1 << 20])),
            catch_up_rate=1 + seed % 5 * 100,
        )
        self._network = Rough(random, lost=random.choice([0, 0 if easy else 0.1]), silent=silent)
        self._is_odd = not easy and random.random() < 0.9
        """True if some answers are replaced by other ones that are allowed."""
        self._wake: int | None = None
        self._checkpoint: Checkpoint | None = None
        self._inbox: list[Input] = []
        self._is_in_contact = False
        self._contacts: list[MemoryContact] = []
        named = {random.choice(["X-Missed", "X-Overlap"]), *random.sample([*POLICIES], random.randint(0, 2))}
        if easy:
            named = {random.choice(["X-Missed", "X-Missed", "X-Overlap"]), random.choice(["X-Limit", "X-Report"])}
        self._policies = {name: random.choice(POLICIES[name]) for name in sorted(named)}
        for _ in range(random.choice([0, 5])):
            self._publish()
        self._connect()

    def live(self, turns: int) -> None:
        """Have that much happen, one thing after the other."""
        acts = [self._publish] * 10 + [self._store_as_another] * 4 + [self._change_owner] * 2 + [self._stall] * 3
        others = [self._overwrite, self._cancel, self._delete, self._purge, self._consume, self._forge]
        others += [self._lose_contact, self._step_clock]
        acts += 2 * self._random.sample(others, 1 if self._is_easy else 4)  # of each much, and few of them
        for _ in range(turns):
            if self._random.random() < 0.4:
                self._random.choice(acts)()
            if not self._is_in_contact and self._random.random() < 0.2:
                self._connect()
            if not self.engine.ownership.is_owner and self._random.random() < 0.05:
                self._change_owner()
            self._pass_time()
            if self._random.random() < 0.9:  # or else what arrives next is of the same step
                self._step()

    def _step(self) -> None:
        inputs, self._inbox = self._inbox, []
        contact = self._contacts[-1]
        for action in self.engine.step(self.clock.now(), inputs):
            match action:
                case PublishFires():
                    contact.publish(action.fires)
                case PurgeSchedule():
                    contact.purge(action)
                case RemoveExpired():
                    contact.remove(action)
                case WakeAt():
                    self._wake = action.instant
                case Report():
                    event = action.event
                    is_mistake = isinstance(event, ScheduleRejected) and event.rejection.code == FAILED.code
                    assert not is_mistake, f"a mistake of the engine: {event}"
                case _:
                    contact.ask(action)

    def _connect(self) -> None:
        self._is_in_contact = True
        self._contacts = [one for one in self._contacts if one.next_delivery() is not None]
        contact = MemoryContact(self.stream, self._receive, self.clock, self._network, others=[self.other])
        contact.begin_following(self.engine.last_read)
        self._contacts.append(contact)

    def _pass_time(self) -> None:
        """Let time pass until something is due, or arrives, or a drawn time if that is earlier."""
        waits = [int(self._random.choice([0.01, 0.2, 0.5, 1, 1, 3, 3, 40]) * SECOND)]
        if self._wake is not None:
            waits.append(max(self._wake - self.clock.now(), 0))
        waits += [wait for contact in self._contacts if (wait := contact.next_delivery()) is not None]
        self.clock.advance(min(waits))
        for contact in self._contacts:
            contact.deliver()

    def _receive(self, given: Input) -> None:
        match given:
            case PublishConcluded(fire, Refused(0, _code, said)):
                given = PublishConcluded(fire, Unknown(said, in_process=said == IN_PROCESS.description))
            case _ if self._is_odd and self._random.random() < 0.2:
                given = self._other_answer(given)
        self._inbox.append(given)

    def _other_answer(self, given: Input) -> Input:
        """Return another answer than that of the stream: the server that gave it had, or believed, something else."""
        choose, no_answer = self._random.choice, "no answer"
        in_process = Unknown("in process", in_process=True)
        outcomes: list[Outcome] = [in_process]
        match given:
            case PublishConcluded(fire, Stored(sequence, _duplicate, name)):
                forged = Stored(choose([sequence, 1]), duplicate=True, stream=name)
                outcomes += [in_process, forged, forged, Unknown("elsewhere", is_misplaced=True)]
                return PublishConcluded(fire, choose(outcomes))
            case PublishConcluded(fire):
                outcomes += [BY_GUARD, DENIED]
                return PublishConcluded(fire, choose(outcomes))
            case ContentFetched(schedule, sequence):
                held = self.engine.held.exactly(schedule, sequence)
                question = FetchContent(schedule, sequence, None if held is None else held.terms.source)
                return Unanswered(question, no_answer, denied=choose([True, False]))
            case DuplicateFetched():
                return replace(given, message=None, stored_by=choose([None, self.clock.now(), 0]))
            case FireLookedFor(fire, _found, first):
                return Unanswered(LookForFire(fire, first, first), no_answer, refusal=choose([NO_STREAM, None]))
            case FinishChecked(request):
                if self._random.random() < 0.3:
                    return Unanswered(request, no_answer)
                return replace(given, unfinished=choose([request.through, 0]), stored_at=choose([0, self.clock.now()]))
            case PurgeConcluded():
                failed = given._replace(failure=no_answer)
                return choose([failed, failed._replace(refused=True), failed._replace(denied=True)])
            case ProposalsApplied(fire):
                return Unanswered(AwaitProposals(fire), no_answer)
        return given

    def _publish(self) -> None:
        """Store a schedule, most often one that fires soon, and with some policies."""
        subject, random, now = self._random.choice(SUBJECTS), self._random, self.clock.now()
        once = f"@at {format_rfc3339(now + random.choice([-5, 0, 1, 3]) * SECOND)}"
        patterns = [once, "@every 1s", "@every 1s", "@every 1s", "@every 3s", "@every 20s"]
        pattern = random.choice(patterns)
        policies = {name: value for name, value in self._policies.items() if random.random() < 0.7}
        others = [other for other in SUBJECTS if other != subject]
        elsewhere = [] if "X-Overlap" in policies else [ELSEWHERE]
        targets = ["t.out"] * 4 if self._is_easy else ["t.out", *elsewhere]
        target = random.choice([*targets, random.choice(others)])
        if "X-Missed" in policies and random.random() < 0.7:
            policies["X-Grace"] = "1s"
        if "X-Overlap" in policies and random.random() < 0.3:
            policies["X-Timeout"] = "2s"
        policies["X-Target" if target == ELSEWHERE else "Target"] = target
        is_paused = random.random() < 0.03
        headers = {f"{PREFIX}-X-Paused" if is_paused else PREFIX: pattern}
        headers |= {f"{PREFIX}-{name}": value for name, value in policies.items()}
        if random.random() < 0.1:
            headers["Nats-TTL"] = random.choice(["1s", "4s"])
        self.stream.publish(subject, block_of(*headers.items()), b"x" * random.choice([0, 0, 20, 300]))

    def _overwrite(self) -> None:
        self.stream.publish(self._random.choice(SUBJECTS))

    def _cancel(self) -> None:
        cancel = {"Nats-Schedule-Next": "purge", "Nats-Scheduler": self._random.choice(SUBJECTS)}
        self.stream.publish("t.done", block_of(*cancel.items()))

    def _delete(self) -> None:
        """Remove a schedule, with a request that is received, a notice afterwards, or neither."""
        found = self.stream.last(self._random.choice(SUBJECTS))
        if found is None:
            return
        self.stream.delete(found.sequence)
        notices = RemovalRequested(sequence=found.sequence), SchedulesGone([(found.subject, found.sequence)])
        self._inbox += self._random.choice([notices[:1], notices[1:], ()])

    def _purge(self) -> None:
        """Purge, or request what the server does not do."""
        held = self._some_held()
        matching = self._random.choice(["s.*", None, *(SUBJECTS if held is None else [held.subject] * 4)])
        below = self._random.choice([None, self.stream.last_sequence, self.stream.last_sequence + 1])
        self._inbox.append(RemovalRequested(filter=matching, below=below))
        if self._random.random() < 0.3:
            self.stream.purge(matching or ">", None if below is None else below - 1)

    def _consume(self) -> None:
        self.stream.take("t.*")

    def _some_held(self) -> Held | None:
        """Draw a schedule; one of those first that are in a stage that few are in, and not for long."""
        rare = [one for one in self.engine.held.objects() if stage_of(one) in (Stage.KEPT, Stage.BLOCKED)]
        if rare and self._random.random() < 0.7:
            return self._random.choice(rare)
        return self.engine.held.on(self._random.choice(SUBJECTS))

    def _fire_of(self, held: Held) -> tuple[str, bytes, bytes] | None:
        """Return a fire of a schedule as another instance would send it: the next one, or the one after it."""
        content, following = self.stream.message(held.sequence), held.next_fire(held.fire_time)
        times = [(held.fire_time, following)]
        if following is not None:
            times.append((following, held.next_fire(following)))
        if content is None:
            return None
        fire = assembled(held, content, None, *self._random.choice(times), guard=False)
        return fire.target, fire.block, fire.body

    def _store_as_another(self) -> None:
        """Have a fire stored by another instance."""
        self._store_of_another(self._some_held())

    def _store_of_another(self, held: Held | None) -> None:
        fire = None if held is None else self._fire_of(held)
        if held is not None and fire is not None:
            (self.other if held.is_to_other_stream else self.stream).publish(*fire)

    def _forge(self) -> None:
        """Store a message with the identity of a fire that is not that fire."""
        held = self._some_held()
        fire = None if held is None else self._fire_of(held)
        if fire is not None:
            self.stream.publish("t.forged", block_of((MSG_ID, header_value(fire[1], MSG_ID) or b"")))

    def _change_owner(self) -> None:
        """Have another owner, or this one again; the one before has written a checkpoint, an old one, or none."""
        now = self.clock.now()
        checkpoint = self._random.choice([None, self._checkpoint, Checkpoint(now - SECOND, self.stream.last_sequence)])
        is_owner = not self.engine.ownership.is_owner
        self._inbox.append(OwnershipChanged(is_owner, checkpoint if is_owner else None))
        self._checkpoint = self.engine.checkpoint(now)
        if not is_owner and self._random.random() < 0.5:  # the new one fires at once
            for subject in SUBJECTS:
                self._store_of_another(self.engine.held.on(subject))

    def _lose_contact(self) -> None:
        self._is_in_contact = False
        self._contacts[-1].end("the connection was cut")
        self._inbox.append(ContactLost("the connection was cut"))
        if self._random.random() < 0.5:
            self._step()
            self._change_owner()
            self.clock.advance(20 * SECOND)

    def _stall(self) -> None:
        self.clock.advance(self._random.choice([1, 2, 15]) * SECOND)

    def _step_clock(self) -> None:
        if self._random.random() < 0.3:
            self.clock.set(self.clock.now() + self._random.choice([-5, -1, 2]) * SECOND)
