"""Which fires were overdue: due before they could be fired in time, so that they say nothing about punctuality.

The rule: a fire is overdue if its send time is before its schedule was stored (an `@at` in the past), or before this
instance could fire for its shard: it held the shard and had read all that is stored. A fire that another instance
stored before that is not overdue. A fire that this instance held back until the one before was finished is, and so is
one that was requested later.
Limit: what delayed the fire of a schedule that is held no longer is known only if this instance sent it.
Cost: 64 integers a stream, two comparisons a fire.
"""

from collections.abc import Iterable

from nats_scheduler.engine.events import FireReadBack
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.held import Held, HeldWithPolicies
from nats_scheduler.engine.roster import Roster
from nats_scheduler.engine.shards import SHARDS, shard_of
from nats_scheduler.message.reading import Generated
from nats_scheduler.message.report import is_requested
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND


class OverdueRule:
    """Since when this instance can fire for each shard of one stream."""

    def __init__(self) -> None:
        self._able_since = [0] * SHARDS

    def caught_up(self, now: int) -> None:
        """Note that all that is stored has been read by `now`."""
        self._able_since = [now] * SHARDS

    def gained(self, shards: Iterable[int], now: int) -> None:
        """Note that these shards are held from `now` on."""
        for shard in shards:
            self._able_since[shard] = now

    def may_be_stored(self, held: Held) -> bool:
        """Return whether another instance may have stored the next fire: it was due before this one could fire it."""
        return max(held.send_time, held.stored_at) <= self._able_since[held.shard]

    def able_since(self, held: Held) -> int:
        """Return since when (ns) this instance can fire for the shard of a schedule."""
        return self._able_since[held.shard]

    def own(self, fire: Fire, held: Held) -> FireReadBack:
        """Return what `read_back` returns for a fire of ours, whose schedule is held and has no policies."""
        stored_at, send_time, known_since = fire.stored_at, held.send_time_of(fire.fire_time), held.stored_at
        late = send_time < known_since or send_time < self._able_since[held.shard] <= stored_at
        times = fire.fire_time, send_time, stored_at
        return FireReadBack(fire.schedule, fire.target, *times, fire.stored_as, late, known_since)

    def stored_elsewhere(self, fire: Fire, roster: Roster) -> FireReadBack:
        """Return the event of a fire in another stream, which is not read back; `roster` has the schedules held."""
        generated = Generated(fire.schedule, fire.sequence, fire.fire_time, fire.schedule_stored_at, fire.delay)
        message = StoredMessage(fire.target, fire.stored_as, fire.stored_at, b"", None)
        return self.read_back(generated, roster.exactly(fire.schedule, fire.sequence), message)

    def read_back(self, generated: Generated, held: Held | None, message: StoredMessage) -> FireReadBack:
        """Return the event of a fire that was read back; `held` is its schedule, None if it is held no longer."""
        fire_time, stored_at = generated.fire_time, message.stored_at
        if held is None:
            shard, known_since = shard_of(generated.schedule), generated.schedule_stored_at
            send_time = fire_time + generated.delay
        else:
            shard, known_since = held.shard, held.stored_at
            send_time = held.send_time_of(fire_time)
        overdue = send_time < known_since or send_time < self._able_since[shard] <= stored_at
        waited = isinstance(held, HeldWithPolicies) and held.waited_fire == fire_time
        times = fire_time, send_time, stored_at
        late = overdue or waited or (stored_at - send_time > SECOND and is_requested(message.block))
        return FireReadBack(generated.schedule, message.subject, *times, message.sequence, late, known_since, waited)
