"""The fires of schedules that the engine only watches, because the server itself fires them, or nothing does.

The rule: what the server stored says when it fires a schedule next. Such an engine is never told that it caught up, so
it opens nothing; its schedules advance by the fires that are read, and the last one ends them.

As the server does: a fire of the schedule that was replaced counts for its replacement too, if it was stored after
that.
Limit: of a schedule that is held no longer, as each `@at` that has fired, only the fire is known.
"""

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import FireConfirmed
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.fires import following_fire, scheduler_of
from nats_scheduler.message.generated import PURGE
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND


class WatchedFires:
    """The fires on one stream that are not this engine's."""

    def __init__(self, state: EngineState, *, advance: bool) -> None:
        """`advance` if the server fires the schedules; else fires of an earlier time are stored, and say nothing."""
        self._state = state
        self._advances = advance

    def ends_its_schedule(self, message: StoredMessage) -> bool:
        """Return whether a message ends a schedule that the server fires: its last fire, or a client's cancel."""
        block = message.block
        return self._advances and block.find(ADR51.next) >= 0 and header_value(block, ADR51.next) == PURGE

    def fired(self, fire: StoredMessage) -> None:
        """Advance the schedule of a fire, and report it."""
        if not self._advances:
            return
        state, schedule, at = self._state, scheduler_of(fire.block), fire.stored_at
        held = state.schedules.on(schedule)
        if held is None or held.sequence >= fire.sequence:
            if schedule not in ("", fire.subject):
                event = FireConfirmed(schedule, fire.subject, at, at, at, fire.sequence, is_time_known=False)
                state.emit(Report(event))
            return
        due, late = held.fire_time, at - held.fire_time
        following = following_fire(fire.block, ADR51)
        if following is not None:
            held.fire_time = following
            state.schedules.changed(held)
        elif late < 0 or fire.subject != held.terms.target:
            return  # a client has cancelled it
        # If the fire before was removed, or the server has lost its index, it was due at another time.
        is_known = 0 <= late < SECOND or (late > 0 and held.next_fire(due) == following)
        is_overdue = is_known and due < held.stored_at
        event = FireConfirmed(schedule, fire.subject, due, due, at, fire.sequence, is_overdue, is_time_known=is_known)
        state.emit(Report(event))


def is_fire_of_the_server(message: StoredMessage) -> bool:
    """Return whether the server generated a message: it alone may store a next fire that is not `purge`."""
    block = message.block
    if block.find(ADR51.next) < 0 or header_value(block, ADR51.schedule):
        return False
    return header_value(block, ADR51.next) not in (None, b"", PURGE)
