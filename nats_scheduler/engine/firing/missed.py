"""Which of the fires that are due is sent next, and which are dropped: the policies `X-Missed` and `X-Grace`.

The rules:

- A fire is missed when it is later than the grace; its lateness is the time since its send time.
- `once` sends the latest fire that is due. `skip` sends it too, unless it is missed: then all of them are dropped.
- `all` sends each, oldest first, and each is stored before the next one is sent. With a number it drops what is missed
  and is not among so many of the latest fires that are due. So fires that are late and not missed are all sent.
- A backlog is never invented. If it is not known which fires of a schedule are stored (`HeldWithPolicies.is_known`),
  `all` sends the latest fire that is due, as `once` does.

Nothing is kept of a decision: it follows from the time and from the fire that is due, so it may be made again, here or
on another instance.

Cost: a search for a fire time; about sixty counts if `all` with a number drops something.
"""

from collections.abc import Iterable

from nats_scheduler.engine.events import FireReadBack
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.holding.held import Held, HeldWithPolicies
from nats_scheduler.engine.holding.roster import Roster
from nats_scheduler.engine.sharing.shards import SHARDS, shard_of
from nats_scheduler.message.generated import is_requested
from nats_scheduler.message.policies import Kept
from nats_scheduler.message.reading import Generated
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND


def next_of_due(held: HeldWithPolicies, now: int) -> int | None:
    """Return the fire time of the due fire that is sent next; None if all that are due are dropped.

    The schedule is due at `now` (ns). What comes due once its TTL has run out does not count.
    """
    policies, first, until = held.terms.policies, held.fire_time, min(now, held.expires - 1)
    kept, most = policies.missed
    if kept is Kept.ALL and held.is_known:
        missed_until = now - policies.grace - 1
        if most is None or held.send_time > missed_until:
            return first
        latest = _latest(held, first, until)
        following = held.next_fire(_latest(held, first, min(missed_until, until)))
        first_of_most = held.latest_but(most, first - 1, latest) or first
        return first_of_most if following is None else min(first_of_most, following)
    latest = _latest(held, first, until)
    if kept is Kept.SKIP and now - held.send_time_of(latest) > policies.grace:
        return None
    return latest


def dropped_between(held: HeldWithPolicies, first: int, made_up: int) -> int:
    """Return how many fire times there are from `first` (ns), which is one, to before that of what is made up."""
    return held.count(first - 1, made_up - 1) if held.repeats else 1


def dropped_before(held: HeldWithPolicies, fire_time: int, missed_since: int | None) -> int:
    """Return how many fires were dropped between the last one that is stored and that of a fire time.

    `missed_since` is the first (ns) that the fire of `fire_time` stands for, None if there is none. If no stored fire
    is known, only those count that were dropped here.
    """
    if held.previous_fire is not None:
        return held.count(held.previous_fire, fire_time - 1)
    return held.dropped + (0 if missed_since is None else dropped_between(held, missed_since, fire_time))


def _latest(held: HeldWithPolicies, first: int, until: int) -> int:
    """Return the latest fire time that is due by `until`, of which `first` is the first."""
    return first if not held.repeats else held.latest_due(first, until) or first


# Which fires were overdue: due before they could be fired in time, so that they say nothing about punctuality.
#
# The rule: a fire is overdue if its send time is before its schedule was stored (an `@at` in the past), or before
# this instance could fire for its shard: it held the shard and had read all that is stored. A fire that another
# instance stored before that is not overdue. A fire that this instance held back until the one before was finished
# is, and so is one that was requested later. Limit: what delayed the fire of a schedule that is held no longer is
# known only if this instance sent it. Cost: 64 integers a stream, two comparisons a fire.


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
