"""Keep Python's collector from visiting every held schedule again and again.

Reference counts free nearly everything here; the collector is needed for cycles only, which tasks and errors leave.
By default it visits all objects each time that their number has grown by a quarter: a pause of a second with a
million schedules, and a third of the time of a start.

The rule: what has survived a full pass is not visited again (`gc.freeze`), so that a pass costs what is new and not
what is held. If little survives, nothing is frozen: a cycle that outlives a pass, such as that of a connection, is
found by a later one. A large load is frozen as it arrives, before a pass has visited much of it.

Limit: a cycle that was frozen alive stays when it ends, and so does one that ended just before a load was frozen. There
is at most one pass that freezes for each `MIN_SURVIVORS_FROZEN` objects by which the process grows,
and one freeze for each `SCHEDULES_PER_FREEZE` of the most schedules that a stream ever held.
"""

import gc
from collections.abc import Mapping

COLLECTOR_THRESHOLDS = (5_000, 2, 2)
"""New objects before a pass over the youngest, and passes before the next older generation is visited as well."""

MIN_SURVIVORS_FROZEN = 20_000
"""The fewest survivors of a full pass that the next one excludes: a pass visits them in a millisecond or two."""

MIN_SCHEDULES_FROZEN = 10_000
"""A stream with fewer schedules is never frozen before a pass: its passes are short, and it may come and go."""

SCHEDULES_PER_FREEZE = 1_000
"""A load with this number of schedules more than ever before is frozen before a pass."""

OLDEST_GENERATION = 2


def collect_only_what_is_new() -> None:
    """Set up the collector of this process; calling it twice is harmless."""
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    if _freeze_survivors not in gc.callbacks:
        gc.callbacks.append(_freeze_survivors)


class Load:
    """The number of schedules that one stream holds, as it grows."""

    def __init__(self) -> None:
        self._most = MIN_SCHEDULES_FROZEN

    def grew_to(self, schedules: int) -> None:
        """Freeze what was loaded since the last time, if it is much."""
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
