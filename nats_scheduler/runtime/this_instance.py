"""This instance among the others of its account: exchange heartbeats, and own our streams or stand by for them.

The policy is `engine.ownership`. Here it is carried out, through the bucket of the registry:
`instance.<id>` is written twice a second and names the streams that the instance serves, since when it runs, and up to
when (by the server's clock) it has received what was written. `reading` and `ending` of it say what it is about to
serve, and that it is about to leave.
`owner.<mode>.<stream>` names the owner of a stream and is changed by compare-and-set.

The rules:

- An instance serves a stream from when it has read it, so that only an instance that is ready becomes its owner.
- Nothing here stops a fire: a bucket that is away is waited for, one that was deleted is created again, and meanwhile
  every instance continues with what it owns.
- What a newer version wrote in a format of its own is left as it is: an instance whose heartbeat cannot be read is
  alive and serves nothing for us, and a stream whose record cannot be read is left to the others.
- Any client may write there. What no instance can have written is no heartbeat and names no owner, and what is noted
  of all that is bounded.

Cost: two messages a second for each instance, and each instance receives all of them.
A stream is checked if something was received that concerns it, and otherwise once in `CHECKS_PER_ROUND` checks.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Set
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from types import MappingProxyType

from nats_scheduler.control.errors import (
    ConnectionLostError,
    DeadlineError,
    ForbiddenError,
    SchedulerError,
)
from nats_scheduler.engine.ownership.owners import (
    GONE_AFTER_NS,
    HEARTBEAT_INTERVAL_NS,
    NO_OWNER,
    OwnerChange,
    Owners,
    Reason,
    Record,
)
from nats_scheduler.jetstream.registry import Delivered
from nats_scheduler.jetstream.task_group import TaskGroup, Work, in_turn
from nats_scheduler.jetstream.value_formats import UnknownFormatError
from nats_scheduler.message.foreign_json import Object, inner, time_of
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.instance_judgement import Judgement
from nats_scheduler.runtime.server_port import Bucket, StreamInformation
from nats_scheduler.runtime.stream_service import LeftStream, StreamService
from nats_scheduler.runtime.work import CHANGE_CHECK_WAITS_SECONDS, RETRY_WAIT_LIMIT_SECONDS
from nats_scheduler.schedule.instants import SECOND, next_multiple
from nats_scheduler.schedule.rfc3339 import format_rfc3339

REASONS = frozenset(map(str, Reason))

MAX_NAME_CHARS = 64
"""The longest name of an instance; one that is longer is none."""


def record_of(value: Delivered, revision: int) -> Record:
    """Read the record of a stream in the registry's bucket: which instance owns it, since when, and why.

    Any client may write there, so a stream has no owner if no instance can have written what is there. A record of a
    newer version is known to exist, and nothing else of it.
    """
    if isinstance(value, UnknownFormatError):
        return Record(revision=revision, is_foreign=True)
    given = value or {}
    reason = given.get("reason")
    return Record(
        owner=_instance_in(given.get("owner")),
        since=time_of(given.get("since")) or 0,
        before=_instance_in(given.get("before")),
        reason=Reason(reason) if isinstance(reason, str) and reason in REASONS else Reason.FIRST,
        revision=revision,
    )


def value_of(record: Record) -> Object:
    """Write a record."""
    since = format_rfc3339(record.since)
    return {"owner": record.owner, "since": since, "before": record.before, "reason": str(record.reason)}


def is_instance_name(name: str) -> bool:
    """Return whether an instance can have this name."""
    return 0 < len(name) <= MAX_NAME_CHARS


def _instance_in(value: object) -> str:
    return value if isinstance(value, str) and is_instance_name(value) else NO_OWNER


class ServicesByKey:
    """The services by the keys that streams have among instances, and which changed since they were last checked.

    Periodic checks visit the streams of which something changed that concerns instances: whether all of it is read,
    what was denied, whether its owner fires. A driver notifies after each step that changed any of it, and after one
    that failed; a stream that only fires costs nothing here.
    If any stream came, went, or got a new engine, all are checked once more.
    """

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


CHECK_INTERVAL_SECONDS = 0.25
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

MAX_UNREADABLE_NOTED = 1_000
"""The most values of unknown formats that are noted and reported; any client may write more."""

INSTANCE = "instance."
OWNER = "owner."


class Instances:
    """This instance among the others, on one connection."""

    def __init__(
        self,
        owners: Owners,
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
        self._owners = owners
        self._ability = owners.ability
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
        self._deletion_requested = asyncio.Event()
        self._knows_others = asyncio.Event()
        """Set when a heartbeat of our own was received."""
        self._check_is_due = asyncio.Event()
        self._concerned: set[str] = set()
        """The streams about which something was received."""
        self._concerns_all = True
        self._outlook: Hashable = None
        """All that was known of the instances at the last check of all streams."""
        self._next_checked = 0
        self._served = ServicesByKey(services)
        self._named = _named(owners.serves)
        """The names of what we serve, as a heartbeat contains them."""
        self._judgement = Judgement(owners.ability, owners.judge_owner, api, clock, reporter)
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
        """Check at once who is to own a stream (None: each stream), because something about it changed."""
        if key is None:
            self._concerns_all = True
        else:
            self._concerned.add(key)
        self._check_is_due.set()

    def bucket_deletion_requested(self) -> None:
        """Look whether the bucket is deleted: another client asked for it."""
        self._deletion_requested.set()

    async def know_others(self) -> None:
        """Wait until a heartbeat of our own was received, `FIRST_HEARTBEAT_LIMIT_NS` at most: then we know the others.

        So sidecars that start together do not all begin to read each stream.
        """
        if wait := self._owners.awaits_others(self._clock.monotonic()):
            with suppress(TimeoutError):
                async with asyncio.timeout(wait / SECOND):
                    await self._knows_others.wait()

    def reads(self, key: str, *, is_reading: bool) -> bool:
        """Return whether a stream is to be read here. One that is read is left once it is handed over."""
        given_up = self._owners.given_up
        if not is_reading:
            given_up.discard(key)
            return self._owners.reads(key, self._clock.monotonic(), is_reading=False)
        service = self._served.by_key().get(key)
        return key not in given_up or (service is not None and (service.is_owner or self._owners.is_owner(key)))

    async def may_end_reading(self, key: str) -> bool:
        """Wait until a stream that was handed over may be left; False if it is ours again: the next one is gone."""
        service = self._served.by_key().get(key)
        if service is not None and service.engine.is_live:  # what is not read yet is no loss
            await asyncio.sleep(GONE_AFTER_NS / SECOND + CHECK_INTERVAL_SECONDS)
        return not self.reads(key, is_reading=True)

    async def take_part(self) -> None:
        """Receive, send and check who owns what, until cancelled, or until the connection is lost."""
        self._ability.reconnected(self._clock.monotonic())
        async with TaskGroup() as tasks:
            tasks.create_task(self._keep_receiving())
            tasks.create_task(self._keep_sending())
            tasks.create_task(self._keep_asking())
            tasks.create_task(self._keep_checking())

    async def leave(self) -> None:
        """Hand over everything that we own, and report that we are gone; before that, others read what only we do."""
        self._owners.is_ending = True
        with suppress(TimeoutError):
            async with asyncio.timeout(SUCCESSORS_LIMIT_SECONDS):
                while not all(map(self._owners.has_successor, self._owners.serves)):
                    self._send_heartbeat()
                    await asyncio.sleep(SUCCESSORS_CHECK_INTERVAL_SECONDS)
        self._owners.is_leaving = True
        try:
            await in_turn([partial(self._hand_over, key) for key in self._served.by_key()])
        except SchedulerError as error:
            self._reporter.problem("handover_failed", reason=str(error))
        self._registry.mark_deleted(f"{INSTANCE}{self._owners.me}")
        for key, service in self._served.by_key().items():
            service.handed_over(self._owners.record(key).owner not in (NO_OWNER, self._owners.me))

    # -- receiving -----------------------------------------------------------------------------------------------

    async def _keep_receiving(self) -> None:
        wait = CHECK_INTERVAL_SECONDS
        while True:
            self._owners.listening_anew()
            self._sent_at = self._last_received = None
            self.check_soon()
            reason = await self._receive_all()
            if reason is None:
                return
            wait = (
                CHECK_INTERVAL_SECONDS if reason else min(2 * wait, RETRY_WAIT_LIMIT_SECONDS)
            )  # a permission may come
            try:
                before = self._registry.created
                is_new = await self._registry.open()
                if is_new or before not in ("", self._registry.created):
                    self._reporter.problem("registry_recreated", reason="the bucket of the registry was deleted")
                    await self._restore()
            except SchedulerError as error:
                reason = str(error)
            if reason:
                self._reporter.problem("heartbeats_not_received", reason=reason)
            await asyncio.sleep(wait)

    async def _receive_all(self) -> str | None:
        """Receive what is written into the bucket, for as long as our own heartbeats are among it.

        Returns why that ended: None if the connection was lost, "" if a permission is missing (reported elsewhere).
        """
        following = asyncio.create_task(self._registry.follow((f"{INSTANCE}*", f"{OWNER}>"), self._received))
        replaced = asyncio.create_task(self._bucket_replaced())
        ends = following, replaced
        try:
            silent = 0  # more than one check: after a standstill, the first one finds what is yet to be read
            while not (following.done() or replaced.done()) and silent < MAX_CHECKS_WITHOUT_HEARTBEAT:
                interval = OWN_HEARTBEAT_CHECK_INTERVAL_SECONDS
                await asyncio.wait(ends, timeout=interval, return_when=asyncio.FIRST_COMPLETED)
                silent = 0 if self._owners.is_receiving(self._clock.monotonic()) else silent + 1
        finally:
            for task in ends:
                task.cancel()
            await asyncio.wait(ends)
        if not replaced.cancelled() and following.cancelled():
            replaced.result()  # raises what nothing expects
            return "the bucket was deleted"
        if following.cancelled():
            waited = MAX_CHECKS_WITHOUT_HEARTBEAT * OWN_HEARTBEAT_CHECK_INTERVAL_SECONDS
            return f"not even our own heartbeat was received for {waited} s"
        error = following.exception()
        if error is not None and not isinstance(error, SchedulerError):
            raise error
        if isinstance(error, ForbiddenError):
            return ""
        return None if isinstance(error, ConnectionLostError) else str(error)

    async def _bucket_replaced(self) -> None:
        """Return when the bucket is gone, or another one, after a client asked to delete it.

        A server ends the consumers of a stream that is deleted, but does not tell each of them: 2.11 left one of three
        out once in 300 deletions.
        """
        if not self._registry.created:
            with suppress(SchedulerError):
                await self._registry.is_replaced()
        while True:
            await self._deletion_requested.wait()
            self._deletion_requested.clear()
            for wait in CHANGE_CHECK_WAITS_SECONDS:
                await asyncio.sleep(wait)
                with suppress(SchedulerError):
                    if await self._registry.is_replaced():
                        return

    def _received(self, key: str, value: Delivered, message: StoredMessage) -> None:
        self._last_received = message.stored_at
        if key.startswith(OWNER):
            self._record_received(key, value, message.sequence)
            return
        name, before = key.removeprefix(INSTANCE), self._owners.count
        if not is_instance_name(name):
            return
        if isinstance(value, UnknownFormatError):
            if self._is_news(key):
                self._registry.broken(key, str(value))
            value = SERVES_NOTHING
        if value is None:
            self._owners.left(name)
        else:
            serves = value.get("serves")
            named = _names_in(serves) if isinstance(serves, list) else None
            reading, is_ending = _names_in(value.get("reading")), value.get("ending") is True
            last_received, unable = number_in(value, "last_received"), inner(value.get("unable"))
            heartbeat = named, self._clock.monotonic(), message.stored_at, last_received, unable, reading
            if self._owners.received(name, *heartbeat, is_ending=is_ending):
                self.check_soon()
                before *= name != self._owners.me
        if name == self._owners.me:
            self._knows_others.set()
        self._await_heartbeat(name)
        if self._owners.count != before:
            self.check_soon()
        if self._owners.alive != self._reported_count and self._owners.is_receiving(self._clock.monotonic()):
            self._reported_count = self._owners.alive
            self._reporter.instances(self._reported_count)

    def _await_heartbeat(self, name: str) -> None:
        """Ask an instance whether it is there if no further heartbeat of it arrives in time."""
        if (awaited := self._awaited.pop(name, None)) is not None:
            awaited.cancel()
        wait = self._owners.ask_after(name, self._clock.monotonic())
        if wait is not None:
            self._awaited[name] = self._loop.call_later(wait / SECOND, self._late.put_nowait, name)

    async def _keep_asking(self) -> None:
        async with TaskGroup() as asking:
            while True:
                asking.create_task(self._ask(await self._late.get()))

    async def _ask(self, name: str) -> None:
        is_there = await self._is_there(name)
        if self._owners.asked(name, is_there, self._clock.monotonic()):
            self._await_heartbeat(name)
        if is_there is False:
            self._check_is_due.set()

    def _record_received(self, key: str, value: Delivered, revision: int) -> None:
        stream = key.removeprefix(OWNER)
        name = stream.partition(".")[2]
        self._owners.recorded(stream, record_of(value, revision))
        if not isinstance(value, UnknownFormatError):
            if key in self._unreadable:
                self._unreadable.remove(key)
                self._reporter.became_able(name)
        elif self._is_news(key):
            self._reporter.cannot_serve(name, str(value))
        self.check_soon(stream)

    def _is_news(self, key: str) -> bool:
        """Note a value in a format that we do not know; returns whether that is to be reported."""
        if key in self._unreadable or len(self._unreadable) >= MAX_UNREADABLE_NOTED:
            return False
        self._unreadable.add(key)
        return True

    # -- acting --------------------------------------------------------------------------------------------------

    async def _keep_sending(self) -> None:
        """Send heartbeats, whatever else waits for an answer: it must not make us look gone."""
        while True:
            self._send_heartbeat()
            self._check_is_due.set()
            # Alone, nobody can be gone.
            interval = CHECK_INTERVAL_SECONDS if self._owners.count > 1 else HEARTBEAT_INTERVAL_NS / SECOND
            now = self._loop.time()
            await asyncio.sleep(next_multiple(now, interval) - now)

    async def _keep_checking(self) -> None:
        while True:
            self._check_is_due.clear()
            judging = self._judgement.check(self._served.by_key(), self._served.take_changed())
            if self._concerns_all or not self._ability.is_flawless:
                self._send_heartbeat()  # what we cannot serve is handed back to us by those that do not know it
            gone = self._owners.discard_gone(self._clock.monotonic())
            for name, is_absent in gone.items():
                self._reporter.instance_lost(name, self._owners.alive, is_absent=is_absent)
            works: list[Work] = [partial(self._change, *each) for each in await self._to_change()]
            works += [partial(self._quietly, work) for work in judging]
            works += [partial(self._quietly, partial(self._remove_key, name)) for name in gone]
            await in_turn(works)
            await self._check_is_due.wait()

    async def _to_change(self) -> list[tuple[str, StreamService]]:
        """Return the streams whose record should change, or for which we should begin or cease to fire.

        Those with the earliest fires come first: if an instance with a thousand streams is gone, it takes a second or
        more to take over all of them, and those that have nothing to fire meanwhile can wait.
        """
        found, keys = [], self._served.by_key()
        left = {one.key: one.state for one in self._left.values()}
        for number, key in enumerate(self._to_check({**left, **keys} if left else keys), 1):
            if number % MIN_STREAMS_PER_CHECK == 0:
                await asyncio.sleep(0)  # fires go first
            if key in keys:
                self._give_up_or_keep(key, keys[key])
            elif self._owners.reads(key, self._clock.monotonic(), is_reading=False):
                self.decide(left[key].name)
            if key in keys and self._is_to_change(key, keys[key], self._clock.monotonic()):
                found.append((key, keys[key]))
        return sorted(found, key=lambda each: each[1].engine.urgency)

    def _give_up_or_keep(self, key: str, service: StreamService) -> None:
        """Note whether a stream that we read is left to others, and have it left once it is handed over."""
        given_up = self._owners.given_up
        if self._owners.reads(key, self._clock.monotonic(), is_reading=True):
            given_up.discard(key)
        elif key not in given_up:
            given_up.add(key)
            self._concerned.add(key)
        elif not self.reads(key, is_reading=True):
            self.decide(service.state.name)

    def _is_to_change(self, key: str, service: StreamService, now: int) -> bool:
        if self._owners.change(key, now) is not None or self._owners.fires(key, now) != service.is_owner:
            return True
        return (
            self._is_on_trial(key, now) != service.is_on_trial or self._owns(key, service) != service.is_reported_owner
        )

    def _owns(self, key: str, service: StreamService) -> bool:
        """Return whether we count as the owner of a stream: also while another client writes that nobody is."""
        now = self._clock.monotonic()
        return service.is_owner and (self._owners.is_owner(key) or self._owners.is_unowned(key, now))

    def _is_on_trial(self, key: str, now: int) -> bool:
        return self._ability.is_on_trial(key, now) and not self._owners.is_owner(key)

    def _to_check(self, keys: Mapping[str, object]) -> list[str]:
        """Return the streams that a change concerns, and some of the others."""
        outlook = self._owners.outlook(self._clock.monotonic())
        if self._concerns_all or outlook != self._outlook or not self._ability.is_flawless:
            self._outlook, self._concerns_all = outlook, False
            self._concerned.clear()
            return list(keys)
        concerned, self._concerned = self._concerned, set()
        first, number = self._next_checked, max(MIN_STREAMS_PER_CHECK, len(keys) // CHECKS_PER_ROUND)
        self._next_checked = first + number if first + number < len(keys) else 0
        return list({**dict.fromkeys(islice(keys, first, first + number)), **dict.fromkeys(concerned & keys.keys())})

    def _send_heartbeat(self) -> None:
        if self._owners.is_leaving:
            return
        now, keys = self._clock.monotonic(), self._served.by_key()
        serves = self._owners.able(self._served.live(), now).intersection(keys)
        unable = dict(islice(self._ability.unable.items(), MAX_UNABLE_STREAMS_SENT))
        is_news = serves != self._owners.serves
        reading = keys.keys() - serves - self._owners.given_up if len(serves) < len(keys) else frozenset()
        about: Object = {"reading": _named(reading) or []} | ({"ending": True} if self._owners.is_ending else {})
        about |= {"unable": unable} if unable else {}
        is_sent = not is_news and about == self._sent_about
        if self._sent_at is not None and now - self._sent_at < MIN_HEARTBEAT_PAUSE_NS and is_sent:
            return
        if is_news:
            self._concerned |= serves ^ self._owners.serves
            self._named = _named(serves)
            self._owners.serves = serves
            if self._named is None:
                self._owners.order.read_all()
        self._sent_at, self._sent_about = now, about
        self._owners.since = self._owners.since or self._clock.now()
        since, received = format_rfc3339(self._owners.since), self._last_received
        standbys = self._owners.order.standbys
        said: Object = {"serves": self._named, "since": since, "last_received": received, "standbys": standbys, **about}
        self._registry.send(f"{INSTANCE}{self._owners.me}", said)

    async def _change(self, key: str, service: StreamService) -> None:
        """Change the record of a stream, and whether we fire for it; a failure is retried at the next check."""
        if not await self._quietly(partial(self._change_once, key, service)):
            self._concerned.add(key)

    async def _change_once(self, key: str, service: StreamService) -> bool:
        change = self._owners.change(key, self._clock.monotonic())
        is_done = change is None or self._owners.is_leaving or await self._record(key, change)
        now = self._clock.monotonic()
        service.fires_on_trial(self._is_on_trial(key, now))
        fires = self._owners.fires(key, now)
        if self._owners.is_leaving:
            return is_done
        if fires != service.is_owner and not await service.own(fires, self._registry, self._api):
            return False
        self._report_owner(key, service)
        return is_done

    def _report_owner(self, key: str, service: StreamService) -> None:
        """Report once that a stream is ours, or not any more."""
        is_owner, record = self._owns(key, service), self._owners.record(key)
        if is_owner != service.is_reported_owner:
            service.is_reported_owner = is_owner
            name, owner = service.state.name, self._owners.me if is_owner else record.owner
            self._reporter.owner_changed(
                name, is_owner=is_owner, owner=owner, before=record.before, reason=str(record.reason)
            )

    async def _remove_key(self, name: str) -> None:
        async with _within_limit():
            await self._registry.purge(f"{INSTANCE}{name}")

    async def _record(self, key: str, change: OwnerChange) -> bool:
        """Write who owns a stream; returns False if another instance has written the record since."""
        async with _within_limit():
            known = self._owners.record(key)
            if change.owner == known.owner:
                record = known
            else:
                record = Record(change.owner, self._clock.now(), known.owner, change.reason)
            revision = await self._registry.swap(f"{OWNER}{key}", value_of(record), known.revision)
            if revision is None:
                await self._read_record(key, known.revision)
                return False
        self._owners.recorded(key, replace(record, revision=revision))
        return True

    async def _read_record(self, key: str, known: int) -> None:
        """Take what is stored as the record: what was received may be of another bucket, with higher revisions."""
        try:
            value, revision = await self._registry.revised(f"{OWNER}{key}")
        except UnknownFormatError:
            return  # it is delivered to us, too, and decides
        if self._owners.record(key).revision == known:
            self._owners.looked_up(key, record_of(value, revision))

    async def _hand_over(self, key: str) -> None:
        for _ in range(MAX_HANDOVER_ATTEMPTS):
            change = self._owners.change(key, self._clock.monotonic())
            if change is None or await self._record(key, change):
                return

    async def _quietly(self, work: Work) -> bool:
        """Do work that is retried anyway; returns False if it failed or returned False itself."""
        try:
            return await work() is not False
        except SchedulerError as error:
            if not isinstance(error, ConnectionLostError):
                self._reporter.problem("owner_update_failed", reason=str(error))
            return False


@asynccontextmanager
async def _within_limit() -> AsyncIterator[None]:
    """Wait for an answer no longer than `BUCKET_WRITE_LIMIT_SECONDS`; raises `DeadlineError`."""
    try:
        async with asyncio.timeout(BUCKET_WRITE_LIMIT_SECONDS):
            yield
    except TimeoutError:
        raise DeadlineError(f"no answer within {BUCKET_WRITE_LIMIT_SECONDS} s") from None


def number_in(heartbeat: Object, key: str) -> int | None:
    """Return a number that a heartbeat names; None if it names none."""
    return number if type(number := heartbeat.get(key)) is int else None


def _names_in(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _named(serves: Set[str]) -> list[str] | None:
    """Return the names of streams as a heartbeat contains them, None if they are too many."""
    return sorted(serves) if len(json.dumps(list(serves))) <= MAX_SERVED_NAMES_BYTES else None
