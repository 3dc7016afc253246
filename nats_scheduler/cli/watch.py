"""`nats-scheduler watch`: the fires of one stream or of all, and what goes wrong, as it happens.

Rule: a fire is shown when it is stored in its stream, whether a sidecar or the server fired it (`cli.fire_watch`). What
goes wrong is what the sidecars publish as advisories; one that repeats another (`KEYS`) is counted and not shown, since
several sidecars publish the same, and a schedule that is refused each second is one fault. Which streams are served
depends on the settings of the running sidecars, as for `ls`. Nothing is changed.
When the connection is lost, the watch goes on through the next one; fires that were stored meanwhile are shown then,
advisories that were published meanwhile are not.
Cost: the streams are read from their beginning, headers only, because a fire is understood by its schedule; then each
of their messages is delivered to this process.
Limit: on a stream with work queue or interest retention the server's own fires are not shown, and a warning says so.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import click

from nats_scheduler.cli.arguments import check_filter, check_stream, zone_option
from nats_scheduler.cli.completion import complete_stream
from nats_scheduler.cli.fire_watch import FireWatch, WatchedStream, fire_line, stream_line
from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import CommandError, Printer, print_warning
from nats_scheduler.cli.process import run_until, stop_on_signals
from nats_scheduler.cli.session import Session, open_session, with_sidecars
from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.message.advisory_messages import ADVISORY_PREFIX, SCHEDULE_CHANGED
from nats_scheduler.message.fires import StoredFire
from nats_scheduler.message.foreign_json import Object, read_object, server_time
from nats_scheduler.message.subjects import is_covered
from nats_scheduler.observe.texts import printable
from nats_scheduler.observe.times import moment_text
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.modes import EXPLANATIONS, Mode
from nats_scheduler.runtime.shared import SETTINGS
from nats_scheduler.schedule.instants import MINUTE
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.settings.load import ResolvedSettings

# -- advisories that repeat others -----------------------------------------------------------------------------------

SPAN_NS = MINUTE
"""The time for which advisories that repeat one that was shown are counted and not shown."""

MAX_ENTRIES = 10_000

MAX_VALUE_CHARS = 1_024
"""The most characters of a value that are kept: any client that may publish there can send longer ones."""

KEYS = ("type", "stream", "schedule", "subject", "seq", "header", "code", "instance", "key")
"""The keys of an advisory that say what it reports."""


@dataclass(slots=True)
class Repeated:
    """An advisory that was shown, and how many others reported the same."""

    about: Object
    """Its `KEYS`, shortened."""
    first_at: int
    times: int = 0


class Repetitions:
    """The advisories of the last minute; times are nanoseconds of a clock that only goes forward."""

    def __init__(self) -> None:
        self._entries: dict[bytes, Repeated] = {}
        """The oldest first."""

    def is_new(self, advisory: Object, now: int) -> bool:
        """Return whether an advisory reports something new; if not, count it. `take_over` ends spans before."""
        about = {key: advisory[key] for key in KEYS if key in advisory}
        name = hashlib.sha256(json.dumps(about).encode()).digest()
        found = self._entries.setdefault(name, Repeated(_shortened(about), now, times=-1))
        found.times += 1
        return found.times == 0

    def take_over(self, now: int | None = None) -> list[Repeated]:
        """Return what was repeated and is over, once; without a time, all that was repeated."""
        over = []
        while self._entries:
            name, oldest = next(iter(self._entries.items()))
            if now is not None and len(self._entries) <= MAX_ENTRIES and now - oldest.first_at < SPAN_NS:
                break
            del self._entries[name]
            over += [oldest] if oldest.times else []
        return over


def _shortened(about: Object) -> Object:
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in about.items()}
    return {key: about[key] if len(text) <= MAX_VALUE_CHARS else text[:MAX_VALUE_CHARS] for key, text in texts.items()}


STREAMS_CHECK_INTERVAL_SECONDS = 5.0
"""The interval at which the list of served streams is read again."""
RECONNECT_WAIT_SECONDS = 1.0
LIMITS = "limits"
"""The retention of a stream to which consumers may be attached that take nothing away."""
KNOWN_KEYS = frozenset({"type", "stream", "schedule", "subject", "seq", "reason"})
"""The keys of an advisory that its line shows in a place of their own."""


class Watch:
    """Prints fires, and advisories, about the schedules that a filter names."""

    def __init__(
        self, wanted: Callable[[str], bool], stream: str | None, *, as_json: bool, ended: asyncio.Event
    ) -> None:
        """Prepare; `ended` is set if the output is not read any more."""
        self._wanted = wanted
        self._stream = stream
        self._as_json = as_json
        self._clock = SystemClock()
        self._printer = Printer(gone=ended.set)
        self._served: dict[str, WatchedStream] = {}
        self._since = 0
        self._fires: FireWatch | None = None
        self._is_connected = False
        self._repetitions = Repetitions()
        self._warned: set[str] = set()

    async def run(self, resolved: ResolvedSettings) -> None:
        """Watch until cancelled; raises `SchedulerError` if the first connection does not serve."""
        try:
            await self._keep_watching(resolved)
        finally:
            self._show_repeated(None)

    async def _keep_watching(self, resolved: ResolvedSettings) -> None:
        while True:
            try:
                async with open_session(resolved.settings) as session:
                    await self._watch(session, resolved)
            except SchedulerError as error:
                if self._fires is None:
                    raise
                if self._is_connected:
                    print_warning(printable(f"the connection is lost: {error}"))
                self._is_connected = False
            await asyncio.sleep(RECONNECT_WAIT_SECONDS)

    async def _watch(self, session: Session, resolved: ResolvedSettings) -> None:
        served_by, settings = await self._with_settings(session, resolved)
        session.connection.subscribe(f"{ADVISORY_PREFIX}.>", lambda _to, _reply, _block, body: self._advised(body))
        await self._find_streams(served_by)
        if self._fires is None:
            self._since = await self._server_time(session)
            self._fires = FireWatch(self._served, self._since, self._fired, self._introduced)
            if not self._served:
                print_warning("no stream carries schedules yet")
        self._is_connected = True
        finding = asyncio.create_task(self._keep_finding(session, resolved, served_by, settings))
        try:
            await self._fires.run(session.connection, session.api)
        finally:
            finding.cancel()
            await asyncio.gather(finding, return_exceptions=True)

    async def _with_settings(self, session: Session, resolved: ResolvedSettings) -> tuple[Session, Object | None]:
        """Return the session with the settings of the running sidecars, and how these are written in the bucket."""
        settings = await session.registry.get(SETTINGS)
        session, sidecars = await with_sidecars(session, resolved)
        for warning in sidecars.warnings:
            self._warn_once(warning)
        return session, settings

    async def _server_time(self, session: Session) -> int:
        """Return the time (ns) by the clock that stamps messages; that of this machine may be wrong."""
        info = await session.api.stream(next(iter(self._served))) if self._served else None
        return server_time(info) or self._clock.now()

    async def _find_streams(self, session: Session) -> None:
        found = await session.streams(self._stream)
        self._served.clear()
        self._served.update({one.name: one for one in found})
        for one in found:
            retention = one.state.config.get("retention", LIMITS)
            if one.mode is Mode.NATIVE and retention != LIMITS:
                what = f"what the server fires on {one.name} cannot be followed"
                self._warn_once(f"{what}: with {retention} retention, no consumer may be attached to read it")

    async def _keep_finding(
        self, session: Session, resolved: ResolvedSettings, served_by: Session, settings: Object | None
    ) -> None:
        """Read the list of streams again and again; one that cannot be read now is read the next time.

        `served_by` is the session with `settings`, those of the sidecars, which are read again when they have changed.
        """
        while True:
            await asyncio.sleep(STREAMS_CHECK_INTERVAL_SECONDS)
            self._show_repeated(self._clock.monotonic())
            try:
                if await session.registry.get(SETTINGS) != settings:
                    served_by, settings = await self._with_settings(session, resolved)
                await self._find_streams(served_by)
            except CommandError as error:
                self._served.clear()
                print_warning(printable(error.message))
            except SchedulerError as error:
                print_warning(printable(str(error)))

    # -- what is shown -------------------------------------------------------------------------------------------

    def _introduced(self, stream: WatchedStream) -> None:
        if self._as_json:
            served = {"stream": stream.state.name, "mode": stream.mode, "served": EXPLANATIONS[stream.mode]}
            self._print([{"event": "stream", **served}])
        else:
            self._printer.lines(stream_line(stream))

    def _fired(self, fires: Sequence[StoredFire]) -> None:
        shown = [fire for fire in fires if self._wanted(fire.schedule)]
        if self._as_json:
            self._print(map(fire_document, shown))
        else:
            self._printer.lines(
                *(fire_line(fire, overdue=fire.send_time < max(fire.since, self._since)) for fire in shown)
            )

    def _advised(self, body: bytes) -> None:
        advisory = read_object(body)
        if advisory is None or not self._is_about_these(advisory):
            return
        now = self._clock.monotonic()
        self._show_repeated(now)
        if not self._repetitions.is_new(advisory, now):
            return
        if self._as_json:
            self._print([{"event": "advisory", **advisory}])
        else:
            colour = None if str(advisory.get("type", "")).endswith(f".{SCHEDULE_CHANGED}") else "red"
            self._printer.lines(click.style(advisory_line(advisory, self._clock.now()), fg=colour))

    def _show_repeated(self, now: int | None) -> None:
        """Show how often advisories were repeated, if that is over at `now` (ns); without a time, all that were."""
        for one in self._repetitions.take_over(now):
            if self._as_json:
                self._print([{"event": "repeated", **one.about, "times": one.times}])
            else:
                about = {**one.about, "reason": f"reported {one.times} more time{'' if one.times == 1 else 's'}"}
                self._printer.lines(click.style(advisory_line(about, self._clock.now()), fg="red"))

    def _warn_once(self, warning: str) -> None:
        if warning not in self._warned:
            self._warned.add(warning)
            print_warning(printable(warning))

    def _is_about_these(self, advisory: Object) -> bool:
        """Return whether an advisory is about a stream and a schedule that are watched; some are about no schedule."""
        if self._stream is not None and advisory.get("stream") != self._stream:
            return False
        schedule = advisory.get("schedule", advisory.get("subject"))
        return not isinstance(schedule, str) or self._wanted(schedule)

    def _print(self, documents: Iterable[object]) -> None:
        self._printer.lines(*map(json.dumps, documents))


@click.command("watch")
@click.argument("stream", required=False, shell_complete=complete_stream)
@connection_options
@zone_option
@click.option("--filter", "subject", metavar="SUBJECT", help="Show only these schedules, such as 'orders.>'.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document a line.")
def command(resolved: ResolvedSettings, stream: str | None, subject: str | None, as_json: bool) -> None:
    """Follow fires, and what goes wrong, as it happens.

    Follows one STREAM, or all streams that carry schedules. Ctrl-C ends it.
    Exit codes: 0 ended so, 1 the server refuses or is not reached, 2 wrong use or settings.
    """
    check_stream(stream)
    check_filter("--filter", subject)
    for warning in resolved.warnings:
        print_warning(warning)

    def is_wanted(schedule: str) -> bool:
        return subject is None or is_covered(schedule, (subject,))

    try:
        asyncio.run(_run(is_wanted, stream, resolved, as_json=as_json))
    except SchedulerError as error:
        raise CommandError(str(error)) from None


async def _run(wanted: Callable[[str], bool], stream: str | None, resolved: ResolvedSettings, *, as_json: bool) -> None:
    """Watch until a signal comes, or the output is not read any more."""
    ended = asyncio.Event()
    stop_on_signals(ended.set)
    await run_until(ended, Watch(wanted, stream, as_json=as_json, ended=ended).run(resolved))


def fire_document(fire: StoredFire) -> dict[str, object]:
    """Return a fire as a line of JSON."""
    return {
        "event": "fire",
        "stream": fire.stream,
        "schedule": fire.schedule,
        "target": fire.target,
        "kind": fire.kind.value,
        "fire_time": format_rfc3339(fire.due),
        "stored": format_rfc3339(fire.stored_at),
        "lateness_nanoseconds": fire.lateness,
    }


def advisory_line(advisory: Object, at: int) -> str:
    """Return an advisory that arrived at an instant (ns) as a line for people."""
    kind = str(advisory.get("type", "")).rpartition(".")[2]
    about = advisory.get("schedule", advisory.get("subject", ""))
    more = [f"{name} {value}" for name, value in advisory.items() if name not in KNOWN_KEYS and value != ""]
    texts = [f"{advisory.get('stream', '')} {about}".strip(), str(advisory.get("reason", "")), ", ".join(more)]
    return printable(f"{moment_text(at):<20}  {kind}: {'; '.join(text for text in texts if text)}")
