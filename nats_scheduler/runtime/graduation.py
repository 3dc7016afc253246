"""Graduate a stream: hand its stored schedules to the scheduler inside the server, by switching the flag on.

The order is what keeps each fire single and none lost:

1. Everything is read, and what would go wrong is found (`engine.handover`); nothing has been written so far.
2. Schedule messages that must never fire again are removed.
3. Repeating schedules that missed fires while nothing fired get their make-up fire, with its identity and guard.
4. The flag is switched on, in the first part of a second, when no schedule on whole seconds is due: the server
   counts from the second that it rounds to, and would pass over a fire that is due in the other half.
5. What came due between 3 and 4 is made up in the same way; the server has counted from later on.

If it is ended before 4, nothing fires the stream, and it can be started again: it finds the make-up fires stored.
The rule: what is due is judged by the clock of the server, since the server goes on with it.

Cost: one pass over the stream's headers; two requests for each removal and each make-up fire.
Limit: a make-up fire carries the portable stamps (`X-Nats-Scheduler`), because such a
server accepts its own stamps from no client.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from nats_scheduler.control.errors import ConflictError, RefusedError, SchedulerError
from nats_scheduler.control.store import publish_message
from nats_scheduler.engine.firing.building import assembled, refusal_of, too_large
from nats_scheduler.engine.handover import PURGED_KINDS, Cause, GraduationFinding, HandedOver, Handover, MakeUp
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.inputs import NOTHING_SETTLED
from nats_scheduler.jetstream.api import JetStreamApi, reads_all
from nats_scheduler.jetstream.calendar_bucket import CalendarBucket, read_calendars
from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.jetstream.schedule_wire import ScheduleWire
from nats_scheduler.jetstream.streams import StreamState, check_graduation, graduated
from nats_scheduler.jetstream.stretches import StretchReader
from nats_scheduler.jetstream.task_group import in_turn
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.dialect import PORTABLE
from nats_scheduler.message.foreign_json import is_expressible, server_time
from nats_scheduler.message.restrictions import UNRESTRICTED, Restrictions
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.checkpoints import read_checkpoint
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

MAX_REQUESTS_AT_ONCE = 256
"""Requests under way at one time."""

SWITCH_FROM_NS, SWITCH_UNTIL_NS = 50 * MILLISECOND, 300 * MILLISECOND
"""The part of a second (ns) in which the flag is switched on."""

ROUNDS_UP_FROM_NS = 500 * MILLISECOND
"""From here on the server rounds to the next second."""

SEALED = "the stream is sealed, and nothing fires on it"
NOT_ECHOED = "the server took the update and does not say that it schedules"


@dataclass(frozen=True, slots=True)
class Graduated:
    """The result of a graduation."""

    removed: int
    made_up: int
    handed_over: Sequence[HandedOver]
    doubtful: bool
    """The switch was so slow that a fire due in that second may have been skipped."""


class Graduation:
    """One stream on its way to the scheduler inside the server."""

    def __init__(
        self,
        connection: Connection,
        api: JetStreamApi,
        server: Capabilities,
        state: StreamState,
        now: Callable[[], int],
    ) -> None:
        """Prepare; `now` returns the time of this machine in ns since the Unix epoch."""
        self._connection = connection
        self._api = api
        self._server = server
        self._state = state
        self._wire = ScheduleWire(connection, api)
        self._local_now = now
        self._ahead = 0
        self._handover: Handover | None = None
        self._restrictions = UNRESTRICTED
        self.findings: list[GraduationFinding] = []
        """The findings, the gravest first."""

    # -- look ----------------------------------------------------------------------------------------------------

    async def look(
        self,
        registry: Registry,
        restrictions: Restrictions,
        notify_read: Callable[[Sequence[StoredMessage]], None] = lambda _messages: None,
        calendars: CalendarBucket | None = None,
    ) -> None:
        """Read everything and find what would go wrong; nothing is written.

        `calendars` is read if a schedule names one; without it they are not known.
        `notify_read` is called with each batch of messages that was read.
        """
        await self._set_clock()
        self._restrictions = restrictions
        name = self._state.name
        read = await read_checkpoint(registry, self._api, name, Mode.EMULATED, self._now())
        self._handover = Handover(
            # On a native stream the server has fired what a policy would have ended.
            replace(self._state.rules, restrictions=restrictions, has_policies=not self._state.is_native),
            self._server,
            read or NOTHING_SETTLED,
            expired_by_us=self._state.rules.allow_msg_ttl and not self._state.has_servers_ttl,
        )
        handover = self._handover

        def take(messages: Sequence[StoredMessage]) -> None:
            handover.take(messages, self._now())
            notify_read(messages)

        await StretchReader(self._connection, self._api, self._state.config).read_all(take)
        if calendars is not None and handover.names_calendars:
            handover.know(await read_calendars(calendars), self._now())
        if not reads_all(self._state.config):
            await self._read_buried(handover)
        self.findings = [*self._of_configuration(), *await self._of_copies(), *handover.findings(self._now())]

    @property
    def handed_over(self) -> list[HandedOver]:
        """The schedules that the server will fire if it takes over now, soonest first."""
        assert self._handover is not None, "nothing is handed over before it was read"
        return self._handover.handed_over(self._now())

    async def _set_clock(self) -> None:
        """Find out how far the server's clock is ahead of ours, from an answer that contains its time."""
        before = self._local_now()
        info = await self._api.stream(self._state.name)
        reported = server_time(info)
        if isinstance(reported, int):
            self._ahead = reported - (before + self._local_now()) // 2

    def _now(self) -> int:
        return self._local_now() + self._ahead

    async def _read_buried(self, handover: Handover) -> None:
        """Read the messages before the last ones of their subjects, if only the last ones are read otherwise."""
        async for subject, number in self._api.subject_counts(self._state.name):
            sequence = 0
            while number > 1 and is_expressible(subject):
                message = await self._api.message(self._state.name, seq=sequence + 1, next_by_subj=subject)
                if message is None:
                    break
                handover.take_buried([message])
                sequence = message.sequence

    def _of_configuration(self) -> list[GraduationFinding]:
        if self._state.config.get("sealed"):
            return [GraduationFinding(Cause.REFUSED, SEALED)]
        rejection = check_graduation(self._state)
        return [] if rejection is None else [GraduationFinding(Cause.REFUSED, str(rejection))]

    async def _of_copies(self) -> list[GraduationFinding]:
        """Find the streams that copy from this one: on 2.12 they stall at the first schedule."""
        if self._server.schedules_all:
            return []
        names = [info["config"]["name"] async for info in self._api.streams() if self._is_origin(info["config"])]
        return [
            GraduationFinding(Cause.COPIED, f"stream {name} takes from it, and stalls at the first schedule")
            for name in names
        ]

    def _is_origin(self, config: dict[str, object]) -> bool:
        sources = config.get("sources")
        origins = [config.get("mirror"), *(sources if isinstance(sources, list) else [])]
        return any(isinstance(origin, dict) and origin.get("name") == self._state.name for origin in origins)

    # -- act -----------------------------------------------------------------------------------------------------

    async def carry_out(self) -> Graduated:
        """Hand the schedules over; raises `SchedulerError` if the server refuses."""
        assert self._handover is not None, "nothing is handed over before it was read"
        removed = [finding for finding in self.findings if finding.kind in PURGED_KINDS]
        await in_turn([partial(self._remove, one) for one in removed], MAX_REQUESTS_AT_ONCE)
        made_up = self._handover.make_ups(self._now())
        await self._make_up_all(made_up)
        sent, doubtful = await self._switch()
        known = set(map(_key, made_up))
        late = [one for one in self._handover.make_ups(sent) if _key(one) not in known]
        await self._make_up_all(late)
        handed_over = self._handover.handed_over(sent)
        return Graduated(len(removed), len(made_up) + len(late), handed_over, doubtful)

    async def _remove(self, finding: GraduationFinding) -> None:
        """Remove one schedule message; what was stored on its subject later stays."""
        assert finding.subject is not None
        assert finding.sequence is not None
        if self._state.config.get("deny_delete") is True:  # then what lies under it goes too
            await self._api.purge_through(self._state.name, finding.subject, finding.sequence)
        else:
            await self._api.delete_message(self._state.name, finding.sequence)

    async def _make_up_all(self, make_ups: Sequence[MakeUp]) -> None:
        await in_turn([partial(self._make_up, one) for one in make_ups], MAX_REQUESTS_AT_ONCE)

    async def _make_up(self, make_up: MakeUp) -> None:
        """Store a make-up fire; one on whose subject something else was stored meanwhile stays away."""
        message = await self._api.message(self._state.name, seq=make_up.held.sequence)
        if message is None:
            return
        source = await self._sample(make_up.held.terms.source)
        times = make_up.fire_time, make_up.next_fire
        fire = assembled(_stamped_portably(make_up.held), message, source, *times, guard=True, last=make_up.last)
        refusal = refusal_of(fire, make_up.held.terms.source, self._restrictions)
        refusal = refusal or too_large(fire, self._server.max_payload)
        if refusal is not None:
            raise RefusedError(refusal.status, refusal.code, refusal.description, f"make-up fire of {fire.schedule}")
        await self._publish(fire.target, fire.block, fire.body, fire.schedule)

    async def _sample(self, source: str | None) -> StoredMessage | None:
        if source is None or not is_expressible(source):
            return None
        return await self._api.message(self._state.name, last_by_subj=source)

    async def _publish(self, target: str, block: bytes, body: bytes, schedule: str) -> None:
        if self._state.config.get("no_ack"):
            self._connection.write(frame(target, "", block, body))
            return
        try:
            await publish_message(self._wire, self._state.name, target, block, body)
        except ConflictError:
            pass  # another client changed the schedule meanwhile: its fire is not owed any more
        except SchedulerError as error:
            raise SchedulerError(f"make-up fire of {schedule}: {error}") from None

    async def _switch(self) -> tuple[int, bool]:
        """Switch the flag on; returns when it was asked for (ns), and whether the answer came too late to be sure."""
        await self._set_clock()
        within = self._now() % SECOND
        if not SWITCH_FROM_NS <= within < SWITCH_UNTIL_NS:
            await asyncio.sleep((SWITCH_FROM_NS - within) % SECOND / SECOND)
        sent = self._now()
        updated = StreamState.from_info(await self._api.update_stream(graduated(self._state)))
        if not updated.is_native:
            raise SchedulerError(f"stream {self._state.name}: {NOT_ECHOED}")
        return sent, self._now() >= sent - sent % SECOND + ROUNDS_UP_FROM_NS


def _stamped_portably(held: Held) -> Held:
    terms = held.terms._replace(dialect=PORTABLE)
    return Held(held.subject, held.sequence, Definition(held.pattern, terms), held.stored_at)


def _key(make_up: MakeUp) -> tuple[int, int]:
    return make_up.held.sequence, make_up.fire_time
