"""Publishers: they store, replace, overwrite, delete, purge and cancel, several at a time, and do not always hear back.

Its rule: a request does one thing at one moment between its invocation and its completion, or, unheard of, at some
moment later or never; what was asked is recorded as the publisher knows it.
"""

from collections.abc import Callable
from random import Random

from nats_scheduler.engine.inputs import RemovalRequested, Stored
from nats_scheduler.message.headers import with_headers
from tests.judge.history import SECOND, Operation, Verb
from tests.judge.patterns import Pattern
from tests.simulation.scenario import MILLISECOND
from tests.simulation.server import Server

SUBJECTS = [f"s.{number}" for number in range(12)]
VERBS = [Verb.STORE] * 8 + [Verb.OVERWRITE, Verb.DELETE, Verb.DELETE, Verb.PURGE, Verb.PURGE, Verb.CANCEL, Verb.CANCEL]


class Publishers:
    """All publishers of a world."""

    def __init__(self, server: Server, random: Random, trace: Callable[[str], None]) -> None:
        self._server = server
        self._timeline = server.timeline
        self._random = random
        self._trace = trace
        self._last: dict[str, int] = {}
        self.is_over = False

    def act_now_and_again(self, mean: int) -> None:
        """Ask for something, and again after a while, until it is over."""
        if self.is_over:
            return
        self._act()
        self._timeline.after(int(self._random.expovariate(1 / mean)), lambda: self.act_now_and_again(mean))

    def _act(self) -> None:
        subject, verb = self._random.choice(SUBJECTS), self._random.choice(VERBS)
        if verb is Verb.DELETE and subject not in self._last:
            verb = Verb.STORE
        operation = Operation(verb, subject, self._timeline.now)
        if verb is Verb.STORE:
            operation.pattern = self._pattern()
            operation.target = f"t.{subject[2:]}"
            operation.body = b"%d" % len(self._server.history.operations)
        elif verb is Verb.DELETE:
            operation.names = self._last[subject]
        self._server.history.operations.append(operation)
        chance = self._random.random()
        if chance < 0.03:
            return  # lost on its way there
        way = int(self._random.random() * (200 if chance > 0.9 else 3) * MILLISECOND)
        self._timeline.after(way, lambda: self._happens(operation, is_answered=chance > 0.06))

    def _pattern(self) -> Pattern:
        kind = self._random.choice(["at", "at", "every", "cron"])
        if kind == "at":
            return Pattern(kind, self._timeline.now // SECOND + self._random.randint(-3, 15))
        return Pattern(kind, self._random.choice([1, 2, 3, 7, 10, 20, 20]))

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
        """Have the server do it; returns the sequence of what was stored."""
        stream, subject = self._server.stream, operation.schedule
        if operation.verb is Verb.DELETE and operation.names is not None:
            stream.delete(operation.names)
            self._server.tell_of_removal(RemovalRequested(sequence=operation.names))
            return None
        if operation.verb is Verb.PURGE:
            stream.purge(subject)
            self._server.tell_of_removal(RemovalRequested(filter=subject))
            return None
        if operation.verb is Verb.CANCEL:
            return self._stored("x.cancel", {"Nats-Scheduler": subject, "Nats-Schedule-Next": "purge"}, b"")
        headers = {}
        if operation.pattern is not None:
            headers = {"Nats-Schedule": operation.pattern.text, "Nats-Schedule-Target": operation.target}
        return self._stored(subject, headers, operation.body)

    def _stored(self, subject: str, headers: dict[str, str], body: bytes) -> int:
        block = with_headers(b"", [(name.encode(), value.encode()) for name, value in headers.items()])
        outcome = self._server.stream.publish(subject, block, body)
        assert isinstance(outcome, Stored), f"{subject}: {outcome}"
        return outcome.sequence
