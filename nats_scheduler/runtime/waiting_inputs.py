"""The inputs of one engine that wait for its next step.

Of contents a step gets only as many as it can build fires of in a moment: what is due meanwhile waits for that.

The rule: inputs are taken in the order in which they came. A content that was read before a removal was requested may
not be taken after that. But nothing is left behind the loss of the contact.

Cost: what a step takes; how much is left does not count. Before a burst, tens of thousands of contents wait here.
"""

from collections import deque

from nats_scheduler.engine.inputs import ContactLost, ContentRead, Input

MAX_CONTENTS_PER_STEP = 32
"""Contents that are taken in one step: a fire is built of each, in some 30 us, and what is due waits for that."""


class WaitingInputs:
    """The inputs that wait, in order."""

    def __init__(self) -> None:
        self._inputs: deque[Input] = deque()
        self._contents = 0
        """How many of them are contents."""
        self._is_lost = False
        """Whether one of them is the loss of the contact."""

    def __len__(self) -> int:
        return len(self._inputs)

    def add(self, given: Input) -> None:
        """Add the last input."""
        if isinstance(given, ContentRead):
            self._contents += 1
        elif isinstance(given, ContactLost):
            self._is_lost = True
        self._inputs.append(given)

    def take(self) -> list[Input]:
        """Take what the next step gets, which may be nothing; what is left is for the steps after it."""
        inputs = self._inputs
        if self._contents <= MAX_CONTENTS_PER_STEP or self._is_lost:
            self._contents, self._is_lost = 0, False
            taken = list(inputs)
            inputs.clear()
            return taken
        taken, contents = [], 0
        while contents < MAX_CONTENTS_PER_STEP or not isinstance(inputs[0], ContentRead):
            given = inputs.popleft()
            contents += isinstance(given, ContentRead)
            taken.append(given)
        self._contents -= contents
        return taken
