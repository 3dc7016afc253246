"""The sidecar: connect, serve, and if the connection is lost do it again, for as long as it takes.

Only `stop` ends it, after everything in flight is finished.
What is wrong from the start (a stream file, an address) is raised before the first connection.
"""

import asyncio
import random
import secrets
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from nats_scheduler.control.errors import NotConnectedError, SchedulerError
from nats_scheduler.engine.events import FireRefused
from nats_scheduler.engine.ownership.order import Order
from nats_scheduler.engine.ownership.owners import Owners
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.denials import Denial
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.jetstream.request_watch import SIDECAR_INBOX
from nats_scheduler.jetstream.task_group import in_turn
from nats_scheduler.message.rejection import MAX_KEPT_CHARS
from nats_scheduler.observe.activity import SAMPLE_LEAD_NS, Activity, minute_of
from nats_scheduler.observe.canary_record import CanaryRecord
from nats_scheduler.observe.gauges import StreamFigures
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.account import Account
from nats_scheduler.runtime.asked import Examinable, Examine, asked_sidecar, examine_nothing
from nats_scheduler.runtime.canary import Canary
from nats_scheduler.runtime.clock import Clock, thread_seconds
from nats_scheduler.runtime.consumption import Consumption
from nats_scheduler.runtime.data_folder import ClaimedFolder, boot_id, claim, default_folder
from nats_scheduler.runtime.failure_keeping import FailureKeeping
from nats_scheduler.runtime.file_check import check
from nats_scheduler.runtime.file_streams import FileStreams
from nats_scheduler.runtime.leftovers import Leftovers
from nats_scheduler.runtime.schedule_file import ScheduleFile
from nats_scheduler.runtime.served_streams import StreamServices
from nats_scheduler.runtime.server_clock import ServerClock
from nats_scheduler.runtime.server_port import Bucket
from nats_scheduler.runtime.shared import kept_settings, shared_failures
from nats_scheduler.runtime.silent_schedules import SilentSchedules
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.runtime.this_instance import Instances
from nats_scheduler.runtime.unserved import UnservedStreams
from nats_scheduler.runtime.wakes import Standstill
from nats_scheduler.runtime.work import kept_up
from nats_scheduler.schedule.instants import MINUTE, SECOND
from nats_scheduler.service.endpoints import serve
from nats_scheduler.service.last_examination import Examination, Examinations
from nats_scheduler.service.micro import UNAVAILABLE, ServiceError
from nats_scheduler.service.turns import Turns
from nats_scheduler.settings.json_files import read_streams_folder
from nats_scheduler.settings.sidecar_settings import SidecarSettings

CLOCK_CHECK_INTERVAL_SECONDS = 5.0
"""Longest wait until it is checked whether a minute has begun: the clock may have been set."""


async def keep_sampling(activity: Activity, clock: Clock) -> None:
    """Take a sample for each minute, just before it begins, until cancelled; the first one at once."""
    sampled: int | None = None
    while True:
        if (minute := minute_of(clock.now())) != sampled:
            sampled = minute
            for _ in activity.sample(clock.now):
                await asyncio.sleep(0)
        left = MINUTE - (clock.now() + SAMPLE_LEAD_NS) % MINUTE
        await asyncio.sleep(min(left / SECOND, CLOCK_CHECK_INTERVAL_SECONDS))


LAST_CHECKPOINTS_LIMIT_SECONDS = 1.5
"""Longest wait at the end for the checkpoints to be written: nothing fires meanwhile, and *Live* leaves 3 s.

They save the next owner work, but that one reads the stream anyway.
"""


async def leave(
    services: Sequence[StreamService], instances: Instances | None, registry: Bucket, within_seconds: float
) -> bool:
    """Hand over, finish what is in flight, write checkpoints; False if it could not be finished within the time.

    The sidecar fires until what it owns is handed over, or until that gets no answer: if it stopped first and waited
    for the bucket then, nothing would fire meanwhile. Without `instances` there is none to hand over to.
    """
    if instances is not None:
        await instances.leave()
    finished = await asyncio.gather(*(service.drain(within_seconds) for service in services))
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_CHECKPOINTS_LIMIT_SECONDS):
            await in_turn([partial(service.write_checkpoint, registry) for service in services])
    return all(finished)


REPORT_INTERVAL_NS = 30 * SECOND
"""The interval (ns) at which a reason that lasts is reported."""

MAX_REASONS_NOTED = 64
"""The most reported reasons that are noted: there may be any number of them."""

SoFar = dict[str, float | int]
"""For how many `seconds` it has lasted, and how many `attempts` failed; empty if there is nothing to report yet."""


class Outage:
    """From the loss of the connection, or the start of the process, until the streams can be served.

    One reason is reported at once, and again every `REPORT_INTERVAL_NS` while it lasts, however many attempts fail
    meanwhile: the log shows that it lasts, and is not flooded.
    """

    def __init__(self, monotonic: Callable[[], int]) -> None:
        """Begin; `monotonic` gives instants (ns) of a clock that is never set."""
        self._monotonic = monotonic
        self._since: int | None = monotonic()
        self._attempts = 0
        self._reported_at: dict[tuple[str, str], int] = {}

    def begins(self) -> None:
        """Note that no server serves us; within an outage nothing changes."""
        if self._since is None:
            self._since = self._monotonic()

    def failed(self, action: str, reason: str) -> SoFar | None:
        """Note a failed attempt, and return what to report besides the reason; None if it was reported recently."""
        self.begins()
        self._attempts += 1
        now, key = self._monotonic(), (action, reason)
        if key in self._reported_at and now - self._reported_at[key] < REPORT_INTERVAL_NS:
            return None
        if len(self._reported_at) >= MAX_REASONS_NOTED:
            self._reported_at.clear()
        self._reported_at[key] = now
        return self._so_far(now) if self._attempts > 1 else {}

    def over(self) -> SoFar:
        """Note that it is over, and return what to report about it."""
        lasted = self._so_far(self._monotonic()) if self._attempts else {}
        self._since, self._attempts = None, 0
        self._reported_at.clear()
        return lasted

    def _so_far(self, now: int) -> SoFar:
        lasted = 0 if self._since is None else now - self._since
        return {"seconds": round(lasted / SECOND, 3), "attempts": self._attempts}


RECONNECT_WAITS_SECONDS = (0.05, 0.1, 0.25, 0.5)
"""Waits between passes over the servers; the last one repeats. *Live* promises fires 3 s after the fault heals."""

SENDING_STANDSTILL_LIMIT_NS = 5 * SECOND
"""After a standstill of the process of this length (ns), what waited to be sent is not sent any more.

Other instances may have fired it meanwhile, and after the duplicate window the server would store it again.
"""

MAX_DENIALS_NOTED = 256
"""The most missing permissions that are noted, so that each is reported once."""


class Sidecar:
    """One sidecar for one account."""

    def __init__(
        self, settings: SidecarSettings, clock: Clock, reporter: Reporter, examine: Examine = examine_nothing
    ) -> None:
        """Serve nothing yet; `examine` is the doctor that the micro service asks."""
        self._settings = settings
        self._machine_clock = clock
        self._clock = ServerClock(clock)
        self._examine = examine
        self._examinations = Examinations(clock.monotonic, partial(reporter.defect, "request_failed"))
        self._reporter = reporter
        reporter.late_after = settings.late_after
        reporter.lateness_budget = settings.most_budget
        self._file = ScheduleFile(clock, reporter.file_lost)
        self._services = StreamServices(settings, self._clock, reporter.report, reporter.loop_sampled, self._file)
        self.serving = asyncio.Event()
        """Set while the account is watched and its streams are known."""
        self.connection: Connection | None = None
        """The current connection."""
        self._owners = Owners(secrets.token_hex(6), order=Order(settings.standbys))
        failures = shared_failures(self._owners.me, lambda: {one.key: one.engine for one in self.served.values()})
        reporter.listen(failures.changed, FireRefused)
        self._shared = failures, kept_settings(self._owners.me, settings)
        self._keeping = FailureKeeping(settings, reporter)
        turns = Turns(self._services, self._file.views)
        self._consumption = Consumption(self.served, self._clock.now, reporter, turns)
        self._silent = SilentSchedules(self.served, self._clock.now, reporter.report, turns)
        self._unserved = UnservedStreams(reporter)
        self._stopping = asyncio.Event()
        self._files = FileStreams((), reporter)
        self._denials: set[Denial] = set()
        self._outage = Outage(clock.monotonic)
        self._defects = Outage(clock.monotonic)
        """Errors of the sidecar itself; a connection in between does not end this outage."""
        self._connected_version = ""
        """The version of the server of the current or last connection."""
        interval = settings.canary_interval
        self._canary_record = None if interval is None else CanaryRecord(interval, clock.monotonic)
        reporter.show(self, self._canary_record)
        self._canary = (
            None
            if self._canary_record is None
            else Canary(settings, self._owners.me, self._services, self._clock, reporter, self._canary_record)
        )

    @property
    def served(self) -> Mapping[str, StreamService]:
        """The services of the streams that are served at the moment, by name."""
        return self._services.by_name

    @property
    def instance(self) -> str:
        """The id of this instance, among those of the account and in the micro service."""
        return self._owners.me

    def stop(self) -> None:
        """Begin to end: nothing new is started, what is in flight is finished, then `run` returns."""
        self._stopping.set()

    def not_ready(self) -> list[str]:
        """Return why not all schedules fire at this moment; empty if they do."""
        if self._stopping.is_set():
            return ["the sidecar is ending: it starts no fires any more"]
        if self.connection is None:
            return ["there is no connection to a server"]
        if not self.serving.is_set():
            return ["the streams of the account are not known yet"]
        found = [self._why_not_ready(name, one) for name, one in self.served.items()]
        found += [self._unowned(name, one.key) for name, one in self._services.left.items()]
        reasons = [reason for reason in found if reason]
        return reasons if self._canary_record is None else [*reasons, *self._canary_record.not_ready()]

    def notes(self) -> list[str]:
        """Return what an operator should know although the sidecar is ready."""
        return self._unserved.notes()

    def _why_not_ready(self, name: str, service: StreamService) -> str:
        """Return why not all schedules of a stream fire at this moment; "" if they do."""
        if not service.is_ready:
            return f"stream {name} is not read to its end"
        if unowned := self._unowned(name, service.key):
            return unowned
        if self._owners.is_owner(service.key) and not service.is_owner:
            return f"stream {name} is not taken over yet"
        return ""

    def _unowned(self, name: str, key: str) -> str:
        is_unowned = self._owners.is_unowned(key, self._clock.monotonic())
        return f"no instance owns stream {name}" if is_unowned else ""

    # -- what the metrics read in the thread of a scrape: copies or single values, and nothing waits ---------------

    def streams(self) -> Sequence[StreamFigures]:
        """Return the streams that are served."""
        now = self._clock.now()
        return [
            StreamFigures(one.state.name, str(one.mode), one.is_ready, one.engine.figures(now), now)
            for one in list(self.served.values())
        ]

    def unable(self) -> int:
        """Return how many of them this instance cannot serve."""
        ability = self._owners.ability
        return sum(not ability.can_serve(one.key) for one in list(self.served.values()))

    def clock_offset(self) -> int | None:
        """Return the server's clock minus this machine's (ns), None before a server has reported its time."""
        if not self._clock.is_set:
            return None
        before, server, after = self._machine_clock.now(), self._clock.now(), self._machine_clock.now()
        return server - (before + after) // 2

    def server_version(self) -> str:
        """Return the version of the server of the current or last connection, empty before the first."""
        return self._connected_version

    # -- its life ------------------------------------------------------------------------------------------------

    async def run(self) -> bool:
        """Serve until stopped; returns whether everything that was in flight could be finished."""
        dialer = Dialer(self._settings.connection, SIDECAR_INBOX)
        folder = self._settings.streams_folder
        self._files = FileStreams(read_streams_folder(folder) if folder is not None else [], self._reporter)
        claimed = self._open_file()
        writing = asyncio.create_task(self._file.keep_writing())
        checking = asyncio.create_task(check(self._file))
        try:
            return await self._serve_until_stopped(dialer)
        finally:
            await _ended(checking)
            await _ended(writing)
            self._file.close()
            if claimed is not None:
                claimed.close()

    def _open_file(self) -> ClaimedFolder | None:
        """Have the schedules in a file, if that is possible; returns the folder of it."""
        folder = self._settings.data or default_folder(self._settings)
        claimed = claim(folder)
        if isinstance(claimed, str):
            self._reporter.data_folder_unusable(folder, claimed)
            return None
        try:
            removed = self._file.open(claimed.path, boot_id())
        except (sqlite3.Error, OSError) as error:
            claimed.close()
            self._reporter.data_folder_unusable(folder, str(error))
            return None
        self._reporter.data_folder(folder)
        if removed:
            self._reporter.file_removed(folder, removed)
        return claimed

    async def _serve_until_stopped(self, dialer: Dialer) -> bool:
        clean = True
        while not self._stopping.is_set():
            try:
                clean = await self._serve_once(dialer)
            except Exception as error:  # of any kind: as long as the process runs, it serves
                clean = False
                if self._defects.failed("sidecar_failed", repr(error)) is not None:
                    self._reporter.defect("sidecar_failed", error)
                await self._unless_stopping(RECONNECT_WAITS_SECONDS[-1])
        return clean

    async def _serve_once(self, dialer: Dialer) -> bool:
        """Serve through one connection; returns whether everything in flight that is ours was finished."""
        connection = await self._connect(dialer)
        return self._is_finished if connection is None else await self._serve(connection)

    @property
    def _is_finished(self) -> bool:
        return all(service.is_finished for service in self.served.values())

    async def _connect(self, dialer: Dialer) -> Connection | None:
        """Return a connection, however long it takes; None if we are stopped before."""
        attempt = 0
        while not self._stopping.is_set():
            try:
                return await dialer.dial()
            except NotConnectedError as error:
                self._setback("connect_failed", error)
            wait = RECONNECT_WAITS_SECONDS[min(attempt, len(RECONNECT_WAITS_SECONDS) - 1)]
            attempt += 1
            await self._unless_stopping(wait * random.uniform(0.5, 1.0))  # noqa: S311 - jitter is no secret
        return None

    async def _serve(self, connection: Connection) -> bool:
        account = Account(
            connection, self._settings, self._clock, self._reporter, self._services, self._owners, self._unserved
        )
        self._keeping.begin(connection)
        self.connection = connection
        connection.when_denied(self._denied)
        standstill = Standstill(self._clock.monotonic, self._clock.monotonic)
        connection.end_when(lambda: _stood_still(standstill.gap()))
        try:
            await account.prepare()
            self._connected_version = version = account.access.server.version
            self._reporter.connected(
                connection.url, connection.server.name, version, self._clock.now(), **self._outage.over()
            )
            return await self._until_over(account)
        except SchedulerError as error:
            self._setback("jetstream_unavailable", error)
            await self._unless_stopping(RECONNECT_WAITS_SECONDS[-1])
            return self._is_finished
        finally:
            self.serving.clear()
            self.connection = None
            self._outage.begins()
            self._reporter.disconnected()
            await connection.close()

    def _setback(self, action: str, error: SchedulerError) -> None:
        """Report why no server serves us, unless that was reported recently."""
        if (so_far := self._outage.failed(action, str(error))) is not None:
            self._reporter.problem(action, reason=str(error), **so_far)

    def _denied(self, denied: Denial) -> None:
        denial = denied.permission
        if denial in self._denials or self._unserved.is_looking_at(denial.subject):
            return
        if len(self._denials) < MAX_DENIALS_NOTED:
            self._denials.add(denial)
        operation = "publish" if denial.publishes else "subscribe"
        self._reporter.problem("permission_denied", operation=operation, subject=denial.subject[:MAX_KEPT_CHARS])

    async def _until_over(self, account: Account) -> bool:
        """Serve until the connection is lost or we are stopped; then drain what can be drained."""
        serving = asyncio.create_task(account.serve(self._files, self.serving))
        access = account.access
        connection, registry = access.connection, access.registry
        leftovers = Leftovers(self._owners, registry, access.api, self._clock, self.served)
        activity = self._reporter.activity
        examination = partial(self._examination, access)
        asked = asked_sidecar(
            access,
            self._owners,
            self._services,
            self.not_ready,
            self.notes,
            self._clock,
            activity,
            examination,
            self._stopping.is_set,
        )
        failed = partial(self._reporter.defect, "request_failed")
        answering = partial(serve, asked, failed, self._reporter.requests_limited, thread_seconds)
        works: list[Callable[[], Awaitable[None]]] = [
            *(partial(entry.keep, registry) for entry in self._shared),
            leftovers.keep_removing,
            partial(self._keeping.keep, access),
            partial(self._consumption.keep_checking, access),
            self._silent.keep_checking,
        ]
        works += [answering, partial(keep_sampling, activity, self._clock)] if self._settings.service else []
        if self._canary is not None:
            works.append(partial(self._canary.keep_firing, access))  # the last one: see below
        asides = [asyncio.create_task(kept_up(work, self._reporter)) for work in works]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((serving, stopping, connection.lost), return_when=asyncio.FIRST_COMPLETED)
            if connection.is_lost:
                self._denials.clear()
                self._reporter.problem("connection_lost", reason=connection.lost.result())
                return self._is_finished
            if self._stopping.is_set():
                is_clean = await self._drain(account)
                if self._canary is not None:
                    await _ended(asides.pop())
                    await self._canary.leave(access, is_last=not self._owners.others)
                await leftovers.remove_own()
                return is_clean
            return True
        finally:
            stopping.cancel()
            for task in (*asides, serving):
                await _ended(task)

    async def _examination(self, access: Access, turns: Turns) -> Examination:
        """Return what the doctor finds; raises `ServiceError` if it cannot be examined now."""
        if not self.serving.is_set():
            raise ServiceError(UNAVAILABLE, "the streams of the account are not known yet: ask again")
        now, machine_now = self._clock.now, self._machine_clock.now
        examinable = Examinable(
            self.instance,
            access,
            self.served,
            self._services.left,
            self._unserved.subjects,
            self._denials,
            now,
            machine_now,
        )
        return await self._examinations.latest(lambda: self._examine(examinable, turns))

    async def _drain(self, account: Account) -> bool:
        services, within = list(self.served.values()), self._settings.drain_timeout / SECOND
        registry = account.access.registry
        clean = await leave(services, account.instances, registry, within)
        self._file.write_all()
        for entry in self._shared:
            await entry.remove(registry)
        return clean

    async def _unless_stopping(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return


def _stood_still(gap: int) -> str:
    return f"the process stood still for {gap / SECOND:.1f} s" if gap > SENDING_STANDSTILL_LIMIT_NS else ""


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end; an error that it ended with is raised here."""
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return
