"""Which instance holds which shards: the policy by which instances divide their work. Pure.

Every instance sends heartbeats that say which streams it serves. One record for each stream names the holder of each
shard; an instance changes it only if it has seen the last version.

The rules:

- The wanted holder of a shard is drawn by rendezvous hashing among the living instances that serve the stream. So all
  that see the same instances want the same, and an instance that comes or goes moves only its own shards.
- An instance serves a stream while it could fire for it: it has read all that is stored, and receives what others send.
  So an instance gets no shards while it is still reading, and loses them if it lost contact or only seems alive.
- A holder hands a shard over by naming the wanted holder in the record. A shard whose holder is gone or does not serve
  is claimed by the wanted holder. So no living instance loses a shard that it serves.
- Other instances are judged by our own monotonic clock: one without a heartbeat for `LEASE_DURATION_NS` is gone. An
  instance that does not receive its own heartbeats judges no other and hands nothing over, since those that it knows
  may be gone. Stored heartbeats of an instance that is gone do not make it alive again.
- A process that was killed has no connection, and the server says so of whom is asked whether it is there. So an
  instance without a heartbeat for `HEARTBEAT_LIMIT_NS` is asked; if it is not there, and is not there after
  `ABSENCE_CONFIRMED_NS` either, it is gone. That counts only of an instance that has answered before, so not where a
  permission or another account is between the two; and not while instances may be about to connect again.
- An instance was disconnected if none of its heartbeats was stored for `OWN_HEARTBEAT_LIMIT_NS`. It cannot know whether
  the others died or were disconnected too. For `RETURN_GRACE_NS` it expects those that were alive when it lost contact,
  itself among them, to serve what they served. So after an outage of all, each continues with its own shards, whichever
  is back first.
- An instance that cannot or does not do the work of a holder gets no shards while another one can:
  `engine.sharing.leases`.
- A heartbeat that was stored `STALE_HEARTBEAT_NS` or more after the last message that its sender had received is stale;
  its sender serves nothing, whatever it says.
- Where not all instances are to read each stream, `engine.sharing.readers` decides who does.
- We hold what the last record that we saw says, however old it is: only a record that names another holder ends it.
  Correctness does not rest on it, and availability wins. A record of a format that we do not know ends it too: a newer
  version wrote it, and claims what we do not serve.

Cost: one hash for each instance and stream when membership changes.
"""

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from nats_scheduler.engine.sharing.readers import ALL_INSTANCES, Readers, Stance
from nats_scheduler.engine.sharing.shards import SHARDS
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

# Which of the living instances can serve a stream: an instance can be alive and still unable. Pure.
#
# The rules:
#
# - An instance that is denied publishing, reading or purging on a stream reports that it cannot serve it. It gets no
# shards of that stream while another instance can serve it; if none can, all share the work as if all could.
# - A permission may be granted without a notice. So after a wait the instance is on trial: it fires for one shard in
# addition to its holder, which stores nothing twice. If nothing is denied for `TRIAL_DURATION_NS`, it is able again;
# otherwise it waits twice as long.
# - A holder whose schedules come due without any fire being read back is idle, whatever it reports about itself. It
#   gets no shards for a while, longer each time. If our own fires are refused as well, the reliefs end: the fault
#   lies with the stream.
# - That a holder is idle is the opinion of one instance, and two instances may have it of each other. So a shard is
#   claimed from an idle holder once. If the holder takes it back, both fire for it until the relief ends, and the
#   record stops changing.
#
# Cost: nothing for a stream on which all instances are able.

FIRST_TRIAL_WAIT_NS = 5 * SECOND
"""An instance that cannot serve a stream is on trial after this wait (ns); each failed trial doubles it."""

TRIAL_WAIT_LIMIT_NS = 600 * SECOND
"""Longest wait (ns) before a trial."""

TRIAL_DURATION_NS = 10 * SECOND
"""The length (ns) of a trial: an instance is able again if nothing is denied during it."""

IDLE_CONFIRMED_AFTER_NS = 1_500 * MILLISECOND
"""The time (ns) for which a holder has to seem idle before it is relieved: by then we have read what it stored."""

FIRST_RELIEF_NS = 30 * SECOND
"""The time (ns) for which an idle holder gets no shards at first; each further time is twice as long."""

RELIEF_LIMIT_NS = 3_600 * SECOND
"""Longest time (ns) for which an idle holder gets no shards."""


@dataclass(slots=True)
class _Unable:
    """Why we cannot serve a stream."""

    reason: str
    shard: int
    wait: int
    until: int
    """The instant (ns) at which our trial begins."""


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

    def able_others(self, key: str, names: Iterable[str]) -> list[str]:
        """Return which other instances do not report that they cannot serve a stream."""
        return [name for name in names if key not in self._others.get(name, ())]

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
        """True if every instance is able and no holder is suspected."""
        return not (self._unable or self._others or self._idle)

    # -- what follows --------------------------------------------------------------------------------------------

    def of(self, key: str, me: str, living: Sequence[str], now: int) -> list[str]:
        """Return the living instances that can serve a stream; all of them if none can."""
        if self.is_flawless:
            return list(living)
        working = [name for name in living if not self.is_relieved(key, name, now)]
        able = [name for name in working if key not in (self._unable if name == me else self._others.get(name, ()))]
        return able or working or list(living)


LEASE_DURATION_NS = 1750 * MILLISECOND
"""The time (ns) after an instance's last heartbeat at which others claim its shards: *Live* promises 3 s in all."""

HEARTBEAT_INTERVAL_NS = 500 * MILLISECOND
"""The interval (ns) between two heartbeats of an instance."""

HEARTBEAT_LIMIT_NS = HEARTBEAT_INTERVAL_NS + 100 * MILLISECOND
"""An instance is asked whether it is there this time (ns) after its last heartbeat: the next one is late."""

ABSENCE_CONFIRMED_NS = 100 * MILLISECOND
"""An instance that is not there is asked again after this time (ns): it may be about to connect to another server."""

OWN_HEARTBEAT_LIMIT_NS = 1_000 * MILLISECOND
"""An instance that has not received its own heartbeat for this time (ns) may be cut off, even if others receive it."""

SERVING_KEPT_NS = 1_000 * MILLISECOND
"""The time (ns) for which a stream still counts as served after it cannot be served: a reconnect moves no shards."""

RETURN_GRACE_NS = 1_250 * MILLISECOND
"""The time (ns) after our return in which we expect the instances that were alive before: they may connect half a
second after us, and *Live* allows 3 s from the end of the outage."""

NO_HOLDER = ""
"""Stands in a record for a shard without a holder."""

STALE_HEARTBEAT_NS = OWN_HEARTBEAT_LIMIT_NS + SERVING_KEPT_NS
"""A stale heartbeat is stored at least this time (ns) after the last message that its sender had received.

Both instants are of the server's clock. It is the age at which the sender itself would no longer claim to serve."""

Holders = tuple[str, ...]
"""The holder of each shard of a stream."""

UNHELD: Holders = (NO_HOLDER,) * SHARDS


@dataclass(frozen=True, slots=True)
class Record:
    """The content of the record of a stream, and its revision: 0 if there is none."""

    holders: Holders = UNHELD
    revision: int = 0
    is_foreign: bool = False
    """True if it was written in a format that we do not know: nobody is known to hold, and we do not replace it."""


NO_RECORD = Record()


@dataclass(slots=True)
class _Other:
    received_at: int
    stored_at: int
    serves: frozenset[str] | None
    times: int = 1
    """Heartbeats received since we subscribed; the first one may have been stored long before.

    One more for an instance that is expected to be back."""
    has_answered: bool = False
    """True if it answered when it was asked whether it is there: so we would learn that it is not."""
    absent_since: int | None = None
    """Since when (ns) it is not there, as far as is known; None while it is."""
    reading: frozenset[str] = frozenset()
    """The streams that it does not serve yet, and reads."""
    is_ending: bool = False
    room: int | None = None
    """How many further schedules it can hold; None: it does not say."""
    surplus: frozenset[str] = frozenset()
    """The streams that it reads and has no room for."""


@dataclass(slots=True)
class Leases:
    """The leases of one instance, `me`; streams are named by keys that mean the same to all instances."""

    me: str
    serves: frozenset[str] = frozenset()
    """The streams that we serve."""
    since: int = 0
    """The instant (ns) at which our first heartbeat was sent; 0 before that."""
    is_leaving: bool = False
    """True if we give up everything."""
    ability: Ability = field(default_factory=Ability)
    """Which instances are able to serve which streams."""
    readers: Readers = field(default_factory=Readers)
    """Which instances read which streams."""
    given_up: set[str] = field(default_factory=set)
    """The streams that we still read, and leave to others: we hand over what we hold of them."""
    is_ending: bool = False
    """True if we are about to leave, as soon as others serve what we do."""
    _now: int = 0
    """The instant (ns) at which we last checked which instances are alive."""
    _others: dict[str, _Other] = field(default_factory=dict)
    _records: dict[str, Record] = field(default_factory=dict)
    _served_at: dict[str, int] = field(default_factory=dict)
    """The instant (ns) at which each stream could last be served."""
    _wanted: dict[str, tuple[tuple[str, ...], Holders]] = field(default_factory=dict)
    _own_received_at: int | None = None
    _own_fresh_at: int | None = None
    """The instant (ns) at which we last received a heartbeat of our own that was not stale."""
    _own_stored_at: int | None = None
    """The instant at which our last heartbeat that we received was stored, by the server's clock."""
    _newest: int = 0
    """The instant at which the newest heartbeat of any instance was stored, by the server's clock."""
    _served: dict[str, frozenset[str] | None] = field(default_factory=dict)
    """The streams that each instance served, we included, while we received our own heartbeats."""
    _expected: dict[str, frozenset[str] | None] = field(default_factory=dict)
    """The streams that each instance is expected to serve again, we included."""
    _expected_until: int = 0

    # -- what is received ---------------------------------------------------------------------------------------

    def listening_anew(self) -> None:
        """Discard all revisions: the records are received again from the beginning, and may be gone."""
        self._own_received_at = self._own_fresh_at = None
        for other in self._others.values():
            other.times = 0
        self._records = {key: Record(record.holders) for key, record in self._records.items()}

    def received(
        self,
        instance: str,
        serves: Iterable[str] | None,
        now: int,
        stored_at: int,
        last_received: int | None = None,
        unable: Iterable[str] = (),
        reading: Iterable[str] = (),
        room: int | None = None,
        surplus: Iterable[str] = (),
        *,
        is_ending: bool = False,
    ) -> bool:
        """Take a heartbeat of an instance that `serves` some streams; None: all.

        It was stored at `stored_at` (ns, by the server's clock). The last message that its sender had received was
        stored at `last_received`; None if it does not say. Its sender is `unable` to serve some streams, is `reading`
        some that it does not serve yet, has `room` for so many further schedules and none for the `surplus` of those
        that it reads, and leaves soon if it `is_ending`.
        Returns whether that changes which holders are wanted.
        """
        self._newest = max(self._newest, stored_at)
        is_stale = last_received is not None and stored_at - last_received >= STALE_HEARTBEAT_NS
        served = frozenset() if is_stale else None if serves is None else frozenset(serves)
        is_news = instance == self.me and self._own_heartbeat(now, stored_at, is_stale=is_stale)
        if self._own_received_at is not None and not self._was_disconnected(stored_at) and now >= self._expected_until:
            self._served[instance] = served
        if instance == self.me:
            return is_news
        is_news = self.ability.reported(instance, unable)
        known = self._others.get(instance)
        times, has_answered = (1, False) if known is None else (known.times + 1, known.has_answered)
        reads = frozenset[str]() if is_stale else frozenset(reading)
        heard = _Other(now, stored_at, served, times, has_answered, None, reads, is_ending, room, frozenset(surplus))
        self._others[instance] = heard
        return is_news or known is None or _stance(known) != _stance(heard)

    def ask_after(self, instance: str, now: int) -> int | None:
        """Return after which time (ns) an instance is to be asked whether it is there, if no heartbeat arrives before.

        None if it is not to be asked: it is not known, or has sent nothing since we subscribed. One that never
        answered is asked at once after 2, 4, 8, … heartbeats, so that one that cannot answer costs next to nothing.
        """
        other = self._others.get(instance)
        if other is None or other.times < 2:
            return None
        if other.has_answered:
            return max(other.received_at + HEARTBEAT_LIMIT_NS - now, ABSENCE_CONFIRMED_NS)
        return None if other.times & (other.times - 1) else 0

    def asked(self, instance: str, is_there: bool | None, now: int) -> bool:
        """Take whether an instance that was asked is there, None if that is not known; one that is not may be gone.

        Returns whether it is to be asked again if its heartbeat is late.
        """
        other = self._others.get(instance)
        if other is None:
            return False
        other.has_answered = other.has_answered or is_there is True
        is_receiving = self._own_received_at is not None and now < self._own_received_at + HEARTBEAT_LIMIT_NS
        is_late = now >= max(other.received_at + HEARTBEAT_LIMIT_NS, self._expected_until)
        if is_there is not False or not (other.has_answered and is_receiving and is_late):
            other.absent_since = None
        elif other.absent_since is None:
            other.absent_since = now
        elif now - other.absent_since >= ABSENCE_CONFIRMED_NS:
            other.received_at = now - LEASE_DURATION_NS
        return other.has_answered

    def left(self, instance: str) -> None:
        """Note that an instance has given up all shards and left."""
        self._discard(instance)

    def recorded(self, key: str, record: Record) -> None:
        """Take the record of a stream as it was received; one that is older than the known one changes nothing."""
        if record.revision > self.record(key).revision:
            self.looked_up(key, record)

    def looked_up(self, key: str, record: Record) -> None:
        """Take the record of a stream as it was just looked up, whatever was received before."""
        before, self._records[key] = self.record(key).holders, record
        if not self.ability.is_flawless:
            self._note_claims(key, before, record.holders)

    # -- what follows --------------------------------------------------------------------------------------------

    def able(self, caught_up: Iterable[str], now: int) -> frozenset[str]:
        """Return the streams that our heartbeats name as served; those in `caught_up` have been read completely."""
        if self._own_fresh_at is not None and now - self._own_fresh_at < OWN_HEARTBEAT_LIMIT_NS:
            self._served_at.update(dict.fromkeys(caught_up, now))
        self._served_at = {key: at for key, at in self._served_at.items() if now - at < SERVING_KEPT_NS}
        return frozenset(key for key in self._served_at.keys() - self.given_up if not self.record(key).is_foreign)

    def reads(self, key: str, size: int, now: int, *, is_reading: bool) -> bool:
        """Return whether we are to read a stream of at most `size` schedules; what `is_reading` says if it is unknown.

        Before our first heartbeat is received we read it anyway, unless the operator named a number.
        """
        readers = self.readers
        is_free = readers.per_stream is None or (readers.wanted is None and self._own_stored_at is None)
        if readers.capacity is None and is_free:
            return True
        is_unknown = not self.is_receiving(now) or now < self._expected_until or self.is_leaving or self.is_ending
        if is_unknown or not self.ability.can_serve(key):
            return is_reading
        living = [name for name, other in self._others.items() if not other.is_ending]
        readers.met(living, now)
        if is_reading:  # what is read is not left to one that may be gone: its first heartbeat may be an old one
            living = [name for name in living if self._others[name].times > 1]
        mine = _stance_of(is_reading, key in self.serves, key, size, readers)
        stances = {name: self._stance_on(key, name, size) for name in self.ability.able_others(key, living)}
        return readers.includes(self.me, key, mine, stances, now)

    def _stance_on(self, key: str, name: str, size: int = 0) -> Stance:
        serves, other = self._serves(name, key), self._others[name]
        return _stance_of(serves or key in other.reading, serves, key, size, other)

    def is_receiving(self, now: int) -> bool:
        """Return whether we receive our own heartbeats, and so would receive those of others."""
        return self._own_received_at is not None and now - self._own_received_at < LEASE_DURATION_NS

    def discard_gone(self, now: int) -> dict[str, bool]:
        """Discard the instances that are gone; return by their names whether they were asked, and were not there."""
        self._now = now
        if not self.is_receiving(now):
            return {}
        others = self._others.items()
        late = {name: other for name, other in others if now - other.received_at >= LEASE_DURATION_NS}
        gone = {name: other.absent_since is not None for name, other in late.items()}
        for name in gone:
            self._discard(name)
        return gone

    def living(self, key: str) -> list[str]:
        """Return the living instances that serve a stream, or are expected to, if they are able to."""
        others = [name for name in self._others if self._serves(name, key) or self._is_expected(name, key)]
        living = others if self.is_leaving or key not in self.serves else [*others, self.me]
        return self.ability.of(key, self.me, living, self._now)

    def has_successor(self, key: str) -> bool:
        """Return whether another instance serves a stream, or none of those that are left is about to read it."""
        stances = [self._stance_on(key, name) for name, other in self._others.items() if not other.is_ending]
        # One that has no room reads it, too, if nobody else does.
        enough = 1 if self.readers.capacity is not None else self.readers.per_stream or ALL_INSTANCES
        is_awaited = any(one.reads for one in stances) or len(stances) >= enough
        return any(one.serves for one in stances) or not is_awaited

    def served_by_others(self, key: str) -> list[str]:
        """Return the other instances that serve a stream and are not about to leave."""
        return [name for name, other in self._others.items() if self._serves(name, key) and not other.is_ending]

    @property
    def count(self) -> int:
        """The number of known instances, we included; for a moment also gone ones, by their stored heartbeats."""
        return len(self._others) + 1

    @property
    def alive(self) -> int:
        """The number of alive instances, we included: those with a recently stored heartbeat."""
        return 1 + sum(self._newest - other.stored_at < LEASE_DURATION_NS for other in self._others.values())

    @property
    def others(self) -> Iterable[str]:
        """The names of the other instances that may be alive."""
        return self._others.keys()

    def on_record(self) -> list[str]:
        """Return the streams that have a record whose format we know."""
        return [key for key, record in self._records.items() if record.revision and not record.is_foreign]

    def outlook(self, now: int) -> Hashable:
        """Return what `change` depends on, except for a stream's record and whether we serve it."""
        expected = frozenset(self._expected.items()) if now < self._expected_until else None
        others = frozenset((name, _stance(other)) for name, other in self._others.items())
        return self.is_receiving(now), self.is_leaving, self.ability.is_flawless, others, expected

    def held(self, key: str) -> frozenset[int]:
        """Return the shards of a stream that we hold."""
        return _shards_of(self.me, self.record(key).holders)

    def unassigned(self, key: str, now: int) -> int:
        """Return how many shards of a stream have no holder, or one that is gone, as far as we receive that."""
        holders = self.record(key).holders
        gone = set(holders) - {self.me, *self._others}
        if not self.is_receiving(now):
            gone &= {NO_HOLDER}
        return sum(holder in gone for holder in holders) if gone else 0

    def to_fire(self, key: str, now: int) -> frozenset[int]:
        """Return the shards to fire for: those that we hold, and those that we fire for in addition to their holders.

        The latter are the shards of idle holders, whatever the record says, and one on which we are on trial. At worst
        another instance has stored the fire first.
        """
        if self.ability.is_flawless:
            return self.held(key)
        held = self.held(key) | self.ability.on_trial(key, now)
        if not self.ability.has_relieved(key, now) or key not in self.serves:
            return held
        wanted = self._wanted_holders(key, tuple(self.living(key)))
        holders = enumerate(self.record(key).holders)
        idle = (shard for shard, holder in holders if self.ability.is_relieved(key, holder, now))
        return held.union(shard for shard in idle if wanted[shard] == self.me)

    def relieve_idle(self, key: str, overdue: Mapping[int, int], fired: Sequence[int], now: int) -> list[str]:
        """Judge the holders of a stream by fires that were due and not read back; returns those that are relieved now.

        `overdue` has the send time (ns) that passed without a fire, by shard; `fired` the last send time (ns) of each
        shard of which a fire was read back.
        """
        parts: dict[str, list[int]] = {}
        for shard, holder in enumerate(self.record(key).holders):
            parts.setdefault(holder, []).append(shard)
        idle = [
            holder
            for holder, shards in parts.items()
            if holder in self._others
            and max(overdue.get(shard, 0) for shard in shards) > max(fired[shard] for shard in shards)
        ]
        return self.ability.seems_idle(key, idle, now)

    def record(self, key: str) -> Record:
        """Return the last record of a stream that was seen."""
        return self._records.get(key, NO_RECORD)

    def change(self, key: str, now: int) -> Holders | None:
        """Return what the record of a stream should say instead; None if we have nothing to change.

        It is to be written in place of the known revision, and passed to `recorded` once it is written.
        """
        self._now = now
        if self.record(key).is_foreign or not self.is_receiving(now):
            return None  # a record may not be received yet, and instances that seem alive may be gone
        if now >= self._expected_until:
            self._expected.clear()
        record, holders = self.record(key), self.record(key).holders
        living = self.living(key)
        if living or self.is_leaving:
            wanted = self._wanted_holders(key, tuple(living))
            if wanted == holders and record.revision:
                return None
            changed = tuple(
                wanted[shard]
                if wanted[shard] != holder and self._may_change(key, shard, wanted[shard], living)
                else holder
                for shard, holder in enumerate(holders)
            )
        else:  # no instance can fire at the moment: each keeps its shards, and shards without a holder are ours
            changed = tuple(holder if holder in self._others else self.me for holder in holders)
        is_lost = record.revision == 0 and changed != UNHELD
        return changed if changed != holders or is_lost else None

    def _wanted_holders(self, key: str, living: tuple[str, ...]) -> Holders:
        """Draw the wanted holders again if the living instances have changed."""
        known = self._wanted.get(key)
        if known is None or known[0] != living:
            known = self._wanted[key] = living, wanted_holders(key, living)
        return known[1]

    def _may_change(self, key: str, shard: int, wanted: str, living: list[str]) -> bool:
        holder = self.record(key).holders[shard]
        if self._is_expected(wanted, key) and wanted != self.me and not self._serves(wanted, key):
            return False  # it keeps its shards, and gets no further ones
        if holder == self.me:
            return self.is_leaving or key in self.serves or not self._is_expected(self.me, key)
        return wanted == self.me and holder not in living and not self._was_taken_back(key, shard, holder)

    def _was_taken_back(self, key: str, shard: int, holder: str) -> bool:
        """Return whether a holder took a shard back that we had claimed because it was idle, and can serve it."""
        if self.ability.is_flawless or not self.ability.has_claimed(key, holder, shard, self._now):
            return False
        return holder in self._others and self._serves(holder, key)

    def _note_claims(self, key: str, before: Holders, after: Holders) -> None:
        """Note which shards are ours now, so that each is claimed from an idle holder only once."""
        for shard, holder in enumerate(before):
            if holder != self.me == after[shard]:
                self.ability.claims(key, holder, shard, self._now)

    def _serves(self, other: str, key: str) -> bool:
        serves = self._others[other].serves
        return serves is None or key in serves

    def _is_expected(self, instance: str, key: str) -> bool:
        if instance not in self._expected:
            return False
        serves = self._expected[instance]
        return serves is None or key in serves

    def _discard(self, instance: str) -> None:
        for known in (self._others, self._served, self._expected):
            known.pop(instance, None)
        self.ability.discard(instance)

    def _own_heartbeat(self, now: int, stored_at: int, *, is_stale: bool) -> bool:
        """Take one of our own heartbeats; returns whether that changes which holders are wanted."""
        self._own_fresh_at = self._own_fresh_at if is_stale else now
        if self._was_disconnected(stored_at) and now >= self._expected_until:
            self._expect_the_others(now, stored_at)
        self._own_stored_at = stored_at
        return self._own_received(now, stored_at)

    def _was_disconnected(self, stored_at: int) -> bool:
        """Return whether none of our heartbeats was stored for `OWN_HEARTBEAT_LIMIT_NS` before this one."""
        return self._own_stored_at is not None and stored_at - self._own_stored_at >= OWN_HEARTBEAT_LIMIT_NS

    def _expect_the_others(self, now: int, stored_at: int) -> None:
        """Expect the instances that were alive when we lost contact to be back within `RETURN_GRACE_NS`."""
        assert self._own_stored_at is not None, "we had contact before"
        self._expected, self._expected_until = dict(self._served), now + RETURN_GRACE_NS
        if stored_at - self._own_stored_at < LEASE_DURATION_NS:
            return  # an instance that is gone is detected as early as ever
        for name in self._served:
            other = self._others.get(name)
            if other is not None and other.times and not self._was_disconnected(other.stored_at):
                other.received_at, other.times = now + RETURN_GRACE_NS - LEASE_DURATION_NS, other.times + 1

    def _own_received(self, now: int, stored_at: int) -> bool:
        """Judge the other instances from now on, since we receive our own heartbeats.

        An instance whose only heartbeat was stored long before is gone at once. One without a heartbeat since we
        subscribed has its time from now on, since we received nothing before.
        """
        is_news, self._own_received_at = self._own_received_at is None, now
        for name, other in list(self._others.items()):
            if is_news and other.times == 0:
                other.received_at = now
            elif other.times == 1 and stored_at - other.stored_at >= LEASE_DURATION_NS:
                self._discard(name)
                is_news = True
        return is_news


def _stance(other: _Other) -> Hashable:
    """Return what is decided by, of the last heartbeat of an instance."""
    return other.serves, other.reading, other.is_ending, other.surplus


def _stance_of(reads: bool, serves: bool, key: str, size: int, one: Readers | _Other) -> Stance:
    has_room = key not in one.surplus if reads else one.room is None or size <= one.room
    return Stance(reads, serves, has_room)


def wanted_holders(key: str, living: Iterable[str]) -> Holders:
    """Return the wanted holder of each shard of a stream."""
    draws: Mapping[str, bytes] = {name: _draws(name, key) for name in living}
    if not draws:
        return UNHELD
    return tuple(max(draws, key=lambda name: (draws[name][at : at + 4], name)) for at in range(0, 4 * SHARDS, 4))


def _draws(name: str, key: str) -> bytes:
    return hashlib.shake_128(f"{name} {key}".encode("utf-8", "surrogateescape")).digest(4 * SHARDS)


@lru_cache(maxsize=4_096)
def _shards_of(instance: str, holders: Holders) -> frozenset[int]:
    """Return the shards that an instance holds; cached, since it is called often and most streams are divided alike."""
    return frozenset(shard for shard, holder in enumerate(holders) if holder == instance)
