"""The schedules of a stream as its messages and checkpoints alone say, for commands that read a stream themselves.

The rule: an engine receives the messages and never learns that it caught up. So it stays closed: it fires nothing, and
the actions that it returns (purges of what is done) are dropped here.
It is the engine and no reading of its own, because a list that differs from what fires is worse than none. Most of what
a message means is what it changes: a generated message advances its schedule, and a cancel ends one.

Where the server itself fires, each of its fires says when it fires the schedule next, and the last one counts.

Cost: that of reading the messages in a sidecar.
Limits: which fires the server refuses is not known here. What a server does without storing anything is not seen: if it
lost its own index in a restart, or adopted the schedules of a stream, it counts an interval from that moment, which the
next fire shows. Neither are its mistakes before a first fire (`schedule.native.Quirk`).
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace

from nats_scheduler.engine.firing.sending import ServerLimits
from nats_scheduler.engine.holding.lifetimes import PausedSchedule
from nats_scheduler.engine.holding.roster import Roster
from nats_scheduler.engine.inputs import CalendarsRead, CheckpointLoaded, ExpiryConcluded, MessagesRead
from nats_scheduler.engine.reading.inactive import Rejected
from nats_scheduler.engine.reading.landed import Landed
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.engine.views.view import EngineView, FiredBy
from nats_scheduler.message.dialect import ADR51, Dialect
from nats_scheduler.message.fires import following_fire, scheduler_of
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.calendars import KnownCalendars


class StoredSchedules:
    """What one stream holds in some dialects."""

    def __init__(
        self,
        rules: StreamRules,
        dialects: Iterable[Dialect],
        fired_by: FiredBy,
        checkpoints: Sequence[CheckpointLoaded] = (),
        *,
        removes_expired: bool = False,
    ) -> None:
        """Begin with the checkpoints of the sidecars; `removes_expired` if the sidecar acts on TTLs."""
        if fired_by is not FiredBy.SIDECAR:
            rules = replace(rules, has_policies=False)
        # The limits concern fires, and there are none.
        self._engine = StreamEngine(rules, dialects, ServerLimits(guard=False), removes_expired=removes_expired)
        self._engine.step(0, checkpoints)
        self._fired_by = fired_by

    def take(self, messages: Sequence[StoredMessage], now: int) -> None:
        """Read messages at `now` (ns), those of one subject in the order in which they were stored."""
        fires: list[StoredMessage] = []
        if self._fired_by is not FiredBy.SIDECAR:
            fires = [message for message in messages if is_fire_of_the_server(message)]
        if fires:
            messages = [m._replace(block=b"") if is_fire_of_the_server(m) else m for m in messages]
        self._engine.step(now, (MessagesRead(messages),))
        if self._fired_by is FiredBy.SERVER:
            self._advance(fires)

    def _advance(self, fires: Iterable[StoredMessage]) -> None:
        """Set the next fires of schedules: the server continues as the last fire says that it stored.

        As the server does: a fire of the schedule that was replaced counts for its replacement too, if it was stored
        after that.
        """
        for fire in fires:
            held = self.held.on(scheduler_of(fire.block))
            following = following_fire(fire.block, ADR51)
            if held is not None and following is not None and held.sequence < fire.sequence:
                held.fire_time = following

    @property
    def names_calendars(self) -> bool:
        """Whether a schedule names a calendar, or did."""
        return self._engine.calendars.are_named

    def know(self, calendars: KnownCalendars, now: int) -> None:
        """Take the calendars as they are, after all messages were read."""
        self._engine.step(now, (CalendarsRead(calendars),))
        while self._engine.calendars.work(now):
            pass

    def remove(self, gone: Iterable[tuple[str, int]], now: int) -> None:
        """Hold nothing more of these messages, by subject and sequence: they are not stored any more."""
        self._engine.step(now, [ExpiryConcluded(sequence, subject) for subject, sequence in gone])

    def emptied(self) -> Generator[None, None, None]:
        """Release everything, and yield after each unit of work; nothing may be asked any more, also of its views.

        Work that was given up may be done again from its beginning.
        What is dropped is freed only if no cycle holds it: the collector may have frozen it (`runtime.driver`).
        """
        yield from self._engine.held.emptied()
        for part in vars(self._engine).values():
            if hasattr(part, "__dict__"):
                vars(part).clear()
        vars(self._engine).clear()

    @property
    def read_through(self) -> int:
        """The highest sequence that was read."""
        return self._engine.last_read

    @property
    def count(self) -> int:
        """How many schedules are held, rejected or paused."""
        return len(self._engine.held) + len(self._engine.inactive.rejected) + len(self._engine.inactive.paused)

    @property
    def view(self) -> EngineView:
        """What was read so far."""
        return self._engine.view(self._fired_by)

    @property
    def held(self) -> Roster:
        """The schedules themselves; they are not to be changed."""
        return self._engine.held

    @property
    def rejected(self) -> dict[str, Rejected]:
        """The subjects whose last message is a rejected schedule, and that message."""
        return self._engine.inactive.rejected

    @property
    def paused(self) -> dict[str, PausedSchedule]:
        """The subjects whose last message is a paused schedule, and what it would be if it was resumed."""
        return self._engine.inactive.paused

    @property
    def landed(self) -> Landed:
        """What landed on the subjects of schedules and leaves them alive."""
        return self._engine.landed


def is_fire_of_the_server(message: StoredMessage) -> bool:
    """Return whether the server generated a message: it alone may store a next fire that is not `purge`."""
    block = message.block
    if block.find(ADR51.next) < 0 or header_value(block, ADR51.schedule):
        return False
    return header_value(block, ADR51.next) not in (None, b"", b"purge")
