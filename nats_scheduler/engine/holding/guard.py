"""A failure of one schedule ends that schedule: a mistake of this program in one of them never stops the others.

What one message or one schedule makes the engine do runs under the guard: each input (`StreamEngine.step`), and each
item where one call works on several (`Guard.each`). What it raises is a mistake of ours, whatever a publisher wrote.
The schedule is then rejected as *failed*: it is listed and reported as rejected, with the text of the error, fires
nothing, and is read anew when it is stored again and at each start.

The rules:

- What is half changed is not used any more: the schedule is taken out of every place that holds it, and nothing is
  asked of it (`Admission.reject_failed`).
- What concerns no single schedule is raised again: the stream gets a new engine. So is what the table of schedules
  raises, whatever was asked of it.

Cost: nothing, as long as nothing is raised.
"""

import sqlite3
from collections.abc import Callable, Iterable
from typing import TypeVar

from nats_scheduler.engine.fire import (
    AwaitProposals,
    CheckFinished,
    CompareBodies,
    FetchContent,
    FetchDuplicate,
    Fire,
    LookForFire,
)
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.table import DamagedTableError
from nats_scheduler.engine.inputs import (
    BodiesCompared,
    ContentFetched,
    DuplicateFetched,
    ExpiryConcluded,
    FinishChecked,
    FireLookedFor,
    ProposalsApplied,
    PublishConcluded,
    PurgeConcluded,
    Unanswered,
)
from nats_scheduler.message.stored import StoredMessage

T = TypeVar("T")

OF_TABLE = (sqlite3.Error, DamagedTableError)
"""What is raised if the table of schedules cannot be read or written."""

_WITH_FIRE = PublishConcluded | DuplicateFetched | ProposalsApplied | FireLookedFor
_ABOUT_FIRE = FetchDuplicate | AwaitProposals | LookForFire


class Guard:
    """Runs what concerns one schedule."""

    def __init__(self, reject: Callable[[object, str, int, Exception], None]) -> None:
        """Have `reject` called for what failed: with what it was, a schedule's subject and sequence, and the error."""
        self._reject = reject

    def each(self, items: Iterable[T], act: Callable[[T], object]) -> None:
        """Call `act` for each item, such as a schedule, a fire or a message; one that fails keeps no other from it."""
        left = iter(items)
        is_over = False
        while not is_over:
            one: T | None = None
            try:
                for one in left:
                    act(one)
                    one = None  # what `items` itself raises concerns none of them
                is_over = True
            except Exception as error:
                self.failed(one, error)

    def failed(self, one: object, error: Exception) -> None:
        """Reject the schedule that an item or an input concerns as failed; raises the error if it concerns none."""
        concerned = None if isinstance(error, OF_TABLE) else _concerned(one)
        if concerned is None:
            raise error
        self._reject(one, *concerned, error)


def fire_of(one: object) -> Fire | None:
    """Return the fire that an input is about, or answers a question about."""
    if isinstance(one, Unanswered):
        one = one.question
    return one.fire if isinstance(one, _WITH_FIRE | _ABOUT_FIRE) else None


def _concerned(one: object) -> tuple[str, int] | None:
    """Return the subject and the sequence of the one schedule that an item or an input concerns."""
    match one:
        case Held() | StoredMessage():
            return one.subject, one.sequence
        case Fire() | FetchContent() | CheckFinished() | CompareBodies() | ContentFetched():
            return one.schedule, one.sequence
        case ExpiryConcluded() if one.subject is not None:
            return one.subject, one.sequence
        case PurgeConcluded():
            return one.schedule, one.through
        case FinishChecked():
            return _concerned(one.request)
        case BodiesCompared():
            return _concerned(one.question)
        case (str() as subject, int() as sequence):
            return subject, sequence
    if (fire := fire_of(one)) is not None:
        return fire.schedule, fire.sequence
    return _concerned(one.question) if isinstance(one, Unanswered) else None


def described(error: Exception) -> str:
    """Return what an error says, and the line of the program that raised it."""
    place, at = "", error.__traceback__
    while at is not None:
        place = f"{at.tb_frame.f_code.co_filename.rpartition('/')[2]}:{at.tb_lineno}"
        at = at.tb_next
    return f"{type(error).__name__}: {error} ({place})"
