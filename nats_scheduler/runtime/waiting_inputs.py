"""The inputs of one engine that wait for its next step.

A step gets only as much as it can do in a moment: what is due meanwhile, in any stream of the process, waits for
that. The engine reads no clock, so its work is estimated: that of contents by their number, that of messages by what
they contain (`message.effort`).

The rule: inputs are taken in the order in which they came. A content that was read before a removal was requested
may not be taken after that. But the loss of the contact passes all that wait: nothing fires from then on, and what
the contact has delivered is taken as what is read without one.
Before a burst tens of thousands of contents wait here.
"""

from collections import deque
from collections.abc import Iterator

from nats_scheduler.engine.inputs import CaughtUp, ContactLost, ContentFetched, Input, MessagesRead
from nats_scheduler.message.effort import effort_of
from nats_scheduler.message.runs import MessageRun

MAX_WORK_PER_STEP = 1_000
"""The work that one step takes at most, in estimated microseconds; a single message that costs more is taken alone."""

MAX_CONTENTS_PER_STEP = 32
"""Contents that are taken in one step: a fire is built of each, in some 30 us, and what is due waits for that."""

CONTENT_WORK = MAX_WORK_PER_STEP // MAX_CONTENTS_PER_STEP

MESSAGES_OF_NO_MEANING = 16
"""So many messages of a run without a meaning cost a microsecond."""


class WaitingInputs:
    """The inputs that wait, in order."""

    def __init__(self) -> None:
        self._inputs: deque[tuple[int, Input]] = deque()
        """The work for each, and it."""
        self._work = 0
        """That of all."""

    def __len__(self) -> int:
        return len(self._inputs)

    def add(self, given: Input) -> None:
        """Add the last input."""
        if isinstance(given, MessagesRead):
            for work, part in _parts_of(given):
                self._append(work, part)
            return
        if isinstance(given, ContactLost):
            left = [waiting for waiting in self._inputs if not isinstance(waiting[1], CaughtUp)]
            self._inputs = deque([(0, given), *left])
            return
        self._append(CONTENT_WORK if isinstance(given, ContentFetched) else 0, given)

    def _append(self, work: int, given: Input) -> None:
        self._inputs.append((work, given))
        self._work += work

    def take(self) -> list[Input]:
        """Take what the next step gets, which may be nothing; what is left is for the steps after it."""
        inputs = self._inputs
        if self._work <= MAX_WORK_PER_STEP:
            self._work = 0
            taken = [given for _work, given in inputs]
            inputs.clear()
            return taken
        taken, left = [], MAX_WORK_PER_STEP
        while inputs and (not taken or inputs[0][0] <= left):
            work, given = inputs.popleft()
            left -= work
            taken.append(given)
        self._work -= MAX_WORK_PER_STEP - left
        return taken


def _parts_of(read: MessagesRead) -> Iterator[tuple[int, MessagesRead]]:
    """Yield messages that were read in parts that a step may take at once, each after the work for it."""
    messages, through = read
    if not isinstance(messages, MessageRun):
        work = effort_of([message.block for message in messages])
    elif messages.is_ordinary:
        work = len(messages) // MESSAGES_OF_NO_MEANING
    else:
        work = effort_of(messages.blocks)
    middle = len(messages) // 2
    if work <= MAX_WORK_PER_STEP or not middle:
        yield work, read
    else:
        yield from _parts_of(MessagesRead(messages[:middle]))
        yield from _parts_of(MessagesRead(messages[middle:], through))
