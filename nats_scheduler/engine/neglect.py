"""Find schedules of other holders that came due and that nobody fired.

A holder may be alive and unable to fire, which shows only in what it does not store. A removal leaves nothing in the
stream either, so a schedule is read before its holder is said to neglect it.

The rules:

- A while after its due time, one schedule of each shard is read; if it is still stored, its holder neglects the shard.
- If it was due long ago nothing is noted: its fires may be gone, and its holder knows better.
- Where the fires of others cannot be read back, nobody is judged by them: on streams that do not keep their messages,
  and of schedules whose targets are in other streams.

Cost: one read for each shard of another holder in which a schedule seems to be neglected.
"""

from nats_scheduler.engine.flight import Stage
from nats_scheduler.engine.held import Held
from nats_scheduler.engine.lifecycle import Lifecycle
from nats_scheduler.engine.purges import OTHER_HOLDER_LIMIT_NS
from nats_scheduler.schedule.instants import SECOND

NEGLECT_LIMIT_NS = 3 * SECOND
"""A schedule of another holder whose fire is not read back so long after its due time is read."""

OTHER_ELSEWHERE_LIMIT_NS = 10 * OTHER_HOLDER_LIMIT_NS
"""The same as `OTHER_HOLDER_LIMIT_NS` for repeating schedules whose fires are in other streams.

They are not read back, so this instance does not know the next fire of any of them until it is to fire it.
"""


class Neglect:
    """The schedules of one stream that other holders seem to neglect."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._ownership = lifecycle.ownership
        self._live_since = 0
        self._read_last: dict[int, Held] = {}
        """Of each shard of another holder, the schedule that was read last because nobody fired it."""

    def contact_regained(self, now: int) -> None:
        """Expect nothing of the time before: fires could not be read back."""
        self._live_since = now

    def wait(self, held: Held, now: int) -> bool:
        """Leave a due schedule to its holder for a while; returns False if it is to be read now."""
        ownership, shard = self._ownership, held.shard
        since = max(held.send_time, self._live_since) + NEGLECT_LIMIT_NS
        if not held.fires_each_time:
            self._lifecycle.set_aside(held, held.send_time + OTHER_HOLDER_LIMIT_NS)
            return True
        is_settled = shard in ownership.neglected or ownership.last_fired[shard] >= held.send_time
        if is_settled or held.is_elsewhere or not ownership.reads_all:
            self._lifecycle.set_aside(held, held.send_time + limit_of(held))
        elif now < since:
            self._lifecycle.set_aside(held, since)
        elif self._is_reading(shard):
            self._lifecycle.set_aside(held, now + NEGLECT_LIMIT_NS)
        else:
            self._read_last[shard] = held
            return False
        return True

    def is_stored(self, held: Held, now: int) -> None:
        """Note that a schedule of another holder is stored although its due time has passed."""
        since = max(held.send_time, self._live_since) + NEGLECT_LIMIT_NS
        if self._ownership.reads_all and held.fires_each_time and since <= now < held.send_time + OTHER_HOLDER_LIMIT_NS:
            self._ownership.neglect(held)

    def unread(self, held: Held, now: int) -> None:
        """Read a schedule of another holder again soon that could not be read: its holder may neglect it."""
        if now < held.send_time + OTHER_HOLDER_LIMIT_NS:
            self._lifecycle.set_aside(held, now + NEGLECT_LIMIT_NS)

    def _is_reading(self, shard: int) -> bool:
        held = self._read_last.get(shard)
        return held is not None and self._lifecycle.in_stage(held.subject, held.sequence, Stage.READING) is held


def limit_of(held: Held) -> int:
    """Return how long (ns) after its due time a schedule of another holder is read, to notice that it is gone."""
    return OTHER_ELSEWHERE_LIMIT_NS if held.is_elsewhere and held.repeats else OTHER_HOLDER_LIMIT_NS
