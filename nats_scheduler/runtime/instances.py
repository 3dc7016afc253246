"""This instance among the others of its account: exchange heartbeats, and hold our part of each stream.

The policy is `engine.sharing.leases`. Here it is carried out, through the bucket of the registry:
`instance.<id>` is written twice a second and names the streams that the instance serves, since when it runs, and up to
when (by the server's clock) it has received what was written,
`reading`, `ending`, `room` and `surplus` of it say what it is about to serve, that it is about to leave, how many
further schedules it can hold, and for which of its streams it has no room.
`lease.<mode>.<stream>` names the holder of each shard and is changed by compare-and-set.

The rules: an instance serves a stream from when it has read it, so that shards are given only to an instance that is
ready. Nothing here stops a fire: a bucket that is away is waited for, one that was deleted is created again, and
meanwhile every instance continues with what it holds. What a newer version wrote in a format of its own is left as it
is: an instance whose heartbeat cannot be read is alive and serves nothing for us, and a stream whose lease cannot be
read is left to the others.
Cost: two messages a second for each instance, and each instance receives all of them.
A stream is checked if something was received that concerns it, and otherwise once in `CHECKS_PER_ROUND` checks.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping, Sequence, Set
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import islice
from types import MappingProxyType

from nats_scheduler.engine.holding.lifecycle import Denied
from nats_scheduler.engine.sharing.leases import (
    HEARTBEAT_INTERVAL_NS,
    LEASE_DURATION_NS,
    NO_HOLDER,
    UNHELD,
    Ability,
    Holders,
    Leases,
    Record,
)
from nats_scheduler.engine.sharing.shards import SHARDS
from nats_scheduler.jetstream.errors import ConnectionLostError, JetStreamError, NoAnswerError, NotPermittedError
from nats_scheduler.jetstream.registry import Delivered, UnknownFormatError
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.jetstream.task_group import TaskGroup, Work, in_turn
from nats_scheduler.message.foreign_json import Object, inner
from nats_scheduler.message.rejection import MAX_KEPT_CHARS
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.port import Bucket, StreamInformation
from nats_scheduler.runtime.stream_service import LeftStream, StreamService
from nats_scheduler.runtime.work import RETRY_WAIT_LIMIT_SECONDS
from nats_scheduler.schedule.instants import SECOND, next_multiple
from nats_scheduler.schedule.rfc3339 import format_rfc3339

# Judge which instances can serve a stream by what its engine has seen: what was denied to us, and which holders do
# not fire.
#
# The policy is `engine.sharing.leases`. Here the facts for it are collected, and what it decides is reported to the
# operator.
#
# The rule: a holder that seems idle is judged only after we have read all that was stored when it began to seem so; a
# follower that is late sees no fires either. Cost: some comparisons at each check for each stream that changed since
# the last one, or about which something is noted; a request to the server if a holder seems idle. Limit: on streams
# whose messages are not all read (work queue, interest) the fires of others are not seen, and no holder is judged by
# them.

ALL_REFUSED_LIMIT_NS = 2 * SECOND
"""A stream that refuses fires of ours, and has stored none for this time (ns), may refuse those of others as well."""

STREAM_INFO_LIMIT_SECONDS = 1.5
"""Longest wait for the information about a stream; it is requested again at the next check."""

Relieve = Callable[[str, Mapping[int, int], Sequence[int], int], list[str]]
"""Takes a stream's key, its neglected shards, when each shard fired last, and the time; see `Leases.relieve_idle`."""


class Judgement:
    """The notes of one instance about the ability of itself and of others."""

    def __init__(
        self, ability: Ability, relieve: Relieve, api: StreamInformation, clock: Clock, reporter: Reporter
    ) -> None:
        self._ability = ability
        self._relieve = relieve
        self._api = api
        self._clock = clock
        self._reporter = reporter
        self._denied: dict[str, Denied] = {}
        self._stored: dict[str, tuple[int, int]] = {}
        """By stream that refuses some fires, the number of fires stored, and the instant (ns) at which it changed."""
        self._to_read: dict[str, int] = {}
        """The sequence up to which a stream has to be read before its holders are judged."""
        self._concerning: dict[str, None] = {}
        """The streams about which something is noted, here or by their engines, in the order in which it was found."""

    def check(self, streams: Mapping[str, StreamService], changed: Iterable[str]) -> list[Work]:
        """Note what was denied to us, and return the work that has to be done to judge others.

        `changed` are the keys of the streams that changed since the last check, and of all that are in trouble.
        """
        now = self._clock.monotonic()
        works: list[Work] = []
        for key in list(dict.fromkeys((*self._concerning, *changed))):
            stream = streams.get(key)
            if stream is None or not self._is_to_judge(key, stream):
                self._concerning.pop(key, None)
                continue
            self._concerning[key] = None
            denied, name = stream.denied, stream.state.name
            if denied is not None and denied is not self._denied.get(key):
                self._denied[key] = denied
                if self._ability.denied(key, denied.shard, denied.reason[:MAX_KEPT_CHARS], now):
                    self._reporter.cannot_serve(name, denied.reason)
            if self._refuses_all(key, stream, now):
                self._ability.end_reliefs(key, now)
            elif stream.engine.ownership.neglected or key in self._to_read:
                works.append(partial(self._judge, key, stream))
        for key in self._ability.passed(now):
            self._reporter.can_serve_again(key.partition(".")[2])
        return works

    def _is_to_judge(self, key: str, stream: StreamService) -> bool:
        """Return whether there is anything to judge on a stream: on most there is nothing."""
        is_noted = key in self._stored or key in self._to_read
        engine = stream.engine
        return is_noted or stream.denied is not None or bool(engine.failing_count or engine.ownership.neglected)

    def _refuses_all(self, key: str, stream: StreamService, now: int) -> bool:
        """Return whether a stream stores none of our fires at the moment."""
        if not stream.engine.failing_count:
            self._stored.pop(key, None)
            return False
        stored, since = self._stored.get(key, (-1, now))
        if stored != stream.engine.fires_stored:
            self._stored[key] = stream.engine.fires_stored, now
            return False
        return now - since >= ALL_REFUSED_LIMIT_NS

    async def _judge(self, key: str, stream: StreamService) -> None:
        """Relieve the instances that hold shards of a stream and do not fire."""
        now = self._clock.monotonic()
        ownership = stream.engine.ownership
        if not stream.engine.is_live or not ownership.neglected:
            self._to_read.pop(key, None)
            self._relieve(key, {}, ownership.last_fired, now)
            return
        if key not in self._to_read:
            try:
                async with asyncio.timeout(STREAM_INFO_LIMIT_SECONDS):
                    info = await self._api.stream(stream.state.name)
            except TimeoutError:
                return
            if info is None:
                return
            self._to_read[key] = StreamState.from_info(info).last_sequence
            return  # what seemed neglected may have been read back meanwhile: it is judged at the next check
        if stream.engine.last_read < self._to_read[key]:
            return
        since = min(ownership.neglected.values())
        for holder in self._relieve(key, ownership.neglected, ownership.last_fired, now):
            self._to_read.pop(key, None)
            self._reporter.instance_not_firing(stream.state.name, holder, since)


# The record of a stream's lease as the registry's bucket holds it: which instance holds which shards.
#
# The rule: any client may write there, so a shard has no holder if no instance can have written what is there; a
# record of a newer version is known to exist, and nothing else of it.


def record_of(value: Delivered, revision: int) -> Record:
    """Read a record."""
    if isinstance(value, UnknownFormatError):
        return Record(UNHELD, revision, is_foreign=True)
    return Record(holders_of(value), revision)


def value_of(holders: Holders) -> Object:
    """Write a record."""
    names = set(holders) - {NO_HOLDER}
    return {"holders": {name: [n for n, one in enumerate(holders) if one == name] for name in names}}


def holders_of(value: Object | None) -> Holders:
    """Read the holder of each shard."""
    holders = [NO_HOLDER] * SHARDS
    named = (value or {}).get("holders")
    for name, shards in named.items() if isinstance(named, dict) else ():
        for shard in shards if isinstance(shards, list) else ():
            if type(shard) is int and 0 <= shard < SHARDS:
                holders[shard] = name
    return tuple(holders)


# The streams that this instance serves, and which of them changed since they were last checked.
#
# Periodic checks visit the streams of which something changed that concerns instances: whether all of it is read,
# what was denied, which holders neglect it. A stream that only fires costs nothing here.
#
# The rule: a driver notifies after each step that changed any of it, and after one that failed.
# If any stream came, went, or got a new engine, all are checked once more.


class ServicesByKey:
    """The services by the keys that streams have among instances."""

    def __init__(self, services: Mapping[str, StreamService]) -> None:
        """Watch `services`, which have the names of their streams, and may change at any time."""
        self._services = services
        self._known: tuple[StreamService, ...] = ()
        self._by_key: dict[str, StreamService] = {}
        self._changed: dict[str, None] = {}
        """Which changed since the last check; a dictionary, because it keeps the order of the changes."""
        self._live: dict[str, None] = {}
        self._to_judge: dict[str, None] = {}

    def by_key(self) -> dict[str, StreamService]:
        """Return the services by their keys; the result is kept until one comes or goes, since this is called often."""
        services = tuple(self._services.values())
        if services != self._known:
            self._known, self._by_key = services, {service.key: service for service in services}
            self._live.clear()
            for key, service in self._by_key.items():
                service.notify_of_changes(partial(self._changed.setdefault, key))
                self._changed[key] = None
        return self._by_key

    def live(self) -> Mapping[str, None]:
        """Return the keys of the streams of which everything stored has been read."""
        services = self.by_key()
        self._to_judge.update(self._changed)
        for key in self._changed:
            service = services.get(key)
            if service is not None and service.engine.is_live:
                self._live[key] = None
            else:
                self._live.pop(key, None)
        self._changed.clear()
        return self._live

    def take_changed(self) -> list[str]:
        """Return the keys of the streams that changed since the last call."""
        self.live()
        changed = list(self._to_judge)
        self._to_judge.clear()
        return changed


DIVISION_CHECK_INTERVAL_SECONDS = 0.25
"""The interval at which it is checked which instances are gone, if nothing was received that calls for a check."""

MIN_HEARTBEAT_PAUSE_NS = HEARTBEAT_INTERVAL_NS * 3 // 4
"""The shortest pause (ns): the second check after a heartbeat sends the next, also if it runs a little early."""

CHECKS_PER_ROUND = 40
MIN_STREAMS_PER_CHECK = 32
"""Each stream is checked once in `CHECKS_PER_ROUND` checks, whatever happened; if there are few, at each check."""

OWN_HEARTBEAT_CHECK_INTERVAL_SECONDS = 1.0
MAX_CHECKS_WITHOUT_HEARTBEAT = 2
"""If not even our own heartbeat was received at this number of checks in a row, the bucket is followed anew."""

BUCKET_WRITE_LIMIT_SECONDS = 1.5
"""Longest wait for the answer to a write, which is lost while the bucket has no leader: *Live* leaves 3 s.

A write that was stored all the same is received, like those of others.
"""

MAX_HANDOVER_ATTEMPTS = 8
"""The most attempts at a hand-over at the end while others change the record."""

MAX_SERVED_NAMES_BYTES = 32 * 1024
"""Room for the names of the streams that are served; an instance with longer names reports that it serves all."""

SUCCESSORS_CHECK_INTERVAL_SECONDS = 0.05

SUCCESSORS_LIMIT_SECONDS = 10.0
"""Longest wait at the end until others have read the streams that only this instance serves; it fires meanwhile."""

MAX_UNABLE_STREAMS_SENT = 100
"""The most streams that an instance names as those that it cannot serve."""

SERVES_NOTHING: Object = {"serves": []}
"""The heartbeat that we assume where we cannot read one."""

INSTANCE = "instance."
LEASE = "lease."


class Instances:
    """This instance among the others, on one connection."""

    def __init__(
        self,
        leases: Leases,
        registry: Bucket,
        api: StreamInformation,
        clock: Clock,
        services: Mapping[str, StreamService],
        reporter: Reporter,
        restore: Callable[[], Awaitable[None]],
        is_there: Callable[[str], Awaitable[bool | None]],
        left: Mapping[str, LeftStream] = MappingProxyType({}),
    ) -> None:
        """Prepare to take part; `restore` writes into a bucket that was created again what it has to hold.

        `is_there` asks another instance whether it has a connection; None if nothing says so. `left` are the streams
        that others read.
        """
        self._leases = leases
        self._ability = leases.ability
        self._registry = registry
        self._api = api
        self._clock = clock
        self._reporter = reporter
        self._restore = restore
        self._is_there = is_there
        self._loop = asyncio.get_running_loop()
        self._awaited: dict[str, asyncio.TimerHandle] = {}
        """By instance, what runs if its next heartbeat is late."""
        self._late: asyncio.Queue[str] = asyncio.Queue()
        """The instances that are to be asked whether they are there."""
        self._left = left
        self.decide: Callable[[str], object] = lambda _name: None
        """Called with the name of a stream that is to be read from now on, or is left to others from now on."""
        self._are_all_known = False
        self._check_is_due = asyncio.Event()
        self._concerned: set[str] = set()
        """The streams about which something was received."""
        self._concerns_all = True
        self._outlook: Hashable = None
        """All that was known of the instances at the last check of all streams."""
        self._next_checked = 0
        self._served = ServicesByKey(services)
        self._named = _named(leases.serves)
        """The names of what we serve, as a heartbeat contains them."""
        self._judgement = Judgement(leases.ability, leases.relieve_idle, api, clock, reporter)
        self._reported_count = 0
        """The number of alive instances that was reported last."""
        self._sent_at: int | None = None
        """The instant (ns, of our monotonic clock) at which the last heartbeat was sent."""
        self._sent_about: Object = {}
        self._last_received: int | None = None
        """The instant (ns, of the server's clock) at which the last value that we received was stored."""
        self._unreadable: set[str] = set()
        """The keys of values in a format that we do not know; each is reported once."""

    def check_soon(self, key: str | None = None) -> None:
        """Check at once how a stream (None: each stream) is to be divided, because something about it changed."""
        if key is None:
            self._concerns_all = True
        else:
            self._concerned.add(key)
        self._check_is_due.set()

    def reads(self, key: str, size: int = 0, *, is_reading: bool) -> bool:
        """Return whether a stream is to be read here, if it is not read yet one of at most `size` schedules.

        One that is read is left once all shards are handed over.
        """
        given_up = self._leases.given_up
        if not is_reading:
            given_up.discard(key)
            self._note_held()  # streams that were begun since the last heartbeat count
            return self._leases.reads(key, size, self._clock.monotonic(), is_reading=False)
        service = self._served.by_key().get(key)
        return key not in given_up or (service is not None and bool(service.shards or self._leases.held(key)))

    async def may_end_reading(self, key: str) -> bool:
        """Wait until a stream that was handed over may be left; False if it is ours again: the next one is gone."""
        service = self._served.by_key().get(key)
        if service is not None and service.engine.is_live:  # what is not read yet is no loss
            await asyncio.sleep(LEASE_DURATION_NS / SECOND + DIVISION_CHECK_INTERVAL_SECONDS)
        return not self.reads(key, is_reading=True)

    def _note_held(self) -> None:
        if self._leases.readers.capacity is not None:
            sizes = {key: service.may_hold for key, service in self._served.by_key().items()}
            self._leases.readers.holds(self._leases.me, sizes)

    def all_are_known(self) -> None:
        """Note that each stream of the account was found: from now on it is known whether there is only one."""
        self._are_all_known = True
        self.check_soon()

    async def take_part(self) -> None:
        """Receive, send and divide until cancelled, or until the connection is lost."""
        self._ability.reconnected(self._clock.monotonic())
        async with TaskGroup() as tasks:
            tasks.create_task(self._keep_receiving())
            tasks.create_task(self._keep_sending())
            tasks.create_task(self._keep_asking())
            tasks.create_task(self._keep_dividing())

    async def leave(self) -> None:
        """Hand over everything that we hold, and report that we are gone; before that, others read what only we do."""
        self._leases.is_ending = self._leases.readers.is_limited
        with suppress(TimeoutError):
            async with asyncio.timeout(SUCCESSORS_LIMIT_SECONDS):
                while self._leases.is_ending and not all(map(self._leases.has_successor, self._leases.serves)):
                    self._send_heartbeat()
                    await asyncio.sleep(SUCCESSORS_CHECK_INTERVAL_SECONDS)
        self._leases.is_leaving = True
        try:
            await in_turn([partial(self._hand_over, key) for key in self._served.by_key()])
        except JetStreamError as error:
            self._reporter.problem("handover_failed", reason=str(error))
        self._registry.mark_deleted(f"{INSTANCE}{self._leases.me}")
        for key, service in self._served.by_key().items():
            holders = self._leases.record(key).holders
            service.handed_over(frozenset(n for n, name in enumerate(holders) if name not in ("", self._leases.me)))

    # -- receiving -----------------------------------------------------------------------------------------------

    async def _keep_receiving(self) -> None:
        wait = DIVISION_CHECK_INTERVAL_SECONDS
        while True:
            self._leases.listening_anew()
            self._sent_at = self._last_received = None
            self.check_soon()
            reason = await self._receive_all()
            if reason is None:
                return
            wait = (
                DIVISION_CHECK_INTERVAL_SECONDS if reason else min(2 * wait, RETRY_WAIT_LIMIT_SECONDS)
            )  # a permission may come
            try:
                before = self._registry.created
                is_new = await self._registry.open()
                if is_new or before not in ("", self._registry.created):
                    self._reporter.problem("registry_recreated", reason="the bucket of the registry was deleted")
                    await self._restore()
            except JetStreamError as error:
                reason = str(error)
            if reason:
                self._reporter.problem("heartbeats_not_received", reason=reason)
            await asyncio.sleep(wait)

    async def _receive_all(self) -> str | None:
        """Receive what is written into the bucket, for as long as our own heartbeats are among it.

        Returns why that ended: None if the connection was lost, "" if a permission is missing (reported elsewhere).
        """
        following = asyncio.create_task(self._registry.follow((f"{INSTANCE}*", f"{LEASE}>"), self._received))
        try:
            silent = 0  # more than one check: after a standstill, the first one finds what is yet to be read
            while not following.done() and silent < MAX_CHECKS_WITHOUT_HEARTBEAT:
                await asyncio.wait((following,), timeout=OWN_HEARTBEAT_CHECK_INTERVAL_SECONDS)
                silent = 0 if self._leases.is_receiving(self._clock.monotonic()) else silent + 1
        finally:
            following.cancel()
            await asyncio.wait((following,))
        if following.cancelled():
            waited = MAX_CHECKS_WITHOUT_HEARTBEAT * OWN_HEARTBEAT_CHECK_INTERVAL_SECONDS
            return f"not even our own heartbeat was received for {waited} s"
        error = following.exception()
        if error is not None and not isinstance(error, JetStreamError):
            raise error
        if isinstance(error, NotPermittedError):
            return ""
        return None if isinstance(error, ConnectionLostError) else str(error)

    def _received(self, key: str, value: Delivered, message: StoredMessage) -> None:
        self._last_received = message.stored_at
        if key.startswith(LEASE):
            self._lease_received(key, value, message.sequence)
            return
        if isinstance(value, UnknownFormatError):
            if key not in self._unreadable:
                self._unreadable.add(key)
                self._registry.broken(key, str(value))
            value = SERVES_NOTHING
        name, before = key.removeprefix(INSTANCE), self._leases.count
        if value is None:
            self._leases.left(name)
        else:
            serves = value.get("serves")
            named = _names_in(serves) if isinstance(serves, list) else None
            reading, is_ending = _names_in(value.get("reading")), value.get("ending") is True
            last_received, unable = number_in(value, "last_received"), inner(value.get("unable"))
            room, surplus = number_in(value, "room"), _names_in(value.get("surplus"))
            heard = named, self._clock.monotonic(), message.stored_at, last_received, unable, reading, room, surplus
            if self._leases.received(name, *heard, is_ending=is_ending):
                self.check_soon()
                before *= name != self._leases.me
        self._await_heartbeat(name)
        if self._leases.count != before:
            self.check_soon()
        if self._leases.alive != self._reported_count and self._leases.is_receiving(self._clock.monotonic()):
            self._reported_count = self._leases.alive
            self._reporter.instances(self._reported_count)

    def _await_heartbeat(self, name: str) -> None:
        """Ask an instance whether it is there if no further heartbeat of it arrives in time."""
        if (awaited := self._awaited.pop(name, None)) is not None:
            awaited.cancel()
        wait = self._leases.ask_after(name, self._clock.monotonic())
        if wait is not None:
            self._awaited[name] = self._loop.call_later(wait / SECOND, self._late.put_nowait, name)

    async def _keep_asking(self) -> None:
        async with TaskGroup() as asking:
            while True:
                asking.create_task(self._ask(await self._late.get()))

    async def _ask(self, name: str) -> None:
        is_there = await self._is_there(name)
        if self._leases.asked(name, is_there, self._clock.monotonic()):
            self._await_heartbeat(name)
        if is_there is False:
            self._check_is_due.set()

    def _lease_received(self, key: str, value: Delivered, revision: int) -> None:
        stream = key.removeprefix(LEASE)
        name = stream.partition(".")[2]
        self._leases.recorded(stream, record_of(value, revision))
        if not isinstance(value, UnknownFormatError):
            if key in self._unreadable:
                self._unreadable.remove(key)
                self._reporter.can_serve_again(name)
        elif key not in self._unreadable:
            self._unreadable.add(key)
            self._reporter.cannot_serve(name, str(value))
        self.check_soon(stream)

    # -- acting --------------------------------------------------------------------------------------------------

    async def _keep_sending(self) -> None:
        """Send heartbeats, whatever else waits for an answer: it must not make us look gone."""
        while True:
            self._send_heartbeat()
            self._check_is_due.set()
            # Alone, nobody can be gone.
            interval = DIVISION_CHECK_INTERVAL_SECONDS if self._leases.count > 1 else HEARTBEAT_INTERVAL_NS / SECOND
            now = self._loop.time()
            await asyncio.sleep(next_multiple(now, interval) - now)

    async def _keep_dividing(self) -> None:
        while True:
            self._check_is_due.clear()
            judging = self._judgement.check(self._served.by_key(), self._served.take_changed())
            if self._concerns_all:
                self._send_heartbeat()
            gone = self._leases.discard_gone(self._clock.monotonic())
            for name, is_absent in gone.items():
                self._reporter.instance_lost(name, self._leases.alive, is_absent=is_absent)
            works: list[Work] = [partial(self._divide, *each) for each in await self._to_divide()]
            works += [partial(self._quietly, work) for work in judging]
            await in_turn([*works, *(partial(self._quietly, partial(self._remove_key, name)) for name in gone)])
            await self._check_is_due.wait()

    async def _to_divide(self) -> list[tuple[str, StreamService]]:
        """Return the streams whose record should change, or of which we should hold other shards.

        Those with the earliest fires come first: if an instance with a thousand streams is gone, it takes a second or
        more to take over all of them, and those that have nothing to fire meanwhile can wait.
        """
        found, keys = [], self._served.by_key()
        left = {one.key: one.state for one in self._left.values()}
        if self._are_all_known:
            self._leases.readers.has_one_stream = len(keys) + len(left) == 1
        for number, key in enumerate(self._to_check({**left, **keys} if left else keys), 1):
            if number % MIN_STREAMS_PER_CHECK == 0:
                await asyncio.sleep(0)  # fires go first
            if key in keys:
                self._give_up_or_keep(key, keys[key])
            elif self._leases.reads(key, left[key].subjects, self._clock.monotonic(), is_reading=False):
                self.decide(left[key].name)
            if key in keys and self._is_to_divide(key, keys[key], self._clock.monotonic()):
                found.append((key, keys[key]))
        return sorted(found, key=lambda each: each[1].engine.urgency)

    def _give_up_or_keep(self, key: str, service: StreamService) -> None:
        """Note whether a stream that we read is left to others, and have it left once all of it is handed over."""
        given_up = self._leases.given_up
        if self._leases.reads(key, service.state.subjects, self._clock.monotonic(), is_reading=True):
            given_up.discard(key)
        elif key not in given_up:
            given_up.add(key)
            self._concerned.add(key)
        elif not self.reads(key, is_reading=True):
            self.decide(service.state.name)

    def _is_to_divide(self, key: str, service: StreamService, now: int) -> bool:
        if self._leases.change(key, now) is not None or self._leases.to_fire(key, now) != service.shards:
            return True
        on_trial = self._ability.on_trial(key, now)
        return bool(on_trial or service.on_trial) and on_trial - self._leases.held(key) != service.on_trial

    def _to_check(self, keys: Mapping[str, object]) -> list[str]:
        """Return the streams that a change concerns, and some of the others."""
        outlook = self._leases.outlook(self._clock.monotonic())
        if self._concerns_all or outlook != self._outlook or not self._ability.is_flawless:
            self._outlook, self._concerns_all = outlook, False
            self._concerned.clear()
            return list(keys)
        concerned, self._concerned = self._concerned, set()
        first, number = self._next_checked, max(MIN_STREAMS_PER_CHECK, len(keys) // CHECKS_PER_ROUND)
        self._next_checked = first + number if first + number < len(keys) else 0
        return list({**dict.fromkeys(islice(keys, first, first + number)), **dict.fromkeys(concerned & keys.keys())})

    def _send_heartbeat(self) -> None:
        if self._leases.is_leaving:
            return
        now, keys = self._clock.monotonic(), self._served.by_key()
        serves = self._leases.able(self._served.live(), now).intersection(keys)
        unable = dict(islice(self._ability.unable.items(), MAX_UNABLE_STREAMS_SENT))
        is_news = serves != self._leases.serves
        reading = keys.keys() - serves - self._leases.given_up if len(serves) < len(keys) else frozenset()
        about: Object = {"reading": _named(reading) or []} | ({"ending": True} if self._leases.is_ending else {})
        about |= {"unable": unable} if unable else {}
        self._note_held()
        about |= {"surplus": sorted(surplus)} if (surplus := self._leases.readers.surplus) else {}
        is_sent = not is_news and about == self._sent_about
        if self._sent_at is not None and now - self._sent_at < MIN_HEARTBEAT_PAUSE_NS and is_sent:
            return
        if is_news:
            self._concerned |= serves ^ self._leases.serves
            self._named = _named(serves)
            self._leases.serves = serves
            if self._named is None:
                self._leases.readers.read_all()
        self._sent_at, self._sent_about = now, about
        self._leases.since = self._leases.since or self._clock.now()
        since, received = format_rfc3339(self._leases.since), self._last_received
        said: Object = {"serves": self._named, "since": since, "last_received": received, **about}
        if (room := self._leases.readers.room) is not None:
            said["room"] = room
        self._registry.send(f"{INSTANCE}{self._leases.me}", said)

    async def _divide(self, key: str, service: StreamService) -> None:
        """Change the record of a stream and what we hold of it, as needed; a failure is retried at the next check."""
        if not await self._quietly(partial(self._divide_once, key, service)):
            self._concerned.add(key)

    async def _divide_once(self, key: str, service: StreamService) -> bool:
        holders = self._leases.change(key, self._clock.monotonic())
        is_done = holders is None or self._leases.is_leaving or await self._record(key, holders)
        held, before = self._leases.to_fire(key, self._clock.monotonic()), service.shards
        on_trial = self._ability.on_trial(key, self._clock.monotonic()) - self._leases.held(key)
        service.fires_on_trial(on_trial)
        if held == before or self._leases.is_leaving:
            return is_done
        if not await service.hold(held, self._registry, self._api):
            return False
        self._reporter.shards_changed(service.state.name, len(held), len(held - before), len(before - held))
        return is_done

    async def _remove_key(self, name: str) -> None:
        async with _within_limit():
            await self._registry.purge(f"{INSTANCE}{name}")

    async def _record(self, key: str, holders: Holders) -> bool:
        async with _within_limit():
            known = self._leases.record(key).revision
            revision = await self._registry.swap(f"{LEASE}{key}", value_of(holders), known)
            if revision is None:
                await self._read_record(key, known)
                return False
        self._leases.recorded(key, Record(holders, revision))
        return True

    async def _read_record(self, key: str, known: int) -> None:
        """Take what is stored as the record: what was received may be of another bucket, with higher revisions."""
        try:
            value, revision = await self._registry.revised(f"{LEASE}{key}")
        except UnknownFormatError:
            return  # it is delivered to us, too, and decides
        if self._leases.record(key).revision == known:
            self._leases.looked_up(key, record_of(value, revision))

    async def _hand_over(self, key: str) -> None:
        for _ in range(MAX_HANDOVER_ATTEMPTS):
            holders = self._leases.change(key, self._clock.monotonic())
            if holders is None or await self._record(key, holders):
                return

    async def _quietly(self, work: Work) -> bool:
        """Do work that is retried anyway; returns False if it failed or returned False itself."""
        try:
            return await work() is not False
        except JetStreamError as error:
            if not isinstance(error, ConnectionLostError):
                self._reporter.problem("lease_update_failed", reason=str(error))
            return False


@asynccontextmanager
async def _within_limit() -> AsyncIterator[None]:
    """Wait for an answer no longer than `BUCKET_WRITE_LIMIT_SECONDS`; raises `NoAnswerError`."""
    try:
        async with asyncio.timeout(BUCKET_WRITE_LIMIT_SECONDS):
            yield
    except TimeoutError:
        raise NoAnswerError(f"no answer within {BUCKET_WRITE_LIMIT_SECONDS} s") from None


def number_in(heartbeat: Object, key: str) -> int | None:
    """Return a number that a heartbeat names; None if it names none."""
    return number if type(number := heartbeat.get(key)) is int else None


def _names_in(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _named(serves: Set[str]) -> list[str] | None:
    """Return the names of streams as a heartbeat contains them, None if they are too many."""
    return sorted(serves) if len(json.dumps(list(serves))) <= MAX_SERVED_NAMES_BYTES else None
