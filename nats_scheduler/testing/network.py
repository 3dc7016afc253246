"""The network between the sidecar and a stream in memory: it may delay, lose or refuse a request.

With `Perfect` everything arrives immediately, which is right for most tests of users; derive from it to change one
thing.
The rule: a network decides once for each request, when it begins; `MemoryContact` does what was decided.
"""

from typing import NamedTuple

from nats_scheduler.engine.actions import PurgeSchedule, RemoveExpired
from nats_scheduler.engine.fire import FetchContent, Fire
from nats_scheduler.engine.inputs import Refused
from nats_scheduler.message.stored import StoredMessage


class Fate(NamedTuple):
    """The fate of one request, and of its answer."""

    arrives: bool = True
    """True if the server receives it."""
    answered: bool = True
    """True if the answer arrives."""
    refusal: Refused | None = None
    """The server's refusal, if it does not execute the request."""
    request_takes: int = 0
    """Nanoseconds until the server receives it."""
    answer_takes: int = 0
    """Nanoseconds until the answer arrives."""
    twice: bool = False
    """True if the server receives it twice, and answers both times."""


DONE = Fate()
"""The request arrives and is answered immediately."""


class Perfect:
    """A network without delays and losses; what derives from it changes one thing."""

    def publish(self, fire: Fire) -> Fate:
        """Decide what happens to a fire."""
        return DONE

    def read(self, request: FetchContent) -> Fate:
        """Decide what happens to a read."""
        return DONE

    def purge(self, request: PurgeSchedule) -> Fate:
        """Decide what happens to a purge."""
        return DONE

    def remove(self, request: RemoveExpired) -> Fate:
        """Decide what happens to the removal of a message that has expired."""
        return DONE

    def follow(self, message: StoredMessage) -> int:
        """Return how long (ns) a stored message takes to the follower; messages keep their order."""
        return 0
