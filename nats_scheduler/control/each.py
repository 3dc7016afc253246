"""One change to many schedules: each is tried, whatever became of the others.

Rule: a schedule that cannot be changed does not stop the others, and is named at the end.
The caller runs as many workers as it wants changes at the same time.
Limit: if the server does not answer `MAX_UNANSWERED` times, the rest is not tried, and fails for that reason.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from nats_scheduler.control.changes import Change
from nats_scheduler.control.errors import NoAnswerError, ScheduleError, UnknownOutcomeError

MAX_AT_ONCE = 16
"""How many schedules are changed at the same time: enough to hide the way to a server far away."""

MAX_UNANSWERED = 3
"""How many changes the server may leave unanswered before the rest is not tried."""


@dataclass(slots=True)
class Done:
    """What became of them, by their subjects."""

    changes: dict[str, Change] = field(default_factory=dict)
    failures: dict[str, ScheduleError] = field(default_factory=dict)
    unanswered: int = 0
    """How often the server did not answer."""

    def in_order(self, subjects: Sequence[str]) -> Done:
        """Return the same in the order of the subjects."""
        changes = {subject: self.changes[subject] for subject in subjects if subject in self.changes}
        failures = {subject: self.failures[subject] for subject in subjects if subject in self.failures}
        return Done(changes, failures, self.unanswered)


class Each:
    """The change of the schedules on some subjects."""

    def __init__(
        self,
        subjects: Sequence[str],
        operation: Callable[[str], Awaitable[Change]],
        notify: Callable[[int], None] = lambda _number: None,
    ) -> None:
        """`operation` changes the schedule on one subject; `notify` is called with how many are done."""
        self._subjects = subjects
        self._operation = operation
        self._notify = notify
        self._left = iter(subjects)
        self._done = Done()

    @property
    def workers(self) -> int:
        """How many workers are of use."""
        return min(MAX_AT_ONCE, len(self._subjects))

    @property
    def done(self) -> Done:
        """What became of those that were tried, in the order of the subjects."""
        return self._done.in_order(self._subjects)

    async def work(self) -> None:
        """Change one after the other until none is left; several workers may run at the same time."""
        done = self._done
        while (subject := next(self._left, None)) is not None:
            if done.unanswered >= MAX_UNANSWERED:
                done.failures[subject] = NoAnswerError("it was not tried, because the server does not answer")
                continue
            try:
                done.changes[subject] = await self._operation(subject)
            except ScheduleError as error:
                done.failures[subject] = error
                done.unanswered += isinstance(error, NoAnswerError | UnknownOutcomeError)
            self._notify(len(done.changes) + len(done.failures))
