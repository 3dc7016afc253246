"""What policies need to know of the earlier fires of a schedule, as its row has it.

The rule: what a schedule is given back is true at any later time, if all messages since are read. So what is in
progress is left out, and what only messages of this stream show of fires in another one: nobody would read the later
fires there.
"""

import json
from typing import NamedTuple

from nats_scheduler.engine.holding.held import Held


class History(NamedTuple):
    """The history of the fires of one schedule: the attributes of `Held` with these names."""

    previous_fire: int | None = None
    previous_sequence: int = 0
    previous_stored_at: int = 0
    dropped: int = 0
    unreported: int | None = None
    is_known: bool = True
    last_unfinished: int = 0


UNKNOWN = History()


def written_history(held: Held) -> str:
    """Return what is kept of the fires of a schedule, as JSON."""
    if held.is_to_other_stream:
        return json.dumps(UNKNOWN)
    before = held.previous_fire, held.previous_sequence, held.previous_stored_at
    return json.dumps((*before, held.dropped, held.unreported, held.is_known, held.last_unfinished))


def read_history(held: Held, written: str) -> None:
    """Have a schedule know what was kept of its fires."""
    (
        held.previous_fire,
        held.previous_sequence,
        held.previous_stored_at,
        held.dropped,
        held.unreported,
        held.is_known,
        held.last_unfinished,
    ) = json.loads(written)
