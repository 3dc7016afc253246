"""Which of the living instances can serve a stream: an instance can be alive and still unable. Pure.

The rules:

- An instance that is denied publishing, reading or purging on a stream reports that it cannot serve it. It gets no
  shards of that stream while another instance can serve it; if none can, all share the work as if all could.
- A permission may be granted without a notice. So after a wait the instance is on trial: it fires for one shard in
  addition to its holder, which stores nothing twice. If nothing is denied for `TRIAL_DURATION_NS`, it is able again;
  otherwise it waits twice as long.
- A holder whose schedules come due without any fire being read back is idle, whatever it reports about itself. It gets
  no shards for a while, longer each time. If our own fires are refused as well, the reliefs end: the fault lies with
  the stream.
- That a holder is idle is the opinion of one instance, and two instances may have it of each other. So a shard is
  claimed from an idle holder once. If the holder takes it back, both fire for it until the relief ends, and the record
  stops changing.

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
"""How long (ns) a trial lasts: an instance is able again if nothing is denied during it."""

IDLE_CONFIRMED_AFTER_NS = 1_500 * MILLISECOND
"""How long (ns) a holder has to seem idle before it is relieved: by then we have read what it stored."""

FIRST_RELIEF_NS = 30 * SECOND
"""How long (ns) an idle holder gets no shards the first time; each further time is twice as long."""

RELIEF_LIMIT_NS = 3_600 * SECOND
"""Longest time (ns) for which an idle holder gets no shards."""


@dataclass(slots=True)
class _Unable:
    """Why we cannot serve a stream."""

    reason: str
    shard: int
    wait: int
    until: int
    """When (ns) our trial begins."""


@dataclass(slots=True)
class _Idle:
    """A holder that seemed idle."""

    suspected_at: int
    relief: int = 0
    until: int = 0
    not_before: int = 0
    """It is not relieved again before this instant (ns)."""
    claimed: set[int] = field(default_factory=set)
    """The shards that we took from it since it was relieved."""


@dataclass(slots=True)
class Ability:
    """What one instance has noted about itself and others; instants are of its own monotonic clock."""

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

    def denied(self, key: str, shard: int, reason: str, now: int) -> bool:
        """Note that the server denied us something that a holder has to do; returns whether that is new."""
        known = self._unable.get(key)
        if known is None:
            before, _since = self._waits.pop(key, (0, 0))
            wait = min(2 * before, TRIAL_WAIT_LIMIT_NS) or FIRST_TRIAL_WAIT_NS
            self._unable[key] = _Unable(reason, shard, wait, now + wait)
            return True
        if now >= known.until:
            known.wait = min(2 * known.wait, TRIAL_WAIT_LIMIT_NS)
        known.reason, known.shard, known.until = reason, shard, now + known.wait
        return False

    def reconnected(self, now: int) -> None:
        """Begin all trials at once: a new connection has the permissions of the moment."""
        for unable in self._unable.values():
            unable.until = min(unable.until, now)

    def on_trial(self, key: str, now: int) -> frozenset[int]:
        """Return the shard that we fire for in addition to its holder, to test whether we can."""
        unable = self._unable.get(key)
        return frozenset({unable.shard}) if unable is not None and now >= unable.until else frozenset()

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

    def discard(self, instance: str) -> None:
        """Discard what an instance reported that is gone."""
        self._others.pop(instance, None)

    def seems_idle(self, key: str, suspects: Iterable[str], now: int) -> list[str]:
        """Note which holders of a stream seem idle; the others do not. Returns those that are relieved now."""
        suspected = set(suspects)
        for name in [name for known, name in self._idle if known == key and name not in suspected]:
            self._recovered(key, name, now)
        relieved = []
        for name in sorted(suspected):
            known = self._idle.setdefault((key, name), _Idle(now))
            is_sure = now - known.suspected_at >= IDLE_CONFIRMED_AFTER_NS
            if is_sure and now >= max(known.until, known.not_before):
                known.relief = min(2 * known.relief, RELIEF_LIMIT_NS) or FIRST_RELIEF_NS
                known.until = now + known.relief
                known.claimed.clear()
                relieved.append(name)
        return relieved

    def end_reliefs(self, key: str, now: int) -> None:
        """End all reliefs on a stream: our own fires are refused there as well."""
        for (known, _name), idle in self._idle.items():
            if known == key and idle.until > now:
                idle.until, idle.not_before = now, now + idle.relief

    def is_relieved(self, key: str, instance: str, now: int) -> bool:
        """Return whether an instance gets no shards of a stream because it was idle."""
        idle = self._idle.get((key, instance))
        return idle is not None and now < idle.until

    def claims(self, key: str, instance: str, shard: int, now: int) -> None:
        """Note that a shard of an instance is ours now."""
        if self.is_relieved(key, instance, now):
            self._idle[key, instance].claimed.add(shard)

    def has_claimed(self, key: str, instance: str, shard: int, now: int) -> bool:
        """Return whether we held a shard since its holder was relieved, and the holder reports that it can serve it."""
        if not self.is_relieved(key, instance, now) or key in self._others.get(instance, ()):
            return False
        return shard in self._idle[key, instance].claimed

    def has_relieved(self, key: str, now: int) -> bool:
        """Return whether any instance gets no shards of a stream because it was idle."""
        return any(known == key and now < idle.until for (known, _name), idle in self._idle.items())

    def _recovered(self, key: str, name: str, now: int) -> None:
        """End the suspicion against a holder; the length of its last relief stays noted for a while."""
        idle = self._idle[key, name]
        if now >= idle.until + RELIEF_LIMIT_NS:
            del self._idle[key, name]
        else:
            idle.suspected_at = now

    @property
    def is_flawless(self) -> bool:
        """Whether every instance is able and no holder is suspected."""
        return not (self._unable or self._others or self._idle)

    # -- what follows --------------------------------------------------------------------------------------------

    def of(self, key: str, me: str, living: Sequence[str], now: int) -> list[str]:
        """Return the living instances that can serve a stream; all of them if none can."""
        if self.is_flawless:
            return list(living)
        working = [name for name in living if not self.is_relieved(key, name, now)]
        able = [name for name in working if key not in (self._unable if name == me else self._others.get(name, ()))]
        return able or working or list(living)
