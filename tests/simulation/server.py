"""The modelled server: one stream in memory, the bucket of the registry, and listeners to the requests of others.

Its rule: what is stored is recorded for the judge the moment it is stored. The leader records an identity when it
receives a fire, and applies what it has received in that order; while the replicas agree, a second request with the
same identity is answered "in process".
Limit: messages of publishers are stored at once, and fires into another stream.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from nats_scheduler.engine.fire import AwaitProposals, Fire
from nats_scheduler.engine.inputs import Input, Outcome, ProposalsApplied, PublishConcluded, Refused, RemovalRequested
from nats_scheduler.engine.ownership.order import ALL_INSTANCES
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.headers import MSG_ID, header_items, header_value
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import METADATA_DEBOUNCE
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.memory_stream import MemoryStream
from nats_scheduler.testing.network import Fate
from tests.harness.replicated import LaggingContact, ReplicatedStream
from tests.judge.history import SECOND, Fault, FireKey, FireSent, History, ScheduleSeen, SourceSeen
from tests.judge.reading import fire_seen, taken_in
from tests.simulation.buckets import BucketServer
from tests.simulation.calendars import SimulatedCalendars
from tests.simulation.files import Machine
from tests.simulation.network import Link
from tests.simulation.process import Process
from tests.simulation.scenario import MILLISECOND, Scenario
from tests.simulation.timeline import Timeline


class Agreement:
    """The fires on which the replicas of one stream have still to agree."""

    def __init__(self, stream: ReplicatedStream, timeline: Timeline) -> None:
        self._stream = stream
        self._timeline = timeline
        self._applied_at = 0
        self.takes = 0
        """The time (ns) that they need for what is received from now on."""

    @property
    def is_immediate(self) -> bool:
        """True if what is received now is applied now."""
        return not self.takes and self._applied_at <= self._timeline.now

    def store(self, target: str, block: bytes, body: bytes, conclude: Callable[[Outcome], None]) -> None:
        """Receive a fire, and conclude it once the replicas have agreed, or at once if its identity is known."""
        answer = self._stream.propose(block)
        if answer is not None:
            conclude(answer)
            return
        self._applied_at = max(self._applied_at, self._timeline.now + self.takes)
        self.when_applied(lambda: conclude(self._stream.publish_proposed(target, block, body)))

    def change_leader(self) -> None:
        """Let the leader change while the replicas agree: what it has accepted is stored, and not known until then."""
        self._stream.change_leader()

    def when_applied(self, then: Callable[[], None]) -> None:
        """Do something when everything is applied that was received before."""
        self._timeline.after(max(self._applied_at - self._timeline.now, 0), then)


class _Proposal(NamedTuple):
    """A request that the replicas have to agree on."""

    do: Callable[[], Input]
    fail: Callable[[str, Refused | None], Input]
    begin: Callable[[Callable[[Input], None]], None]
    """Begins it; its argument is called with the answer."""


class AgreedContact(LaggingContact):
    """Contact with a stream whose replicas may agree slowly."""

    agreement: Agreement

    def _storing(self, fire: Fire) -> Any:
        request, sent = super()._storing(fire), (fire.target, fire.block, fire.body)

        def begin(answer: Callable[[Input], None]) -> None:
            self.agreement.store(*sent, lambda outcome: answer(PublishConcluded(fire, outcome)))

        return request if fire.is_to_other_stream else _Proposal(*request, begin)

    def _applying(self, request: AwaitProposals) -> Any:
        def begin(answer: Callable[[Input], None]) -> None:
            self.agreement.when_applied(lambda: answer(ProposalsApplied(request.fire)))

        return _Proposal(*super()._applying(request), begin)

    def _arrived(self, number: int, request: Any, fate: Fate) -> None:
        if not isinstance(request, _Proposal) or fate.refusal is not None or self.agreement.is_immediate:
            super()._arrived(number, request, fate)
        else:
            request.begin(partial(self._applied, number, request, fate))

    def _applied(self, number: int, request: _Proposal, fate: Fate, answer: Input) -> None:
        decided: Any = request._replace(do=lambda: answer)
        super()._arrived(number, decided, fate)


if TYPE_CHECKING:
    from tests.simulation.instance import Instance

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


class Server:
    """One server with one stream."""

    def __init__(self, scenario: Scenario, timeline: Timeline, history: History, trace: Callable[[str], None]) -> None:
        self.timeline = timeline
        self.history = history
        self.listeners: list[Instance] = []
        self.bucket = BucketServer(timeline)
        self.links: dict[str, Link] = {}
        """The last connection of each process that takes part, by its name."""
        self._scenario = scenario
        self.machines: dict[str, Machine] = {}
        """The machines of the instances, by name; none if they keep no files."""
        self.reads_for = scenario.reads_for
        self.forges = scenario.forges
        """True if there is a forger, so that what instances send is recorded."""
        self.asks = scenario.asks
        """True if instances can ask each other whether they are there."""
        self.elects = scenario.elects
        """True if the instances agree on one owner; if not, each of them fires all."""
        self.standbys = ALL_INSTANCES if scenario.standbys is None else scenario.standbys
        """How many instances read the stream besides its owner."""
        self.some_read = scenario.standbys is not None
        """True if some instances may leave the stream alone."""
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
            "metadata": {} if scenario.compares else {METADATA_DEBOUNCE: "true"},
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

    def machine_of(self, instance: str) -> Machine | None:
        """Return the machine of an instance, None if it keeps no file; two of them may share one."""
        if not self._scenario.files:
            return None
        name = "m0" if self._scenario.shares_folder and instance == "i1" else f"m{instance[1:]}"
        if name not in self.machines:
            self.machines[name] = Machine(name, self._scenario.seed, self._trace)
        return self.machines[name]

    def remove_machines(self) -> None:
        """Remove all that is on the machines."""
        for machine in self.machines.values():
            machine.remove()

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
                self.timeline.after(listener.weather.way_back(), partial(listener.receive, request))

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
