"""The modelled server: one stream in memory, the bucket of the registry, and listeners to the requests of others.

Its rule: what is stored is recorded for the judge the moment it is stored.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import RemovalRequested
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.headers import MSG_ID, header_items, header_value
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.memory_stream import MemoryStream
from tests.harness.replicated import ReplicatedStream
from tests.judge.history import SECOND, Fault, FireKey, FireSent, History, ScheduleSeen, SourceSeen
from tests.judge.reading import fire_seen, taken_in
from tests.simulation.agreement import Agreement
from tests.simulation.bucket import BucketServer
from tests.simulation.calendars import SimulatedCalendars
from tests.simulation.process import Process
from tests.simulation.scenario import MILLISECOND, Scenario
from tests.simulation.snapshots import SnapshotServer
from tests.simulation.timeline import Timeline
from tests.simulation.weather import Weather

CONSUMED_AFTER = 50 * MILLISECOND
"""The longest time (ns) that a message lies on a work queue."""

SOURCES = "src."
"""The prefix of the subjects that schedules sample."""


ELSEWHERE = "o."
"""The prefix of the subjects of the other stream."""

SHORTEST_WINDOW = 7 * SECOND
"""The duplicate window (ns) of the other stream: most faults last longer."""

OTHER_SEQUENCES = 1_000_000
"""The number added to its sequences in the record, so that they are none of the first stream."""

FORGED = "X-Forged"
"""The header that marks a forgery for the record, whatever else the message says."""


class Listener(Protocol):
    """A listener to the requests of others."""

    weather: Weather
    process: Process

    def receive(self, request: RemovalRequested) -> None:
        """Receive a request."""


class Server:
    """One server with one stream."""

    def __init__(self, scenario: Scenario, timeline: Timeline, history: History, trace: Callable[[str], None]) -> None:
        self.timeline = timeline
        self.history = history
        self.listeners: list[Listener] = []
        self.bucket = BucketServer(timeline)
        self.snapshots = SnapshotServer(timeline, lambda: self.bucket.leaderless_until)
        self.keeps_snapshots = scenario.snapshots
        """True if instances keep snapshots."""
        self.reads_for = scenario.reads_for
        self.forges = scenario.forges
        """True if there is a forger, so that what instances send is recorded."""
        self.divides = scenario.divides
        """True if the instances divide the work; if not, each of them serves everything."""
        self.created = "2026-01-01T00:00:00Z"
        """The time at which the stream was made."""
        self.followers: list[Callable[[], None]] = []
        """Callbacks that end the consumers of the stream."""
        self.has_gone_back = False
        self._trace = trace
        config = {
            "name": "SIM",
            "subjects": ["s.*", "t.*", "x.>", f"{SOURCES}*"] if scenario.elsewhere else [">"],
            "allow_rollup_hdrs": not scenario.rolls_up,
            "allow_msg_ttl": scenario.expires,
            "duplicate_window": scenario.duplicate_window,
            "num_replicas": 3 if scenario.lags else 1,
        }
        self.stream = ReplicatedStream(config, timeline.clock.now, guard=scenario.guard)
        self.stream.listen(self._stored)
        self.agreement = Agreement(self.stream, timeline)
        config = {**config, "name": "OTHER", "subjects": [f"{ELSEWHERE}*"], "num_replicas": 1}
        config["duplicate_window"] = SHORTEST_WINDOW
        self.other = MemoryStream(config, timeline.clock.now, guard=scenario.guard)
        """Another stream of the account, into which schedules fire."""
        self.other.listen(self._stored_elsewhere)
        self.calendars = SimulatedCalendars(scenario.seed, timeline, history.calendars, trace)
        self.has_calendars = scenario.calendars

    def information(self) -> Any:
        """Return the leader's information about the stream."""
        first, gone = self.removed()
        state = {"first_seq": first, "last_seq": self.stream.applied, "num_deleted": len(gone)}
        return {"config": self.stream.config, "created": self.created, "state": state}

    def removed(self) -> tuple[int, frozenset[int]]:
        """Return the first sequence that is stored, and what was removed behind it."""
        stored = {message.sequence for message in self.stream.messages()}
        first = min(stored, default=self.stream.last_sequence + 1)
        return first, frozenset(range(first, self.stream.last_sequence)) - stored

    def go_back(self, through: int, messages: Iterable[StoredMessage]) -> None:
        """Have the stream restored from a copy, or created again if the copy ends with sequence 0.

        Its consumers go with it.
        """
        self._trace(f"server: its stream goes back to {through}")
        self.has_gone_back = True
        self.stream.go_back(through, messages)
        if not through:
            self.created = format_rfc3339(self.timeline.now)
        followers, self.followers = self.followers, []
        for lose in followers:
            lose()

    def is_read_by(self, instance: str) -> None:
        """Record that an instance reads the stream from its beginning, which takes its time."""
        now = self.timeline.now
        self.history.faults.append(Fault("reading", instance, now, now + self.reads_for, silences=True))

    def is_sent(self, instance: str, fire: Fire, clock: int) -> None:
        """Record that an instance, whose clock shows `clock` (ns), begins to send a fire."""
        if self.forges:
            key = FireKey(fire.sequence, fire.fire_time)
            taken = taken_in((header_value(fire.block, MSG_ID) or b"").decode())
            self.history.sent.append(FireSent(instance, key, taken, self.timeline.now, clock))

    def tell_of_removal(self, request: RemovalRequested, *, besides: Process | None = None) -> None:
        """Notify all listeners of a request."""
        for listener in self.listeners:
            if listener.process is not besides and not listener.weather.is_lost():
                self.timeline.after(listener.weather.way(), partial(listener.receive, request))

    def empty(self, source: str) -> None:
        """Remove everything on a source."""
        self.stream.purge(source)
        self._lies_there(source, None)

    def _lies_there(self, source: str, message: StoredMessage | None) -> None:
        headers = () if message is None else fire_seen(message).headers
        body = None if message is None else message.body or b""
        own = tuple(header for header in headers if not header[0].startswith("Nats-"))
        self._trace(f"server: on {source} lies {body!r}")
        self.history.sources.append(SourceSeen(source, self.timeline.now, body, own))

    def stream_of(self, subject: str) -> MemoryStream:
        """Return the stream that has a subject."""
        return self.other if subject.startswith(ELSEWHERE) else self.stream

    def _stored_elsewhere(self, message: StoredMessage) -> None:
        if _header(message, FORGED) or not _header(message, "X-Nats-Scheduler"):
            return
        seen = fire_seen(message)
        self._trace(f"server: stores fire {message.sequence} elsewhere {_header(message, 'Nats-Msg-Id')}")
        self.history.fires.append(replace(seen, sequence=OTHER_SEQUENCES + seen.sequence, elsewhere=True))

    def _stored(self, message: StoredMessage) -> None:
        if _header(message, FORGED):
            return
        scheduler = _header(message, "Nats-Scheduler")
        if message.subject.startswith("t.") or (scheduler and message.subject.startswith("s.")):
            self.history.fires.append(fire_seen(message))
            self._trace(f"server: stores fire {message.sequence} {_header(message, 'Nats-Msg-Id')}")
            return
        if message.subject.startswith(SOURCES):
            self._lies_there(message.subject, message)
            return
        self._trace(f"server: stores {message.subject} as {message.sequence}")
        reading = read_message(message.block, message.subject, message.stored_at, self.stream.rules, DIALECTS)
        if reading is not None and reading.definition is not None:
            seen = ScheduleSeen(message.subject, message.sequence, message.stored_at, message.body or b"")
            self.history.schedules.append(seen)


def _header(message: StoredMessage, wanted: str) -> str | None:
    items = header_items(message.block)
    return next((value.decode() for name, value in items if name.decode() == wanted), None)
