"""A history made by hand, in which every promise is kept: tests change one thing in it.

Its rule: instants are seconds after the beginning.
"""

from tests.judge.history import SECOND, FireSeen, History, Life, Operation, ScheduleSeen, Terms, Verb
from tests.judge.patterns import Pattern, written

BEGIN = 1_767_225_600 * SECOND
MILLI = SECOND // 1000
EVERY_2S = Pattern("every", 2)


def at(seconds: float) -> int:
    """Return an instant in seconds after the beginning."""
    return BEGIN + round(seconds * 1000) * MILLI


def fire(due: float, sequence: int, *, late: float = 0.001, of: int = 1, following: float | None = None) -> FireSeen:
    """Make a fire as it should be; `following` is the next one, two seconds later unless given."""
    upcoming = at(due + 2 if following is None else following)
    headers = (("Nats-Scheduler", "s.1"), ("Nats-Schedule-Next", written(upcoming)))
    return FireSeen("s.1", of, at(due), "t.1", at(due + late), sequence, b"one", headers)


def history() -> History:
    """Make a history of twelve seconds: one instance, and a schedule that fires each two seconds from 4 s on."""
    made = History(Terms(resumes_within=SECOND), BEGIN, at(12))
    made.lives = [Life("i0", at(0), at(12))]
    store = Operation(Verb.STORE, "s.1", at(1.9), at(2.1), 1, pattern=EVERY_2S, target="t.1", body=b"one")
    made.operations = [store]
    made.schedules = [ScheduleSeen("s.1", 1, at(2), b"one")]
    made.fires = [fire(due, 10 + due) for due in (4, 6, 8, 10)]
    made.fires.append(fire(12, 22, late=0))
    made.remaining = {1}
    return made
