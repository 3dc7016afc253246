"""Keep Python's collector from walking over every schedule that is held, again and again.

Reference counts free nearly everything here; the collector is there for cycles alone, which tasks and errors leave.
Left to itself it looks at all objects each time that their number has grown by a quarter: a second of standstill with
a million schedules, and a third of the time of a start.

The rule: what has survived a full pass is looked at no more (`gc.freeze`), so that a pass costs what is new and not
what is held.
Where little survives nothing is frozen: a cycle that outlives a pass, such as that of a connection, is found by a later
one.

What a large load brings is frozen as it comes, before any pass has looked at much of it.

Cost: three looks at an object in its life, in passes of a few milliseconds; hardly one where many schedules are loaded.
Limit: a cycle that was frozen alive stays when it ends, and so does one that ended just before a load was frozen.
There is at most one pass that freezes for each `MIN_SURVIVORS_FROZEN` objects by which the process grows, and one
freeze for each `SCHEDULES_PER_FREEZE` of the most schedules that a stream ever held.
"""

import gc
from collections.abc import Mapping

COLLECTOR_THRESHOLDS = (5_000, 2, 2)
"""New objects before a pass over the youngest, and passes before the next older ones are looked at as well."""

MIN_SURVIVORS_FROZEN = 20_000
"""So many survivors of a full pass are kept out of the next one: what a pass of a millisecond or two looks at."""

MIN_SCHEDULES_FROZEN = 10_000
"""A stream with fewer schedules is never frozen without a look: its passes are short, and it may come and go."""

SCHEDULES_PER_FREEZE = 1_000
"""So many schedules more than ever before are frozen without a look."""

OLDEST_GENERATION = 2


def collect_only_what_is_new() -> None:
    """Set up the collector of this process; a second time is harmless."""
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    if _freeze_survivors not in gc.callbacks:
        gc.callbacks.append(_freeze_survivors)


class Load:
    """What one stream holds, as it grows."""

    def __init__(self) -> None:
        self._most = MIN_SCHEDULES_FROZEN

    def grew_to(self, schedules: int) -> None:
        """Freeze what was loaded since the last time, where it is much."""
        if schedules >= self._most + SCHEDULES_PER_FREEZE and _freeze_survivors in gc.callbacks:
            self._most = schedules
            gc.freeze()


def _freeze_survivors(phase: str, info: Mapping[str, int]) -> None:
    if (
        phase == "stop"
        and info["generation"] == OLDEST_GENERATION
        and len(gc.get_objects(OLDEST_GENERATION)) >= MIN_SURVIVORS_FROZEN
    ):
        gc.freeze()
