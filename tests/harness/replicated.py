"""A stream of a cluster in memory: its leader may be behind a replica, and replicas agree on what it has accepted.

With `behind` the leader has not yet applied what a replica has already delivered: `last` and `message` return what the
replica has; `last_applied` and the checks of a publish use what the leader has. Until the leader has applied a message,
its identity is in process, and so is the subject that its guard names.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nats_scheduler.engine.actions import RemoveExpired
from nats_scheduler.engine.fire import CheckFinished, FetchContent
from nats_scheduler.engine.inputs import (
    ContentFetched,
    ExpiryConcluded,
    Input,
    Outcome,
    ProposalsApplied,
    PublishConcluded,
    Refused,
    Stored,
    Unanswered,
    Unknown,
)
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.testing.memory_contact import MemoryContact
from nats_scheduler.testing.memory_stream import MemoryStream

IN_PROCESS = 0
"""The sequence of an identity whose message is not stored.

As the server does: in a cluster, 2.11 records the identity before it checks the guard, and keeps it although the guard
refuses the message.
"""

NOT_APPLIED = "the leader has not come so far"


class ReplicatedStream(MemoryStream):
    """One stream, as its leader and its replicas have it."""

    def __init__(self, config: Mapping[str, Any], now: Callable[[], int], *, guard: bool = True) -> None:
        super().__init__(config, now, guard=guard)
        self._behind = 0
        self._applied = 0
        self._to_apply: deque[tuple[int, int, int]] = deque()
        """When (ns) each message was stored that the leader has not applied, when it will be, and its sequence."""
        self._keeps_refused = int(config.get("num_replicas") or 1) > 1
        """True if what the guard refuses keeps its identity in process, as on a 2.11."""
        self._guarded: dict[str, int] = {}
        """The sequence of the last message whose guard names a subject."""
        self._is_proposed = False

    @property
    def behind(self) -> int:
        """The time (ns) from the storage of a message until the leader applies it."""
        return self._behind

    @behind.setter
    def behind(self, time: int) -> None:
        """Let it take another time; what is stored is not applied later by that: the leader may have said when."""
        self._behind = time
        self._to_apply = deque((stored, min(at, stored + time), sequence) for stored, at, sequence in self._to_apply)

    def propose(self, block: bytes) -> Outcome | None:
        """Receive a message on which replicas have to agree: its identity is in process until it is published.

        Return the answer if there is one already, because the identity is known.
        """
        self.expire()
        answer = self._known(block)
        if answer is None:
            self._note_identity(block, IN_PROCESS, self._now())
        return answer

    def publish_proposed(self, subject: str, block: bytes, body: bytes) -> Outcome:
        """Store a message that was proposed, and so has its identity already."""
        self._is_proposed = True
        try:
            return self.publish(subject, block, body)
        finally:
            self._is_proposed = False

    def change_leader(self) -> None:
        """Let another node lead, or the same one again, which has applied all that is stored.

        As the server does: it does not know the identities of what was accepted and is not stored.
        """
        self._to_apply.clear()
        self._applied = self.last_sequence
        self._guarded.clear()
        in_process = [identity for identity, (sequence, _at) in self._identities.items() if sequence == IN_PROCESS]
        for identity in in_process:
            del self._identities[identity]

    def copied(self) -> tuple[int, list[StoredMessage]]:
        """Return a copy: the last sequence, and the stored messages."""
        return self.last_sequence, list(self.messages())

    def go_back(self, through: int, messages: Iterable[StoredMessage]) -> None:
        """Restore a copy, which the leader has applied."""
        self._to_apply.clear()
        self._guarded.clear()
        self._applied = through
        super().go_back(through, messages)

    @property
    def applied(self) -> int:
        """The sequence up to which the leader has applied the stored messages; it only decreases in `go_back`."""
        self._apply()
        return self._applied

    def has_applied(self, sequence: int) -> bool:
        """Return whether the leader has applied a sequence; then a message up to it that it does not have is gone."""
        return not self.behind or sequence <= self.applied

    def last_applied(self, subject: str) -> StoredMessage | None:
        """Return the last message on a subject that the leader has applied; it applies removals immediately."""
        self.expire()
        applied = self.applied
        sequences = reversed(self._subjects.get(subject, {}))
        return next((self._messages[sequence] for sequence in sequences if sequence <= applied), None)

    def first_applied(self, subject: str, after: int) -> StoredMessage | None:
        """Return the first message on a subject above a sequence that the leader has applied."""
        applied = self.applied
        sequences = (s for s in self._subjects.get(subject, {}) if after < s <= applied)
        return next((self._messages[sequence] for sequence in sequences), None)

    def _known(self, block: bytes) -> Outcome | None:
        known = None if self._is_proposed else super()._known(block)
        if isinstance(known, Stored) and (known.sequence == IN_PROCESS or known.sequence > self.applied):
            return Unknown("the server has this fire in process", in_process=True)
        return known

    def _guard_fault(self, subject: str, block: bytes) -> Refused | None:
        refusal = super()._guard_fault(subject, block)
        if header_value(block, b"Nats-Expected-Last-Subject-Sequence"):
            named = self._guarded_by(subject, block)
            last = self.last(named)
            if max(0 if last is None else last.sequence, self._guarded.get(named, 0)) > self.applied:
                refusal = Refused(400, 10164, "wrong last sequence")
        if refusal is not None and (self.behind or self._keeps_refused):
            self._note_identity(block, IN_PROCESS, self._now())
        return refusal

    def _store(self, subject: str, block: bytes, body: bytes) -> int:
        sequence = self.last_sequence + 1
        if self.behind and header_value(block, b"Nats-Expected-Last-Subject-Sequence"):
            self._guarded[self._guarded_by(subject, block)] = sequence
        self._to_apply.append((self._now(), self._now() + self.behind, sequence))
        self._apply()
        return super()._store(subject, block, body)

    def _apply(self) -> None:
        while self._to_apply and self._to_apply[0][1] <= self._now():
            self._applied = self._to_apply.popleft()[-1]


class LaggingContact(MemoryContact):
    """Contact with a stream whose leader may be behind; what it answers is what it has applied."""

    _stream: ReplicatedStream

    def _lag_of(self, answer: Input) -> int:
        """Return how long (ns) the leader takes to apply what is stored: a fire, or a purge, is answered after that."""
        if isinstance(answer, PublishConcluded) and isinstance(answer.outcome, Stored):
            waits = not (answer.outcome.duplicate or answer.fire.is_to_other_stream)
        else:
            waits = isinstance(answer, ProposalsApplied)
        return self._stream.behind if waits else 0

    def _reading(self, request: FetchContent) -> Any:
        schedule, sequence, source = request.schedule, request.sequence, request.source

        def do() -> Input:
            message = self._stream.last_applied(schedule)
            if request.above and message is not None and self._stream.has_applied(sequence):
                covered = self._stream.message(sequence)
                message = covered if covered is not None and covered.subject == schedule else None
            if (message is None or message.sequence < sequence) and not self._stream.has_applied(sequence):
                return Unanswered(request, NOT_APPLIED)
            above = self._stream.first_applied(schedule, request.above) if request.above else None
            return ContentFetched(schedule, sequence, message, self._stream.last(source) if source else None, above)

        return super()._reading(request)._replace(do=do)

    def _checking(self, request: CheckFinished) -> Any:
        return self._once_applied(super()._checking(request), request.through, Unanswered(request, NOT_APPLIED))

    def _removing(self, request: RemoveExpired) -> Any:
        unapplied = ExpiryConcluded(request.sequence, failure=NOT_APPLIED)
        return self._once_applied(super()._removing(request), request.sequence, unapplied)

    def _once_applied(self, request: Any, sequence: int, unapplied: Input) -> Any:
        return request._replace(do=lambda: request.do() if self._stream.has_applied(sequence) else unapplied)
