"""A history made by hand, in which every promise is kept: tests change one thing in it.

Its rule: instants are seconds after the beginning.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

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


STORE = Operation(Verb.STORE, "s.1", at(1.9), at(2.1), 1, pattern=EVERY_2S, target="t.1", body=b"one")

KEPT = History(
    Terms(resumes_within=SECOND),
    BEGIN,
    at(12),
    [STORE],
    [ScheduleSeen("s.1", 1, at(2), b"one")],
    [*(fire(due, 10 + due) for due in (4, 6, 8, 10)), fire(12, 22, late=0)],
    {1},
    lives=[Life("i0", at(0), at(12))],
)
"""Twelve seconds: one instance, and a schedule that fires each two seconds from 4 s on.

The fire of a due instant `d` has the sequence `10 + d`.
"""


def history(
    like: History = KEPT,
    *,
    terms: Mapping[str, Any] = {},
    store: Mapping[str, Any] = {},
    asked: Iterable[Operation] = (),
    fires: Mapping[Any, FireSeen | None] = {},
    more: Iterable[FireSeen] = (),
    **fields: Any,
) -> History:
    """Make a history like another one, with other fields, those of its terms and of its first request among them.

    `asked` are further requests, `fires` those that are stored in place of one by its due instant (None: it is left
    out), and `more` further ones.
    """
    first, *others = like.operations
    due = {at(seconds): one for seconds, one in fires.items()}
    found = [due.get(one.fire_time or 0, one) for one in like.fires]
    return replace(
        like,
        **{
            "terms": replace(like.terms, **terms),
            "operations": [replace(first, **store), *others, *asked],
            "fires": [*(one for one in found if one is not None), *more],
            "stores": list(like.stores),
            **fields,
        },
    )
