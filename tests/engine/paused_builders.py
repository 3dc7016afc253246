"""Paused schedules for the tests of this folder, and what a view lists of them."""

from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.view import ALL, ListedSchedule, Query
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.paused import paused_block
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import SCHEDULE, Desk, schedule


def paused(pattern: str, sequence: int = 1, subject: str = SCHEDULE, **more: str) -> StoredMessage:
    """Make a paused schedule as the stream holds it."""
    message = schedule(pattern, sequence, subject, stored_at=START, body=b"", **more)
    return message._replace(block=paused_block(message.block, ADR51))


def listed(desk: Desk, query: Query = ALL) -> list[tuple[str, State]]:
    return [(one.subject, one.state) for one in desk.engine.view().page(desk.now, query).answer().schedules]


def shown(desk: Desk) -> ListedSchedule | None:
    return desk.engine.view().schedule(SCHEDULE, desk.now)
