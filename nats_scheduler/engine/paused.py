"""What is kept of a paused schedule while its message is the last one on its subject.

The rule: what is kept is what its message would be if it was resumed. One that would be rejected then is kept as
rejected (`engine.rejections`), because it has no pattern that could be shown.
"""

from typing import NamedTuple

from nats_scheduler.message.definition import Terms
from nats_scheduler.schedule.patterns import Pattern


class PausedSchedule(NamedTuple):
    """A paused schedule; its pattern and terms are those of the active one."""

    subject: str
    sequence: int
    stored_at: int
    """When (ns) the message was stored, which is when it was paused."""
    expires: int
    """When (ns) its TTL runs out, `NO_EXPIRY` if it has none."""
    pattern: Pattern
    terms: Terms
