"""Which instance owns which stream: the policy by which instances divide their work. Pure.

Every instance sends heartbeats that say which streams it serves. One record for each stream names its owner; an
instance changes it only if it has seen the last version.

The rules:

- The first instance in the order of a stream (`engine.ownership.order`) that serves it and is able is its wanted owner.
  So all that see the same instances want the same, and an instance that comes or goes moves only its own streams.
- An instance serves a stream while it could fire for it: it has read all that is stored, and receives what others send.
  So an instance owns nothing while it is still reading, and loses its streams if it lost contact or only seems alive.
- An owner hands a stream over by naming the wanted owner in the record. A stream whose owner is gone or does not serve
  it is claimed by the wanted owner. So no living instance loses a stream that it serves. One that has left is given
  nothing back, although its last heartbeat says that it serves.
- A stream whose owner is gone is fired by the wanted owner even before the record says so, which any client may write
  again and again. A wanted owner that neither claims it nor fires is passed over, as an idle owner is.
- Other instances are judged by our own monotonic clock: one without a heartbeat for `GONE_AFTER_NS` is gone. An
  instance that does not receive its own heartbeats judges no other and hands nothing over, since those that it knows
  may be gone. Stored heartbeats of an instance that is gone do not make it alive again.
- A process that was killed has no connection, and the server says so of whom is asked whether it is there. So an
  instance without a heartbeat for `HEARTBEAT_LIMIT_NS` is asked; if it is not there, and is not there after
  `ABSENCE_CONFIRMED_NS` either, it is gone. That counts only of an instance that has answered before, so not where a
  permission or another account is between the two; and not while instances may be about to connect again.
- An instance of which no heartbeat was stored for `GONE_AFTER_NS` cannot know whether the others died or were
  disconnected too. For `RETURN_GRACE_NS` it judges nobody and changes no record. So after an outage of all, each
  continues with its own streams, whichever is back first.
- An instance that cannot or does not do the work of an owner owns nothing while another one can
  (`engine.ownership.ability`).
- A heartbeat that was stored `STALE_HEARTBEAT_NS` or more after the last message that its sender had received is stale;
  its sender serves nothing, whatever it says.
- We own what the last record that we saw says, however old it is: only a record that names another owner ends it.
  Correctness does not rest on it, and availability wins. A record of a format that we do not know ends it too: a newer
  version wrote it, and claims what we do not serve.

Cost: one hash for each instance and stream when membership changes.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from nats_scheduler.engine.ownership.ability import Ability
from nats_scheduler.engine.ownership.order import Order, Stance, first_of, order_of
from nats_scheduler.schedule.instants import MILLISECOND

GONE_AFTER_NS = 1750 * MILLISECOND
"""The time (ns) after an instance's last heartbeat at which others claim its streams: *Live* promises 3 s in all."""

HEARTBEAT_INTERVAL_NS = 500 * MILLISECOND
"""The interval (ns) between two heartbeats of an instance."""

HEARTBEAT_LIMIT_NS = HEARTBEAT_INTERVAL_NS + 100 * MILLISECOND
"""An instance is asked whether it is there this time (ns) after its last heartbeat: the next one is late."""

ABSENCE_CONFIRMED_NS = 100 * MILLISECOND
"""An instance that is not there is asked again after this time (ns): it may be about to connect to another server."""

OWN_HEARTBEAT_LIMIT_NS = 1_000 * MILLISECOND
"""An instance that has not received its own heartbeat for this time (ns) may be cut off, even if others receive it."""

SERVING_KEPT_NS = 1_000 * MILLISECOND
"""The time (ns) for which a stream still counts as served after it cannot be served: a reconnect moves no stream."""

FIRST_HEARTBEAT_LIMIT_NS = 1_000 * MILLISECOND
"""The time (ns) for which an instance waits at first for its own heartbeat: before that it knows of no other."""

RETURN_GRACE_NS = 1_250 * MILLISECOND
"""The time (ns) after our return in which we judge nobody: others may connect half a second after us, and *Live* allows
3 s from the end of the outage."""

NO_OWNER = ""
"""Stands in a record for a stream without an owner."""

MAX_OTHERS = 1_000
"""The most other instances that are noted: any client may send heartbeats of instances that do not exist."""

MAX_RECORDS_NOTED = 100_000
"""The most streams whose records are noted when they are received; further ones are looked up before they change."""

STALE_HEARTBEAT_NS = OWN_HEARTBEAT_LIMIT_NS + SERVING_KEPT_NS
"""A stale heartbeat is stored at least this time (ns) after the last message that its sender had received.

Both instants are of the server's clock. It is the age at which the sender itself would no longer claim to serve."""


class Reason(StrEnum):
    """Why a stream has the owner that it has."""

    FIRST = "first"
    """Nobody owned it before."""
    ORDER = "order"
    """An instance that is earlier in the order has read it."""
    LEFT = "left"
    """The owner before was ended, and handed it over."""
    GONE = "gone"
    """The owner before is gone."""
    NOT_READY = "not_ready"
    """The owner before has lost contact with the stream, or receives nothing."""
    UNABLE = "unable"
    """The owner before lacks something that an owner needs, such as a permission."""
    IDLE = "idle"
    """The owner before fired nothing of what was due."""


@dataclass(frozen=True, slots=True)
class Record:
    """The content of the record of a stream, and its revision: 0 if there is none."""

    owner: str = NO_OWNER
    since: int = 0
    """The instant (ns, of the server's clock) at which the owner took it over; 0 if it is not known."""
    before: str = NO_OWNER
    """The owner before."""
    reason: Reason = Reason.FIRST
    revision: int = 0
    is_foreign: bool = False
    """True if it was written in a format that we do not know: nobody is known to own it, and we do not replace it."""


NO_RECORD = Record()


class OwnerChange(NamedTuple):
    """What the record of a stream is to say instead."""

    owner: str
    reason: Reason


@dataclass(slots=True)
class _Other:
    received_at: int
    stored_at: int
    serves: frozenset[str] | None
    times: int = 1
    """Heartbeats received since we subscribed; the first one may have been stored long before."""
    has_answered: bool = False
    """True if it answered when it was asked whether it is there: so we would learn that it is not."""
    absent_since: int | None = None
    """Since when (ns) it is not there, as far as is known; None while it is."""
    reading: frozenset[str] = frozenset()
    """The streams that it does not serve yet, and reads."""
    is_ending: bool = False


@dataclass(slots=True)
class Owners:
    """The owners of the streams, as one instance, `me`, knows them; streams have keys that mean the same to all."""

    me: str
    serves: frozenset[str] = frozenset()
    """The streams that we serve."""
    since: int = 0
    """The instant (ns) at which our first heartbeat was sent; 0 before that."""
    is_leaving: bool = False
    """True if we give up everything."""
    ability: Ability = field(default_factory=Ability)
    """Which instances are able to serve which streams."""
    order: Order = field(default_factory=Order)
    """Which instances read which streams."""
    given_up: set[str] = field(default_factory=set)
    """The streams that we still read, and leave to others: we hand them over."""
    is_ending: bool = False
    """True if we are about to leave, as soon as others serve what we do."""
    _now: int = 0
    """The instant (ns) at which we last checked which instances are alive."""
    _others: dict[str, _Other] = field(default_factory=dict)
    _records: dict[str, Record] = field(default_factory=dict)
    _served_at: dict[str, int] = field(default_factory=dict)
    """The instant (ns) at which each stream could last be served."""
    _asked_first_at: int | None = None
    """The instant (ns) at which it was asked for the first time whether we are to read a stream."""
    _own_received_at: int | None = None
    _own_fresh_at: int | None = None
    """The instant (ns) at which we last received a heartbeat of our own that was not stale."""
    _own_stored_at: int | None = None
    """The instant at which our last heartbeat that we received was stored, by the server's clock."""
    _newest: int = 0
    """The instant at which the newest heartbeat of any instance was stored, by the server's clock."""
    _judges_from: int = 0
    """The instant (ns) from which on we judge others again: after an outage they may connect later than we."""

    # -- what is received ---------------------------------------------------------------------------------------

    def listening_anew(self) -> None:
        """Discard all revisions: the records are received again from the beginning, and may be gone."""
        self._own_received_at = self._own_fresh_at = None
        for other in self._others.values():
            other.times = 0
        self._records = {key: replace(record, revision=0) for key, record in self._records.items()}

    def received(
        self,
        instance: str,
        serves: Iterable[str] | None,
        now: int,
        stored_at: int,
        last_received: int | None = None,
        unable: Iterable[str] = (),
        reading: Iterable[str] = (),
        *,
        is_ending: bool = False,
    ) -> bool:
        """Take a heartbeat of an instance that `serves` some streams; None: all.

        It was stored at `stored_at` (ns, by the server's clock). The last message that its sender had received was
        stored at `last_received`; None if it does not say. Its sender is `unable` to serve some streams, is `reading`
        some that it does not serve yet, and leaves soon if it `is_ending`.
        Returns whether that changes which owners are wanted. One more than `MAX_OTHERS` is not noted.
        """
        if instance != self.me and instance not in self._others and len(self._others) >= MAX_OTHERS:
            return False
        self._newest = max(self._newest, stored_at)
        is_stale = last_received is not None and stored_at - last_received >= STALE_HEARTBEAT_NS
        if instance == self.me:
            return self._own_heartbeat(now, stored_at, is_stale=is_stale)
        served = frozenset() if is_stale else None if serves is None else frozenset(serves)
        is_news = self.ability.reported(instance, unable)
        known = self._others.get(instance)
        times, has_answered = (1, False) if known is None else (known.times + 1, known.has_answered)
        reads = frozenset[str]() if is_stale else frozenset(reading)
        latest = _Other(now, stored_at, served, times, has_answered, None, reads, is_ending)
        self._others[instance] = latest
        return is_news or known is None or _stance(known) != _stance(latest)

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
        is_late = now >= max(other.received_at + HEARTBEAT_LIMIT_NS, self._judges_from)
        if is_there is not False or not (other.has_answered and is_receiving and is_late):
            other.absent_since = None
        elif other.absent_since is None:
            other.absent_since = now
        elif now - other.absent_since >= ABSENCE_CONFIRMED_NS:
            other.received_at = now - GONE_AFTER_NS
        return other.has_answered

    def left(self, instance: str) -> None:
        """Note that an instance has given up all that it owned and left."""
        self._discard(instance)

    def recorded(self, key: str, record: Record) -> None:
        """Take the record of a stream as it was received; one that is older than the known one changes nothing."""
        is_noted = key in self._records or len(self._records) < MAX_RECORDS_NOTED
        if is_noted and record.revision > self.record(key).revision:
            self.looked_up(key, record)

    def looked_up(self, key: str, record: Record) -> None:
        """Take the record of a stream as it was just looked up, whatever was received before."""
        before, self._records[key] = self.record(key).owner, record
        if record == NO_RECORD:
            del self._records[key]
        if record.owner == self.me != before and not self.ability.is_flawless:
            self.ability.claims(key, before, self._now)

    # -- what follows --------------------------------------------------------------------------------------------

    def able(self, caught_up: Iterable[str], now: int) -> frozenset[str]:
        """Return the streams that our heartbeats name as served; those in `caught_up` have been read completely."""
        if self._own_fresh_at is not None and now - self._own_fresh_at < OWN_HEARTBEAT_LIMIT_NS:
            self._served_at.update(dict.fromkeys(caught_up, now))
        self._served_at = {key: at for key, at in self._served_at.items() if now - at < SERVING_KEPT_NS}
        return frozenset(key for key in self._served_at.keys() - self.given_up if not self.record(key).is_foreign)

    def awaits_others(self, now: int) -> int:
        """Return for how long (ns) we wait for our own first heartbeat before we read any stream; 0 once we do not."""
        if self._asked_first_at is None:
            self._asked_first_at = now
        is_known = self._own_stored_at is not None
        return 0 if is_known else max(self._asked_first_at + FIRST_HEARTBEAT_LIMIT_NS - now, 0)

    def reads(self, key: str, now: int, *, is_reading: bool) -> bool:
        """Return whether we are to read a stream; what `is_reading` says if it is unknown.

        If no heartbeat of our own is received within `FIRST_HEARTBEAT_LIMIT_NS` at first, we read it anyway.
        """
        if self.awaits_others(now) == 0 and self._own_stored_at is None:
            return True
        is_unknown = not self.is_receiving(now) or now < self._judges_from or self.is_leaving or self.is_ending
        if is_unknown or not self.ability.can_serve(key):
            return is_reading
        living = [name for name, other in self._others.items() if not other.is_ending]
        self.order.met(living, now)
        if is_reading:  # what is read is not left to one that may be gone: its first heartbeat may be an old one
            living = [name for name in living if self._others[name].times > 1]
        mine = Stance(is_reading, key in self.serves)
        stances = {name: self._stance_on(key, name) for name in self.ability.able_others(key, living)}
        return self.order.includes(self.me, key, mine, stances, now)

    def _stance_on(self, key: str, name: str) -> Stance:
        serves = self._serves(name, key)
        return Stance(serves or key in self._others[name].reading, serves)

    def is_receiving(self, now: int) -> bool:
        """Return whether we receive our own heartbeats, and so would receive those of others."""
        return self._own_received_at is not None and now - self._own_received_at < GONE_AFTER_NS

    def discard_gone(self, now: int) -> dict[str, bool]:
        """Discard the instances that are gone; return by their names whether they were asked, and were not there."""
        self._now = now
        if not self.is_receiving(now) or now < self._judges_from:
            return {}
        others = self._others.items()
        late = {name: other for name, other in others if now - other.received_at >= GONE_AFTER_NS}
        gone = {name: other.absent_since is not None for name, other in late.items()}
        for name in gone:
            self._discard(name)
        return gone

    def living(self, key: str) -> list[str]:
        """Return the living instances that serve a stream, if they are able to."""
        return self.ability.of(key, self.me, self._serving(key), self._now)

    def _serving(self, key: str) -> list[str]:
        """Return the living instances that serve a stream; one that leaves does not, we included."""
        record = self.record(key)
        left = record.before if record.reason is Reason.LEFT else NO_OWNER  # it ends, and its id is not used again
        others = [name for name in self._others if name != left and self._serves(name, key)]
        return others if self.is_leaving or key not in self.serves else [*others, self.me]

    def has_successor(self, key: str) -> bool:
        """Return whether another instance serves a stream, or none of those that are left is about to read it."""
        stances = [self._stance_on(key, name) for name, other in self._others.items() if not other.is_ending]
        is_awaited = any(one.reads for one in stances) or len(stances) >= self.order.readers
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
        return 1 + sum(self._newest - other.stored_at < GONE_AFTER_NS for other in self._others.values())

    @property
    def others(self) -> Iterable[str]:
        """The names of the other instances that may be alive."""
        return self._others.keys()

    def on_record(self) -> list[str]:
        """Return the streams that have a record whose format we know."""
        return [key for key, record in self._records.items() if record.revision and not record.is_foreign]

    def outlook(self, now: int) -> Hashable:
        """Return what `change` depends on, except for a stream's record and whether we serve it."""
        others = frozenset((name, _stance(other)) for name, other in self._others.items())
        return self.is_receiving(now), self.is_leaving, self.ability.is_flawless, others, now < self._judges_from

    def is_unowned(self, key: str, now: int) -> bool:
        """Return whether a stream has no owner, or one that is gone, as far as we receive that."""
        owner = self.record(key).owner
        return owner == NO_OWNER or (owner != self.me and owner not in self._others and self.is_receiving(now))

    def _is_free(self, key: str, now: int) -> bool:
        """Return whether it is certain that no living instance owns a stream."""
        return self.is_unowned(key, now) and self.is_receiving(now) and not self.record(key).is_foreign

    def is_owner(self, key: str) -> bool:
        """Return whether we own a stream."""
        return self.record(key).owner == self.me

    def standbys(self, key: str) -> list[str]:
        """Return the instances that have read a stream and do not own it, in the order in which they take it over."""
        return [name for name in order_of(key, self._serving(key)) if name != self.record(key).owner]

    def fires(self, key: str, now: int) -> bool:
        """Return whether we are to fire for a stream: we own it, or do so in addition to its owner.

        The latter if we are on trial, and as the wanted owner if the owner is gone, or is passed over because it is
        idle, whatever the record says. At worst another instance has stored the fire first.
        """
        if self.is_owner(key) or self.ability.is_on_trial(key, now):
            return True
        if key not in self.serves or self.is_leaving:
            return False
        is_free = self._is_free(key, now) or self.ability.is_passed_over(key, self.record(key).owner, now)
        return is_free and self._first(key, self.living(key)) == self.me

    def judge_owner(self, key: str, unfired: int, fired: int, now: int) -> str | None:
        """Judge the owner of a stream by a fire that was due and not read back; return it if it is passed over now.

        `unfired` is the send time (ns) that passed without a fire, 0 if there is none; `fired` the last send time (ns)
        of which a fire was read back. If the owner is gone, the wanted one is judged: it has not claimed the stream.
        """
        owner = self._first(key, self.living(key)) if self._is_free(key, now) else self.record(key).owner
        is_idle = owner in self._others and unfired > fired
        return owner if self.ability.seems_idle(key, owner if is_idle else None, now) else None

    def record(self, key: str) -> Record:
        """Return the last record of a stream that was seen."""
        return self._records.get(key, NO_RECORD)

    def change(self, key: str, now: int) -> OwnerChange | None:
        """Return who should own a stream instead; None if we have nothing to change.

        It is to be written in place of the known revision, and passed to `recorded` once it is written.
        """
        self._now = now
        record = self.record(key)
        if record.is_foreign or not self.is_receiving(now):
            return None  # a record may not be received yet, and instances that seem alive may be gone
        if now < self._judges_from and not self.is_leaving:
            return None
        living = self.living(key)
        if living or self.is_leaving:
            wanted = self._first(key, living)
            if wanted == record.owner and record.revision:
                return None
            owner = wanted if self._may_change(key, wanted, living) else record.owner
        elif record.owner in self._others:
            owner = record.owner  # no instance can fire at the moment: each keeps its streams
        else:  # and one without an owner is claimed by the first of those that read it
            reading = [name for name in self._others if self._stance_on(key, name).reads]
            owner = self.me if self._first(key, [*reading, self.me]) == self.me else record.owner
        if owner != record.owner:
            return OwnerChange(owner, self._reason(key, record.owner))
        is_lost = record.revision == 0 and owner != NO_OWNER
        return OwnerChange(owner, record.reason) if is_lost else None

    def _first(self, key: str, living: Iterable[str]) -> str:
        """Return the first of the instances in the order of a stream, `NO_OWNER` if there is none."""
        return first_of(key, living) or NO_OWNER

    def _may_change(self, key: str, wanted: str, living: list[str]) -> bool:
        owner = self.record(key).owner
        return owner == self.me or (wanted == self.me and owner not in living and not self._was_taken_back(key, owner))

    def _was_taken_back(self, key: str, owner: str) -> bool:
        """Return whether an owner took a stream back that we had claimed because it was idle, and can serve it."""
        if self.ability.is_flawless or not self.ability.has_claimed(key, owner, self._now):
            return False
        return owner in self._others and self._serves(owner, key)

    def _reason(self, key: str, before: str) -> Reason:
        """Return why a stream gets another owner than the one before."""
        if before == NO_OWNER:
            return Reason.FIRST
        if before == self.me:
            if self.is_leaving:
                return Reason.LEFT
            if not self.ability.can_serve(key):
                return Reason.UNABLE
            return Reason.ORDER if key in self.serves or key in self.given_up else Reason.NOT_READY
        if before not in self._others:
            return Reason.GONE
        if self.ability.is_passed_over(key, before, self._now):
            return Reason.IDLE
        return Reason.NOT_READY if self.ability.able_others(key, (before,)) else Reason.UNABLE

    def _serves(self, other: str, key: str) -> bool:
        serves = self._others[other].serves
        return serves is None or key in serves

    def _discard(self, instance: str) -> None:
        self._others.pop(instance, None)
        self.ability.discard(instance)

    def _own_heartbeat(self, now: int, stored_at: int, *, is_stale: bool) -> bool:
        """Take one of our own heartbeats; returns whether that changes which owners are wanted."""
        self._own_fresh_at = self._own_fresh_at if is_stale else now
        if self._own_stored_at is not None and stored_at - self._own_stored_at >= GONE_AFTER_NS:
            self._judges_from = now + RETURN_GRACE_NS
        self._own_stored_at = stored_at
        return self._own_received(now, stored_at)

    def _own_received(self, now: int, stored_at: int) -> bool:
        """Judge the other instances from now on, since we receive our own heartbeats.

        An instance whose only heartbeat was stored long before is gone at once. One without a heartbeat since we
        subscribed has its time from now on, since we received nothing before.
        """
        is_news, self._own_received_at = self._own_received_at is None, now
        for name, other in list(self._others.items()):
            if is_news and other.times == 0:
                other.received_at = now
            elif now >= self._judges_from and other.times == 1 and stored_at - other.stored_at >= GONE_AFTER_NS:
                self._discard(name)
                is_news = True
        return is_news


def _stance(other: _Other) -> Hashable:
    """Return what is decided by, of the last heartbeat of an instance."""
    return other.serves, other.reading, other.is_ending
