"""What lies between the sidecar and a stream in memory: it may delay, lose, or refuse what goes through.

`Perfect` lets everything arrive at once, and is what a user's tests want; derive from it to change one thing.
The rule: a network decides, once for each request and when it is begun; `MemoryContact` does what was decided.
"""

from typing import NamedTuple, Protocol

from nats_scheduler.engine.actions import PurgeSchedule, ReadContent, RemoveExpired
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import Refused
from nats_scheduler.message.stored import StoredMessage


class Fate(NamedTuple):
    """What happens to one request."""

    arrives: bool = True
    """Whether the server sees it."""
    answered: bool = True
    """Whether the answer comes back."""
    refusal: Refused | None = None
    """What the server says instead of doing it."""
    request_takes: int = 0
    """Nanoseconds until the server sees it."""
    answer_takes: int = 0
    """Nanoseconds until the answer is heard."""
    twice: bool = False
    """Whether the server sees it twice, and answers both times."""


DONE = Fate()
"""It arrives and is answered at once."""


class Network(Protocol):
    """Decides the fate of each request, and how long a message takes to the follower."""

    def publish(self, fire: Fire) -> Fate:
        """Decide what happens to a fire."""
        ...

    def read(self, request: ReadContent) -> Fate:
        """Decide what happens to a read."""
        ...

    def purge(self, request: PurgeSchedule) -> Fate:
        """Decide what happens to a purge."""
        ...

    def remove(self, request: RemoveExpired) -> Fate:
        """Decide what happens to the removal of a message that has expired."""
        ...

    def follow(self, message: StoredMessage) -> int:
        """Return how long (ns) a stored message takes to the follower; none overtakes another."""
        ...


class Perfect:
    """A network on which nothing is late and nothing is lost. Derive from it to change one thing."""

    def publish(self, fire: Fire) -> Fate:
        """Let a fire arrive."""
        return DONE

    def read(self, request: ReadContent) -> Fate:
        """Let a read arrive."""
        return DONE

    def purge(self, request: PurgeSchedule) -> Fate:
        """Let a purge arrive."""
        return DONE

    def remove(self, request: RemoveExpired) -> Fate:
        """Let a removal arrive."""
        return DONE

    def follow(self, message: StoredMessage) -> int:
        """Let a message come at once."""
        return 0
