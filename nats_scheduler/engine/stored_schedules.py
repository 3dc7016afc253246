"""The schedules of a stream as its messages and checkpoints alone say, and what a graduation makes of them.

The rule: an engine receives the messages and never learns that it caught up. So it stays closed: it fires nothing, and
the actions that it returns (purges of what is done) are dropped here.
It is the engine and no reading of its own, because a list that differs from what fires is worse than none. Most of what
a message means is what it changes: a generated message advances its schedule, and a cancel ends one.

What the server itself fires is watched: each of its fires says when it fires the schedule next
(`engine.receiving.watched`).

Cost: that of reading the messages in a sidecar.
Limits: which fires the server refuses is not known here. What a server does without storing anything is not seen: if it
lost its own index in a restart, or adopted the schedules of a stream, it counts an interval from that moment, which the
next fire shows. Neither are its mistakes before a first fire (`schedule.native.Quirk`).
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from enum import Enum

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import FireConfirmed, ScheduleReplacedUnfired
from nats_scheduler.engine.holding.inactive import Rejected
from nats_scheduler.engine.holding.lifetimes import PausedSchedule
from nats_scheduler.engine.holding.scheduled import Schedules
from nats_scheduler.engine.holding.stored_over import StoredOver
from nats_scheduler.engine.inputs import (
    NOTHING_SETTLED,
    CalendarsRead,
    Checkpoint,
    ExpiryConcluded,
    MessagesRead,
    OwnershipChanged,
    ServerLimits,
)
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.engine.views.view import EngineView, FiredBy
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.calendars import KnownCalendars

OBJECT_BYTES = 1_100
"""What any other one takes, without its subject and target; measured: 640, and 1,100 with a pattern of its own."""


class StoredSchedules:
    """The schedules that one stream holds in some dialects."""

    def __init__(
        self,
        rules: StreamRules,
        dialects: Iterable[Dialect],
        fired_by: FiredBy,
        checkpoint: Checkpoint = NOTHING_SETTLED,
        *,
        removes_expired: bool = False,
        notify_fired: Callable[[FireConfirmed], object] = lambda _fire: None,
    ) -> None:
        """Begin with the checkpoint of the sidecars; `removes_expired` if the sidecar acts on TTLs.

        `notify_fired` is called for each fire of the server's.
        """
        limits = ServerLimits(guard=False)  # they concern fires, and there are none
        self._engine = StreamEngine(rules, dialects, limits, removes_expired=removes_expired, fired_by=fired_by)
        self._engine.step(0, [OwnershipChanged(True, checkpoint)])
        self._notify_fired = notify_fired

    def take(self, messages: Sequence[StoredMessage], now: int) -> None:
        """Read messages at `now` (ns), those of one subject in the order in which they were stored."""
        for action in self._engine.step(now, (MessagesRead(messages),)):
            if isinstance(action, Report) and isinstance(action.event, FireConfirmed):
                self._notify_fired(action.event)

    @property
    def names_calendars(self) -> bool:
        """True if a schedule names a calendar, or did."""
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
        What is dropped is freed only if no cycle holds it, which may be frozen (`runtime.garbage_collector`).
        """
        yield
        if vars(self._engine):
            self.held.table.close()
        for part in vars(self._engine).values():
            if hasattr(part, "__dict__") and not isinstance(part, Enum):  # which all engines share
                vars(part).clear()
        vars(self._engine).clear()

    @property
    def read_through(self) -> int:
        """The highest sequence that was read."""
        return self._engine.last_read

    @property
    def count(self) -> int:
        """The number of schedules that are held, rejected or paused."""
        return len(self._engine.held) + len(self._engine.inactive.rejected) + len(self._engine.inactive.paused)

    def measured(self) -> Generator[None, None, int]:
        """Return about how many bytes of memory it takes, and yield after each unit of work."""
        # Taken now: what is measured may be released between two units of work.
        return _measured(self.held, (self.rejected, self.paused))

    @property
    def view(self) -> EngineView:
        """A view of what was read so far."""
        return self._engine.view()

    @property
    def held(self) -> Schedules:
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
    def replaced(self) -> Sequence[ScheduleReplacedUnfired]:
        """Schedules that fire once, and that a later message on their subjects replaced before they fired."""
        return self._engine.replacements.unreported

    @property
    def stored_over(self) -> StoredOver:
        """The messages that were stored over schedules and leave them alive."""
        return self._engine.stored_over


def _measured(schedules: Schedules, inactive: Iterable[Mapping[str, object]]) -> Generator[None, None, int]:
    objects = schedules.objects()
    size = schedules.table.bytes + sum(OBJECT_BYTES + len(one.subject) + len(one.terms.target) for one in objects)
    yield
    for subjects in inactive:
        size += sum(OBJECT_BYTES + len(subject) for subject in subjects)
        yield
    return size
