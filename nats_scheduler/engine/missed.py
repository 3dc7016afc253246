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

from nats_scheduler.engine.held import HeldWithPolicies
from nats_scheduler.message.policy_values import Kept


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
