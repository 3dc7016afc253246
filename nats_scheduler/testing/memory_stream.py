"""A JetStream stream in memory: the part of JetStream that the sidecar needs, and nothing else.

The rule: every answer is that of a single nats-server 2.11, in the order of its checks; one test suite runs against
both (`tests/contract/`).
The time comes from a function, so messages and identities expire when a test decides it.

Messages are in dictionaries, which keep the order of storage: the last message of a subject is the last key.
Cost: a few microseconds a message. Limit: no replicas, no limits on count and bytes of the stream, no delete
markers; `take` stands for a consumer of a work queue, and a consumer of `consumers` only acknowledges.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from nats_scheduler.engine.inputs import Outcome, Refused, Stored, Unknown
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import is_covered, subject_matches
from nats_scheduler.schedule.durations import NEVER, parse_ttl
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.invalid import Invalid


class MemoryConsumer:
    """One consumer with explicit acknowledgements. It delivers nothing: a test says what it acknowledges."""

    def __init__(self, stream: "MemoryStream", matching: str = ">") -> None:
        """Receive what is stored on the subjects that match, from the first message on."""
        self._stream = stream
        self.matching = matching
        self._acknowledged: set[int] = set()
        self._given_up: set[int] = set()

    def acknowledge(self, sequence: int) -> None:
        """Acknowledge one message."""
        self._acknowledged.add(sequence)

    def acknowledge_all(self) -> None:
        """Acknowledge everything that is stored and that it receives."""
        self._acknowledged.update(message.sequence for message in self.unacknowledged())

    def give_up_all(self) -> None:
        """Hold nothing of what is stored: as after `max_deliver`, or as one that is created again behind it."""
        self._given_up.update(message.sequence for message in self.unacknowledged())

    def gave_up(self, through: int) -> bool:
        """Return whether nothing up to a sequence is held by it, although not all of that is acknowledged."""
        return all(
            message.sequence in self._given_up for message in self.unacknowledged() if message.sequence <= through
        )

    def unacknowledged(self) -> list[StoredMessage]:
        """Return what is stored, received and not acknowledged."""
        received = self._stream.messages(self.matching)
        return [message for message in received if message.sequence not in self._acknowledged]

    def receives(self, subject: str) -> bool:
        """Return whether it receives what is stored on a subject; `>` stands for any."""
        return subject == ">" or subject_matches(subject, self.matching)

    @property
    def first_unacknowledged(self) -> int:
        """The sequence of the first message that it has to acknowledge, 0 if there is none."""
        return next((message.sequence for message in self.unacknowledged()), 0)


Listener = Callable[[StoredMessage], None]
"""Is called with each message when it is stored."""


class MemoryStream:
    """One stream. `config` is the JSON of the JetStream API; with `guard=False` it is a 2.10 server, without TTLs."""

    def __init__(self, config: Mapping[str, Any], now: Callable[[], int], *, guard: bool = True) -> None:
        self.config = dict(config)
        self.rules = StreamRules.from_config(config)
        self.guard = guard
        self.last_sequence = 0
        """The sequence of the last message; it only decreases in `go_back`."""
        self._now = now
        self._max_age = max(int(config.get("max_age") or 0), 0)
        self._per_subject = max(int(config.get("max_msgs_per_subject") or 0), 0)
        self._window = self.rules.duplicate_window
        self._messages: dict[int, StoredMessage] = {}
        self._subjects: dict[str, dict[int, None]] = {}
        self._expiries: list[tuple[int, int]] = []
        self._identities: dict[bytes, tuple[int, int]] = {}
        self._listeners: list[Listener] = []
        self.consumers: dict[str, MemoryConsumer] = {}
        """The consumers that users have created, by name; see `add_consumer`."""

    # -- storing -------------------------------------------------------------------------------------------------

    def publish(self, subject: str, block: bytes = b"", body: bytes = b"") -> Outcome:
        """Store a message, or return why not; on a subject that is not the stream's, there is no answer: `Unknown`."""
        if not is_covered(subject, self.rules.subjects):
            return Unknown("no stream listens on the target, or it has no leader", may_be_stored=False)
        self.expire()
        answer = self._ttl_disabled(block) or self._known(block)
        if answer is not None:
            return answer
        refusal = self._guard_fault(subject, block) or self._rollup_fault(block) or self._ttl_fault(block)
        return refusal or Stored(self._store(subject, block, body))

    def add_consumer(self, name: str, matching: str = ">") -> MemoryConsumer:
        """Create a consumer that receives what is stored on the subjects that match."""
        consumer = self.consumers[name] = MemoryConsumer(self, matching)
        return consumer

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every message from now on; return a function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    # -- reading -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        self.expire()
        return len(self._messages)

    def message(self, sequence: int) -> StoredMessage | None:
        """Return the message with a sequence."""
        self.expire()
        return self._messages.get(sequence)

    def last(self, subject: str) -> StoredMessage | None:
        """Return the last message on a subject."""
        self.expire()
        sequences = self._subjects.get(subject)
        return self._messages[next(reversed(sequences))] if sequences else None

    def messages(self, matching: str = ">", after: int = 0) -> Iterator[StoredMessage]:
        """Yield the messages above a sequence whose subject matches, in order."""
        self.expire()
        subjects = {subject for subject in self._subjects if subject_matches(subject, matching)}
        for sequence, message in list(self._messages.items()):
            if sequence > after and message.subject in subjects:
                yield message

    # -- removing ------------------------------------------------------------------------------------------------

    def delete(self, sequence: int) -> bool:
        """Remove one message; return whether it existed."""
        message = self._messages.pop(sequence, None)
        if message is None:
            return False
        sequences = self._subjects[message.subject]
        del sequences[sequence]
        if not sequences:
            del self._subjects[message.subject]
        return True

    def delete_fault(self) -> Refused | None:
        """Return why the server would refuse to delete a message; `delete` itself always deletes it."""
        denied = self.config.get("deny_delete") is True
        return Refused(500, 10057, "message delete not permitted") if denied else None

    def purge(self, matching: str = ">", through: int | None = None) -> int:
        """Remove the messages whose subject matches, up to and including sequence `through`; return how many."""
        self.expire()
        exact = self._subjects.get(matching)
        candidates = [self._messages[s] for s in exact] if exact is not None else list(self.messages(matching))
        purged = [m.sequence for m in candidates if through is None or m.sequence <= through]
        return sum(map(self.delete, purged))

    def take(self, matching: str = ">") -> list[StoredMessage]:
        """Consume like a worker of a work queue: return the messages whose subject matches, and remove them."""
        taken = list(self.messages(matching))
        for message in taken:
            self.delete(message.sequence)
        return taken

    def expire(self) -> None:
        """Remove the messages that have expired. Every other method calls this first."""
        now = self._now()
        while self._expiries and self._expiries[0][0] <= now:
            self.delete(heapq.heappop(self._expiries)[1])

    def go_back(self, through: int, messages: Iterable[StoredMessage]) -> None:
        """Restore messages up to a sequence; without any it is a new stream. Listeners are not called.

        As the server does: afterwards it has the identities of the stored messages.
        """
        for known in (self._messages, self._subjects, self._expiries, self._identities):
            known.clear()
        self.last_sequence = through
        for message in messages:
            self._keep(message)
            self._note_identity(message.block, message.sequence, message.stored_at)

    # -- the server's checks, in its order -----------------------------------------------------------------------

    def _ttl_disabled(self, block: bytes) -> Refused | None:
        refused = _ttl(block) not in (0, None) and not self.rules.allow_msg_ttl and self.guard
        return Refused(400, 10166, "per-message TTL is disabled") if refused else None

    def _known(self, block: bytes) -> Outcome | None:
        """Return what the server answers because it knows the identity, None if it does not."""
        identity = header_value(block, b"Nats-Msg-Id")
        sequence, received_at = self._identities.get(identity or b"", (0, self._now() - self._window))
        if self._now() - received_at >= self._window:
            return None
        return Stored(sequence, duplicate=True)

    def _guard_fault(self, subject: str, block: bytes) -> Refused | None:
        expected = header_value(block, b"Nats-Expected-Last-Subject-Sequence")
        if not expected:
            return None
        last = self.last(self._guarded_by(subject, block))
        sequence = 0 if last is None else last.sequence
        return None if b"%d" % sequence == expected else Refused(400, 10071, f"wrong last sequence: {sequence}")

    def _guarded_by(self, subject: str, block: bytes) -> str:
        """Return the subject whose last message the guard of a message on `subject` expects."""
        named = header_value(block, b"Nats-Expected-Last-Subject-Sequence-Subject") if self.guard else None
        return named.decode("utf-8", "surrogateescape") if named else subject

    def _rollup_fault(self, block: bytes) -> Refused | None:
        rollup = header_value(block, b"Nats-Rollup")
        if not rollup:
            return None
        if self.config.get("allow_rollup_hdrs") is not True:
            return Refused(500, 10111, "rollup not permitted")
        if rollup.lower() in (b"sub", b"all"):
            return None
        return Refused(500, 10111, f'rollup value invalid: "{rollup.decode(errors="replace")}"')

    def _ttl_fault(self, block: bytes) -> Refused | None:
        return Refused(400, 10165, "invalid per-message TTL") if self.guard and _ttl(block) is None else None

    # -- keeping -------------------------------------------------------------------------------------------------

    def _store(self, subject: str, block: bytes, body: bytes) -> int:
        self.last_sequence += 1
        message = StoredMessage(subject, self.last_sequence, self._now(), block, body)
        self._keep(message)
        self._note_identity(block, message.sequence, message.stored_at)
        self._limit_versions(message)
        for listener in list(self._listeners):
            listener(message)
        return message.sequence

    def _keep(self, message: StoredMessage) -> None:
        self._messages[message.sequence] = message
        self._subjects.setdefault(message.subject, {})[message.sequence] = None
        self._limit_age(message)

    def _note_identity(self, block: bytes, sequence: int, stored_at: int) -> None:
        """Record an identity as the newest one, and delete those that are older than the window."""
        identity = header_value(block, b"Nats-Msg-Id")
        if not identity:
            return
        self._identities.pop(identity, None)
        self._identities[identity] = (sequence, stored_at)
        expired_at = self._now() - self._window
        while self._identities and self._identities[oldest := next(iter(self._identities))][1] <= expired_at:
            del self._identities[oldest]

    def _limit_age(self, message: StoredMessage) -> None:
        ttl = _ttl(message.block) if self.rules.allow_msg_ttl and self.guard else 0
        assert ttl is not None, "an invalid TTL was refused before"
        ages = [ttl * SECOND] if ttl > 0 else []
        if self._max_age and ttl != NEVER:
            ages.append(self._max_age)
        if ages:
            heapq.heappush(self._expiries, (message.stored_at + min(ages), message.sequence))

    def _limit_versions(self, message: StoredMessage) -> None:
        rollup = (header_value(message.block, b"Nats-Rollup") or b"").lower()
        if rollup:
            self.purge(message.subject if rollup == b"sub" else ">", message.sequence - 1)
        versions = self._subjects[message.subject]
        while self._per_subject and len(versions) > self._per_subject:
            self.delete(next(iter(versions)))


def _ttl(block: bytes) -> int | None:
    """Return a message's own TTL in seconds: 0 if it has none, None if it is invalid."""
    text = header_value(block, b"Nats-TTL")
    if not text:
        return 0
    ttl = parse_ttl(text.decode("utf-8", "surrogateescape"))
    return None if isinstance(ttl, Invalid) else ttl
