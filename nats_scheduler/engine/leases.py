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
- An instance was disconnected if none of its heartbeats was stored for `OWN_HEARTBEAT_LIMIT_NS`. It cannot know whether
  the others died or were disconnected too. For `RETURN_GRACE_NS` it expects those that were alive when it lost contact,
  itself among them, to serve what they served. So after an outage of all, each continues with its own shards, whichever
  is back first.
- An instance that cannot or does not do the work of a holder gets no shards while another one can: `engine.fitness`.
- A heartbeat that was stored `STALE_HEARTBEAT_NS` or more after the last message that its sender had received is stale;
  its sender serves nothing, whatever it says.
- We hold what the last record that we saw says, however old it is: only a record that names another holder ends it.
  Correctness does not rest on it, and availability wins.

Cost: one hash for each instance and stream when membership changes.
"""

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from nats_scheduler.engine.fitness import Fitness
from nats_scheduler.engine.shards import SHARDS
from nats_scheduler.schedule.instants import MILLISECOND

LEASE_DURATION_NS = 1750 * MILLISECOND
"""So long (ns) after an instance was last heard its shards are claimed by others: *Live* promises 3 s in all."""

OWN_HEARTBEAT_LIMIT_NS = 1_000 * MILLISECOND
"""Whoever has not heard himself for so long (ns) may be cut off, although he still can be heard."""

SERVING_KEPT_NS = 1_000 * MILLISECOND
"""How long (ns) a stream still counts as served that cannot be for the moment: a reconnect moves no shards."""

RETURN_GRACE_NS = 1_250 * MILLISECOND
"""So long (ns) after our return we count on those who lived when we left: others connect half a second after us, and
*Live* leaves 3 s from the end of the outage."""

NO_HOLDER = ""

STALE_HEARTBEAT_NS = OWN_HEARTBEAT_LIMIT_NS + SERVING_KEPT_NS
"""What was stored so long (ns) after the last that its teller had heard is too old to give shards for, by one clock:
both instants are the server's. It is the age at which its teller would not say it any more."""

Holders = tuple[str, ...]
"""The holder of each shard of a stream."""

UNHELD: Holders = (NO_HOLDER,) * SHARDS


@dataclass(frozen=True, slots=True)
class Record:
    """What the record of a stream says, and its revision: 0 where there is none."""

    holders: Holders = UNHELD
    revision: int = 0


@dataclass(slots=True)
class _Other:
    received_at: int
    stored_at: int
    serves: frozenset[str] | None
    times: int = 1
    """How often it was heard since we listen; what was heard once may have been stored long before.

    Once more for who is counted on."""


@dataclass(slots=True)
class Leases:
    """The leases of one instance, `me`; streams are named by keys that mean the same to all instances."""

    me: str
    serves: frozenset[str] = frozenset()
    """The streams that we serve."""
    since: int = 0
    """When (ns) others were told of us first; 0 before that."""
    is_leaving: bool = False
    """Whether we give up everything."""
    fitness: Fitness = field(default_factory=Fitness)
    """Who can do what a holder has to."""
    _now: int = 0
    """When (ns) we looked last who lives."""
    _others: dict[str, _Other] = field(default_factory=dict)
    _records: dict[str, Record] = field(default_factory=dict)
    _served_at: dict[str, int] = field(default_factory=dict)
    """When each stream could be served last."""
    _wanted: dict[str, tuple[tuple[str, ...], Holders]] = field(default_factory=dict)
    _own_received_at: int | None = None
    _own_fresh_at: int | None = None
    """When (ns) we heard last what we had told in time."""
    _own_stored_at: int | None = None
    """When the last that we heard of ourselves was stored, by the server's clock."""
    _newest: int = 0
    """When the newest that we heard of any instance was stored, by the server's clock."""
    _served: dict[str, frozenset[str] | None] = field(default_factory=dict)
    """What each served, we among them, as far as it was told while we heard ourselves."""
    _expected: dict[str, frozenset[str] | None] = field(default_factory=dict)
    """What each is counted on to serve again, we among them."""
    _expected_until: int = 0

    # -- what is heard -------------------------------------------------------------------------------------------

    def listening_anew(self) -> None:
        """Trust no revision any more: the records are told again from the beginning, and may be gone."""
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
        cannot: Iterable[str] = (),
    ) -> bool:
        """Note that an instance told at `stored_at`, by the server's clock, what it serves; None: all streams.

        It had received what was stored at `last_received`; None if it does not say. It says what it `cannot` serve.
        Returns whether that changes who is wanted where.
        """
        self._newest = max(self._newest, stored_at)
        is_stale = last_received is not None and stored_at - last_received >= STALE_HEARTBEAT_NS
        told = frozenset() if is_stale else None if serves is None else frozenset(serves)
        is_news = instance == self.me and self._own_heartbeat(now, stored_at, is_stale=is_stale)
        if self._own_received_at is not None and not self._was_disconnected(stored_at) and now >= self._expected_until:
            self._served[instance] = told
        if instance == self.me:
            return is_news
        is_news = self.fitness.reported(instance, cannot)
        known = self._others.get(instance)
        self._others[instance] = _Other(now, stored_at, told, 1 if known is None else known.times + 1)
        return is_news or known is None or known.serves != told

    def left(self, instance: str) -> None:
        """Note that an instance gave up everything."""
        self._discard(instance)

    def recorded(self, key: str, record: Record) -> None:
        """Note what the record of a stream says; what is older than what is known changes nothing."""
        if record.revision > self.record(key).revision:
            self.looked_up(key, record)

    def looked_up(self, key: str, record: Record) -> None:
        """Note what was found to be the record of a stream just now, whatever was told before."""
        before, self._records[key] = self.record(key).holders, record
        if not self.fitness.is_flawless:
            self._note_claims(key, before, record.holders)

    # -- what follows --------------------------------------------------------------------------------------------

    def able(self, caught_up: Iterable[str], now: int) -> frozenset[str]:
        """Return the streams to say that we serve, given those of which all that is stored has been read."""
        if self._own_fresh_at is not None and now - self._own_fresh_at < OWN_HEARTBEAT_LIMIT_NS:
            self._served_at.update(dict.fromkeys(caught_up, now))
        self._served_at = {key: at for key, at in self._served_at.items() if now - at < SERVING_KEPT_NS}
        return frozenset(self._served_at)

    def is_receiving(self, now: int) -> bool:
        """Tell whether we hear ourselves, and so would hear others."""
        return self._own_received_at is not None and now - self._own_received_at < LEASE_DURATION_NS

    def discard_gone(self, now: int) -> list[str]:
        """Forget the dead, and return their names."""
        self._now = now
        if not self.is_receiving(now):
            return []
        dead = [name for name, other in self._others.items() if now - other.received_at >= LEASE_DURATION_NS]
        for name in dead:
            self._discard(name)
        return dead

    def living(self, key: str) -> list[str]:
        """Return the living instances that serve a stream, or are counted on to serve it, as far as they can."""
        others = [name for name in self._others if self._serves(name, key) or self._is_expected(name, key)]
        living = others if self.is_leaving or key not in self.serves else [*others, self.me]
        return self.fitness.of(key, self.me, living, self._now)

    @property
    def count(self) -> int:
        """How many instances are known, we among them; what is stored of the dead is known too, for a moment."""
        return len(self._others) + 1

    @property
    def alive(self) -> int:
        """How many instances live, we among them: those who told of themselves lately, by what is stored."""
        return 1 + sum(self._newest - other.stored_at < LEASE_DURATION_NS for other in self._others.values())

    @property
    def others(self) -> Iterable[str]:
        """The names of the others that may live."""
        return self._others.keys()

    def on_record(self) -> list[str]:
        """Return the streams of which there is a record."""
        return [key for key, record in self._records.items() if record.revision]

    def outlook(self, now: int) -> Hashable:
        """Return what `change` depends on, beside a stream's record and whether we serve it: who else does, and how."""
        expected = frozenset(self._expected.items()) if now < self._expected_until else None
        others = frozenset((name, other.serves) for name, other in self._others.items())
        return self.is_receiving(now), self.is_leaving, self.fitness.is_flawless, others, expected

    def held(self, key: str) -> frozenset[int]:
        """Return the shards of a stream that we hold."""
        return _shards_of(self.me, self.record(key).holders)

    def to_fire(self, key: str, now: int) -> frozenset[int]:
        """Return the shards to fire for: those that we hold, and those that we fire for beside their holders.

        For such as are idle whatever the record says, and for one where we are on trial; to have been stored by
        another one first is all that can happen to a fire.
        """
        if self.fitness.is_flawless:
            return self.held(key)
        held = self.held(key) | self.fitness.on_trial(key, now)
        if not self.fitness.has_relieved(key, now) or key not in self.serves:
            return held
        wanted = self._wanted_holders(key, tuple(self.living(key)))
        holders = enumerate(self.record(key).holders)
        idle = (shard for shard, holder in holders if self.fitness.is_relieved(key, holder, now))
        return held.union(shard for shard in idle if wanted[shard] == self.me)

    def relieve_idle(self, key: str, overdue: Mapping[int, int], fired: Sequence[int], now: int) -> list[str]:
        """Judge the holders of a stream by what came due and was not seen to fire; returns who is relieved now.

        `overdue` says of a shard which fire time (ns) passed unseen, `fired` which is the last that was seen of each.
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
        return self.fitness.seems_idle(key, idle, now)

    def record(self, key: str) -> Record:
        """Return the last record of a stream that was seen."""
        return self._records.get(key, Record())

    def change(self, key: str, now: int) -> Holders | None:
        """Return what the record of a stream should say instead; None where we have nothing to change.

        It is to be written in place of the revision that is known, and told by `recorded` when it is.
        """
        self._now = now
        if not self.is_receiving(now):
            return None  # a record may be there that was not told yet, and who seems to live may be dead
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
        else:  # nobody can fire yet, or for the moment: everybody keeps what he has, and what is nobody's is ours
            changed = tuple(holder if holder in self._others else self.me for holder in holders)
        is_lost = record.revision == 0 and changed != UNHELD
        return changed if changed != holders or is_lost else None

    def _wanted_holders(self, key: str, living: tuple[str, ...]) -> Holders:
        """Draw the wanted holders anew where others live than before."""
        known = self._wanted.get(key)
        if known is None or known[0] != living:
            known = self._wanted[key] = living, wanted_holders(key, living)
        return known[1]

    def _may_change(self, key: str, shard: int, wanted: str, living: list[str]) -> bool:
        holder = self.record(key).holders[shard]
        if self._is_expected(wanted, key) and wanted != self.me and not self._serves(wanted, key):
            return False  # he goes on with what he has, and is given nothing
        if holder == self.me:
            return self.is_leaving or key in self.serves or not self._is_expected(self.me, key)
        return wanted == self.me and holder not in living and not self._was_taken_back(key, shard, holder)

    def _was_taken_back(self, key: str, shard: int, holder: str) -> bool:
        """Tell whether a holder took a shard back that we had claimed since it was idle, and could serve it."""
        if self.fitness.is_flawless or not self.fitness.has_claimed(key, holder, shard, self._now):
            return False
        return holder in self._others and self._serves(holder, key)

    def _note_claims(self, key: str, before: Holders, after: Holders) -> None:
        """Note which shards are ours now, so that none is claimed from an idle holder again and again."""
        for shard, holder in enumerate(before):
            if holder != self.me == after[shard]:
                self.fitness.claims(key, holder, shard, self._now)

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
        self.fitness.discard(instance)

    def _own_heartbeat(self, now: int, stored_at: int, *, is_stale: bool) -> bool:
        """Note that we heard ourselves; returns whether that is news."""
        self._own_fresh_at = self._own_fresh_at if is_stale else now
        if self._was_disconnected(stored_at) and now >= self._expected_until:
            self._expect_the_others(now, stored_at)
        self._own_stored_at = stored_at
        return self._own_received(now, stored_at)

    def _was_disconnected(self, stored_at: int) -> bool:
        """Tell whether nothing of ours was stored for long before this."""
        return self._own_stored_at is not None and stored_at - self._own_stored_at >= OWN_HEARTBEAT_LIMIT_NS

    def _expect_the_others(self, now: int, stored_at: int) -> None:
        """Expect those who lived when we left to be back soon."""
        assert self._own_stored_at is not None, "we were never there"
        self._expected, self._expected_until = dict(self._served), now + RETURN_GRACE_NS
        if stored_at - self._own_stored_at < LEASE_DURATION_NS:
            return  # who died is missed as early as ever
        for name in self._served:
            other = self._others.get(name)
            if other is not None and other.times and not self._was_disconnected(other.stored_at):
                other.received_at, other.times = now + RETURN_GRACE_NS - LEASE_DURATION_NS, other.times + 1

    def _own_received(self, now: int, stored_at: int) -> bool:
        """Judge from now on.

        Of those who were heard only in what was stored before, we need not wait for the dead; those who were not heard
        of have their time from now on, since we were deaf before.
        """
        is_news, self._own_received_at = self._own_received_at is None, now
        for name, other in list(self._others.items()):
            if is_news and other.times == 0:
                other.received_at = now
            elif other.times == 1 and stored_at - other.stored_at >= LEASE_DURATION_NS:
                self._discard(name)
                is_news = True
        return is_news


def wanted_holders(key: str, living: Iterable[str]) -> Holders:
    """Return who should hold each shard of a stream."""
    draws: Mapping[str, bytes] = {name: _draws(name, key) for name in living}
    if not draws:
        return UNHELD
    return tuple(max(draws, key=lambda name: (draws[name][at : at + 4], name)) for at in range(0, 4 * SHARDS, 4))


def _draws(name: str, key: str) -> bytes:
    return hashlib.shake_128(f"{name} {key}".encode("utf-8", "surrogateescape")).digest(4 * SHARDS)


@lru_cache(maxsize=4_096)
def _shards_of(instance: str, holders: Holders) -> frozenset[int]:
    """Return the shards that an instance holds: asked of each stream again and again, and most are divided alike."""
    return frozenset(shard for shard, holder in enumerate(holders) if holder == instance)
