"""A JetStream stream in memory: what the sidecar relies on, and nothing else.

The rule: every answer is the one that a nats-server 2.11 on its own gives, in the order of its checks.
One suite of tests asks both (`tests/contract/`).
With `behind` it stands for a stream of a cluster, whose leader has yet to apply what a replica has delivered already:
`last` and `message` are what the replica says, `known` and the checks of a publish what the leader does.
Time is asked of the function that it is given, so messages expire, and identities are forgotten, when a test says so.

Kept in dictionaries, since their order is that of storing: the last message of a subject is the last key.
Cost: a few microseconds a message. Limit: no consumers, no replicas, no limits on count and bytes of the stream, no
delete markers; `take` stands for a consumer of a work queue.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from nats_scheduler.engine.inputs import Outcome, Refused, Stored, Unknown
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import is_covered, subject_matches
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.ttls import NEVER, parse_ttl

DUPLICATE_WINDOW = 120 * SECOND
"""How long (ns) an identity is remembered unless the configuration says otherwise."""

IN_PROCESS = 0
"""Stands for the sequence of an identity whose message is not stored.

As the server does: in a cluster, 2.11 notes the identity before the guard looks, and keeps it although that refuses.
"""

Listener = Callable[[StoredMessage], None]
"""Is called with each message as it is stored."""


class MemoryStream:
    """One stream. `config` is the JSON of the JetStream API; `guard=False` makes it a server 2.10: TTLs are inert."""

    def __init__(self, config: Mapping[str, Any], now: Callable[[], int], *, guard: bool = True) -> None:
        self.config = dict(config)
        self.rules = StreamRules.from_config(config)
        self.guard = guard
        self.last_sequence = 0
        """The sequence given last; it is never given again."""
        self.behind = 0
        """How long (ns) after a message was stored the leader has applied it."""
        self._applied = 0
        self._to_apply: deque[tuple[int, int]] = deque()
        """When (ns) each of the latest messages was stored, and its sequence."""
        self._now = now
        self._max_age = max(int(config.get("max_age") or 0), 0)
        self._per_subject = max(int(config.get("max_msgs_per_subject") or 0), 0)
        self._window = int(config.get("duplicate_window") or min(DUPLICATE_WINDOW, self._max_age or DUPLICATE_WINDOW))
        self._messages: dict[int, StoredMessage] = {}
        self._subjects: dict[str, dict[int, None]] = {}
        self._expiries: list[tuple[int, int]] = []
        self._identities: dict[bytes, tuple[int, int]] = {}
        self._listeners: list[Listener] = []

    # -- storing -------------------------------------------------------------------------------------------------

    def publish(self, subject: str, block: bytes = b"", body: bytes = b"") -> Outcome:
        """Store a message, or say why not; on a subject that is not the stream's nobody listens, which is `Unknown`."""
        if not is_covered(subject, self.rules.subjects):
            return Unknown("no stream listens on the target, or it has no leader")
        self.expire()
        refusal = self._ttl_disabled(block)
        if refusal is not None:
            return refusal
        known = self._duplicate_of(block)
        if known == IN_PROCESS:
            return Unknown("the server has this fire in process")
        if known is not None:
            return Stored(known, duplicate=True)
        refusal = self._guard_fault(subject, block)
        if refusal is not None and self.behind:
            self._note_identity(block, IN_PROCESS, self._now())
        refusal = refusal or self._rollup_fault(block) or self._ttl_fault(block)
        return refusal or Stored(self._store(subject, block, body))

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every message from now on; returns what ends that."""
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

    @property
    def applied(self) -> int:
        """The sequence up to which the leader has applied what was stored; it never goes back."""
        self._apply()
        return self._applied

    def has_applied(self, sequence: int) -> bool:
        """Return whether the leader has come as far as a sequence, so that what it does not know is not there."""
        return not self.behind or sequence <= self.applied

    def known(self, subject: str) -> StoredMessage | None:
        """Return the last message on a subject that the leader knows; what was removed is gone for it at once."""
        self.expire()
        applied = self.applied
        sequences = reversed(self._subjects.get(subject, {}))
        return next((self._messages[sequence] for sequence in sequences if sequence <= applied), None)

    def messages(self, matching: str = ">", after: int = 0) -> Iterator[StoredMessage]:
        """Yield the messages above a sequence whose subject matches, in order."""
        self.expire()
        for sequence, message in list(self._messages.items()):
            if sequence > after and subject_matches(message.subject, matching):
                yield message

    # -- removing ------------------------------------------------------------------------------------------------

    def delete(self, sequence: int) -> bool:
        """Remove one message; returns whether it was there."""
        message = self._messages.pop(sequence, None)
        if message is None:
            return False
        sequences = self._subjects[message.subject]
        del sequences[sequence]
        if not sequences:
            del self._subjects[message.subject]
        return True

    def delete_fault(self) -> Refused | None:
        """Return why a request to delete a message is refused; `delete` itself always does it."""
        denied = self.config.get("deny_delete") is True
        return Refused(500, 10057, "message delete not permitted") if denied else None

    def purge(self, matching: str = ">", through: int | None = None) -> int:
        """Remove the messages whose subject matches, up to and including sequence `through`; returns how many."""
        self.expire()
        exact = self._subjects.get(matching)
        candidates = [self._messages[s] for s in exact] if exact is not None else list(self.messages(matching))
        doomed = [m.sequence for m in candidates if through is None or m.sequence <= through]
        return sum(map(self.delete, doomed))

    def take(self, matching: str = ">") -> list[StoredMessage]:
        """Consume as a worker of a work queue does: return the messages whose subject matches, and remove them."""
        taken = list(self.messages(matching))
        for message in taken:
            self.delete(message.sequence)
        return taken

    def expire(self) -> None:
        """Remove what is too old by now. Every other method does so first."""
        now = self._now()
        while self._expiries and self._expiries[0][0] <= now:
            self.delete(heapq.heappop(self._expiries)[1])

    def copied(self) -> tuple[int, list[StoredMessage]]:
        """Return a copy: the last sequence, and what is stored."""
        return self.last_sequence, list(self.messages())

    def go_back(self, through: int, messages: Iterable[StoredMessage]) -> None:
        """Have a copy restored, which may be empty: the stream is made anew then; who listens is not told.

        As the server does: identities are known of what is stored, and the leader has applied it.
        """
        for known in (self._messages, self._subjects, self._expiries, self._identities, self._to_apply):
            known.clear()
        self.last_sequence = self._applied = through
        for message in messages:
            self._keep(message)
            self._note_identity(message.block, message.sequence, message.stored_at)

    # -- the server's checks, in its order -----------------------------------------------------------------------

    def _ttl_disabled(self, block: bytes) -> Refused | None:
        refused = _ttl(block) not in (0, None) and not self.rules.allow_msg_ttl and self.guard
        return Refused(400, 10166, "per-message TTL is disabled") if refused else None

    def _duplicate_of(self, block: bytes) -> int | None:
        identity = header_value(block, b"Nats-Msg-Id")
        known = self._identities.get(identity) if identity else None
        return known[0] if known is not None and self._now() - known[1] < self._window else None

    def _guard_fault(self, subject: str, block: bytes) -> Refused | None:
        expected = header_value(block, b"Nats-Expected-Last-Subject-Sequence")
        if not expected:
            return None
        named = header_value(block, b"Nats-Expected-Last-Subject-Sequence-Subject") if self.guard else None
        last = self.last(named.decode("utf-8", "surrogateescape") if named else subject)
        sequence = 0 if last is None else last.sequence
        if sequence > self.applied:
            return Refused(400, 10164, "wrong last sequence")
        return None if b"%d" % sequence == expected else Refused(400, 10071, f"wrong last sequence: {sequence}")

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

    def _apply(self) -> None:
        while self._to_apply and self._to_apply[0][0] <= self._now() - self.behind:
            self._applied = self._to_apply.popleft()[1]

    # -- keeping -------------------------------------------------------------------------------------------------

    def _store(self, subject: str, block: bytes, body: bytes) -> int:
        self.last_sequence += 1
        message = StoredMessage(subject, self.last_sequence, self._now(), block, body)
        self._keep(message)
        self._to_apply.append((message.stored_at, message.sequence))
        self._apply()
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
        """Remember an identity as the youngest, and forget those that fell out of the window."""
        identity = header_value(block, b"Nats-Msg-Id")
        if not identity:
            return
        self._identities.pop(identity, None)
        self._identities[identity] = (sequence, stored_at)
        forgotten = self._now() - self._window
        while self._identities and self._identities[oldest := next(iter(self._identities))][1] <= forgotten:
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
