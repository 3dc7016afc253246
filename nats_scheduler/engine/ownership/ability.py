"""Which of the living instances can fire for a stream: an instance can be alive and still unable. Pure.

The rules:

- An instance that is denied publishing, reading or purging on a stream reports that it cannot serve it. It does not own
  that stream while another instance can; if none can, the first one in the order owns it as if it could.
- A permission may be granted without a notice. So after a wait the instance is on trial: it fires in addition to the
  owner, which stores nothing twice. If nothing is denied for `TRIAL_DURATION_NS`, it is able again; otherwise it waits
  twice as long.
- An owner whose schedules come due without any fire being read back is idle, whatever it reports about itself. It is
  passed over for a while, longer each time. If our own fires are refused as well, that ends: the fault lies with the
  stream.
- That an owner is idle is the opinion of one instance, and two instances may have it of each other. So a stream is
  claimed from an idle owner once. If the owner takes it back, both fire for it until it is not passed over any more,
  and the record stops changing.

Cost: nothing for a stream on which all instances are able.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nats_scheduler.schedule.instants import MILLISECOND, SECOND

FIRST_TRIAL_WAIT_NS = 5 * SECOND
"""An instance that cannot serve a stream is on trial after this wait (ns); each failed trial doubles it."""

TRIAL_WAIT_LIMIT_NS = 600 * SECOND
"""Longest wait (ns) before a trial."""

TRIAL_DURATION_NS = 10 * SECOND
"""The length (ns) of a trial: an instance is able again if nothing is denied during it."""

IDLE_CONFIRMED_AFTER_NS = 1_500 * MILLISECOND
"""The time (ns) for which an owner has to seem idle before it is passed over: by then we have read what it stored."""

FIRST_PASS_NS = 30 * SECOND
"""The time (ns) for which an idle owner is passed over at first; each further time is twice as long."""

PASS_LIMIT_NS = 3_600 * SECOND
"""Longest time (ns) for which an idle owner is passed over."""


MAX_IDLE_NOTED = 10_000
"""The most streams and owners that are noted as idle; of more, those that were noted first are discarded."""


@dataclass(slots=True)
class _Unable:
    """Why we cannot serve a stream."""

    reason: str
    wait: int
    until: int
    """The instant (ns) at which our trial begins."""


@dataclass(slots=True)
class _Idle:
    """An owner that seemed idle."""

    suspected_at: int
    length: int = 0
    """How long (ns) it was passed over last."""
    until: int = 0
    not_before: int = 0
    """It is not passed over again before this instant (ns)."""
    was_claimed: bool = False
    """True if its stream was ours since it was passed over."""


@dataclass(slots=True)
class Ability:
    """The notes of one instance about itself and others; instants are of its own monotonic clock."""

    _unable: dict[str, _Unable] = field(default_factory=dict)
    _waits: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By stream that we can serve again: the last wait (ns), and since when (ns) we can."""
    _others: dict[str, frozenset[str]] = field(default_factory=dict)
    """The streams that others report that they cannot serve."""
    _idle: dict[tuple[str, str], _Idle] = field(default_factory=dict)
    """By stream and instance."""

    # -- what we cannot do ---------------------------------------------------------------------------------------

    @property
    def unable(self) -> Mapping[str, str]:
        """The streams that we cannot serve, and why."""
        return {key: unable.reason for key, unable in self._unable.items()}

    def can_serve(self, key: str) -> bool:
        """Return whether we can serve a stream, as far as is known."""
        return key not in self._unable

    def denied(self, key: str, reason: str, now: int) -> bool:
        """Note that the server denied us something that an owner has to do; returns whether that is new."""
        known = self._unable.get(key)
        if known is None:
            before, _since = self._waits.pop(key, (0, 0))
            wait = min(2 * before, TRIAL_WAIT_LIMIT_NS) or FIRST_TRIAL_WAIT_NS
            self._unable[key] = _Unable(reason, wait, now + wait)
            return True
        if now >= known.until:
            known.wait = min(2 * known.wait, TRIAL_WAIT_LIMIT_NS)
        known.reason, known.until = reason, now + known.wait
        return False

    def reconnected(self, now: int) -> None:
        """Begin all trials at once: a new connection has the permissions of the moment."""
        for unable in self._unable.values():
            unable.until = min(unable.until, now)

    def is_on_trial(self, key: str, now: int) -> bool:
        """Return whether we fire for a stream in addition to its owner, to test whether we can."""
        unable = self._unable.get(key)
        return unable is not None and now >= unable.until

    def passed(self, now: int) -> list[str]:
        """Return the streams that we can serve again."""
        able = [key for key, unable in self._unable.items() if now >= unable.until + TRIAL_DURATION_NS]
        for key in able:
            self._waits[key] = self._unable.pop(key).wait, now
        for key in [key for key, (_wait, since) in self._waits.items() if now - since >= TRIAL_WAIT_LIMIT_NS]:
            del self._waits[key]
        return able

    # -- what others cannot do -----------------------------------------------------------------------------------

    def reported(self, instance: str, unable: Iterable[str]) -> bool:
        """Note which streams another instance cannot serve; returns whether that is new."""
        streams = frozenset(unable)
        is_news = self._others.get(instance, frozenset()) != streams
        if streams:
            self._others[instance] = streams
        else:
            self._others.pop(instance, None)
        return is_news

    def able_others(self, key: str, names: Iterable[str]) -> list[str]:
        """Return which other instances do not report that they cannot serve a stream."""
        return [name for name in names if key not in self._others.get(name, ())]

    def discard(self, instance: str) -> None:
        """Discard what an instance reported that is gone."""
        self._others.pop(instance, None)

    def seems_idle(self, key: str, suspect: str | None, now: int) -> bool:
        """Note whether the owner of a stream seems idle, None if it does not; returns whether it is passed over now."""
        for name in [name for known, name in self._idle if known == key and name != suspect]:
            self._recovered(key, name, now)
        if suspect is None:
            return False
        known = self._idle.setdefault((key, suspect), _Idle(now))
        if len(self._idle) > MAX_IDLE_NOTED:
            del self._idle[next(iter(self._idle))]
        is_sure = now - known.suspected_at >= IDLE_CONFIRMED_AFTER_NS
        if not is_sure or now < max(known.until, known.not_before):
            return False
        known.length = min(2 * known.length, PASS_LIMIT_NS) or FIRST_PASS_NS
        known.until, known.was_claimed = now + known.length, False
        return True

    def trust_again(self, key: str, now: int) -> None:
        """Pass over no owner of a stream any more: our own fires are refused there as well."""
        for (known, _name), idle in self._idle.items():
            if known == key and idle.until > now:
                idle.until, idle.not_before = now, now + idle.length

    def is_passed_over(self, key: str, instance: str, now: int) -> bool:
        """Return whether an instance does not own a stream because it was idle."""
        idle = self._idle.get((key, instance))
        return idle is not None and now < idle.until

    def claims(self, key: str, instance: str, now: int) -> None:
        """Note that a stream that an instance owned is ours now."""
        if self.is_passed_over(key, instance, now):
            self._idle[key, instance].was_claimed = True

    def has_claimed(self, key: str, instance: str, now: int) -> bool:
        """Return whether we owned a stream since its owner was passed over, which reports that it can serve it."""
        if not self.is_passed_over(key, instance, now) or key in self._others.get(instance, ()):
            return False
        return self._idle[key, instance].was_claimed

    def _recovered(self, key: str, name: str, now: int) -> None:
        """End the suspicion against an owner; for how long it was passed over last stays noted for a while."""
        idle = self._idle[key, name]
        if now >= idle.until + PASS_LIMIT_NS:
            del self._idle[key, name]
        else:
            idle.suspected_at = now

    @property
    def is_flawless(self) -> bool:
        """True if every instance is able and no owner is suspected."""
        return not (self._unable or self._others or self._idle)

    # -- what follows --------------------------------------------------------------------------------------------

    def of(self, key: str, me: str, living: Sequence[str], now: int) -> list[str]:
        """Return the living instances that can serve a stream; all of them if none can."""
        if self.is_flawless:
            return list(living)
        working = [name for name in living if not self.is_passed_over(key, name, now)]
        able = [name for name in working if key not in (self._unable if name == me else self._others.get(name, ()))]
        return able or working or list(living)
