"""The record of a round while it runs: which process was alive when, and what was broken when.

Its rule: an instant is taken from the clock that the servers stamp messages with, which is this machine's.
What befalls one sidecar is a fault of its own for as long as it lasts, and a moment's fault for all: from then on the
others have to take over what it held, within the 3 s of *Live*.
"""

import time

from tests.judge.history import SECOND, Fault, History, Life, Terms

MACHINE = "machine"
"""The kind of fault of an overloaded machine."""


def now() -> int:
    """Return the time of the servers (ns)."""
    return time.time_ns()


class Record:
    """The record of a round."""

    def __init__(self, terms: Terms) -> None:
        self.history = History(terms, begin=now())
        self.story: list[str] = []
        """The course of the round, line by line, for people."""

    def tell(self, line: str, instant: int | None = None) -> None:
        """Add a line to the report."""
        self.story.append(f"{((instant or now()) - self.history.begin) / SECOND:8.3f} {line}")

    def took_over_from(self, kind: str, begin: int) -> None:
        """Note that from an instant on others have to take over."""
        self.history.faults.append(Fault(kind, None, begin, begin))

    def broken(self, kind: str, instance: str | None, begin: int, ahead: int = 0) -> None:
        """Note what was broken from an instant until now, for one sidecar or (None) for all.

        If clocks were ahead by `ahead` (ns), what is due until they would show that again is settled.
        """
        end = now() + ahead
        self.history.faults.append(Fault(kind, instance, begin, end, ahead=ahead))
        self.tell(f"{kind} of {instance or 'all'} until {(end - self.history.begin) / SECOND:.3f}", begin)

    @property
    def last_trouble(self) -> int:
        """The instant (ns) at which the last fault ended."""
        return max((fault.end for fault in self.history.faults), default=self.history.begin)

    def lived(self, instance: str, begin: int, end: int) -> None:
        """Note the life of a process."""
        self.history.lives.append(Life(instance, begin, end))
        self.tell(f"life of {instance} until {(end - self.history.begin) / SECOND:.3f}", begin)

    def machine_stood_still(self, begin: int) -> None:
        """Note that the machine was overloaded from an instant until now: any process may have stalled."""
        self.broken(MACHINE, None, begin)
