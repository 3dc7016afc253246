"""What a message that a program receives says of the schedule that it is a fire of.

This reads headers, it proves nothing. A program that may publish to a target can write them too, and the message that
cancels a schedule (`Schedules.publish_and_cancel`) looks like its last fire.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from nats_scheduler.client.times import datetime_of
from nats_scheduler.message.dialect import DIALECTS, Dialect
from nats_scheduler.message.generated import PURGE
from nats_scheduler.message.headers import MSG_ID
from nats_scheduler.message.identity import parse_beside, parse_identity
from nats_scheduler.schedule.rfc3339 import parse_rfc3339


class HasHeaders(Protocol):
    """A message of nats-py, received by a core subscription or a consumer."""

    @property
    def headers(self) -> Mapping[str, str] | None:
        """Its headers."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """A fire as its headers describe it."""

    schedule: str
    """Subject of the schedule."""
    fire_time_ns: int | None
    """The time for which it is; None if the server fired it, which does not say."""
    next_fire_ns: int | None
    """The fire time that follows; None if this was the last one."""
    schedule_sequence: int | None = None
    """The sequence of the schedule that fired; None if the server fired it, which removes it with its last fire."""

    @property
    def fire_time(self) -> datetime | None:
        """The time for which it is, in UTC."""
        return None if self.fire_time_ns is None else datetime_of(self.fire_time_ns)

    @property
    def next_fire(self) -> datetime | None:
        """The fire time that follows, in UTC."""
        return None if self.next_fire_ns is None else datetime_of(self.next_fire_ns)

    @property
    def is_last(self) -> bool:
        """True if no fire of the schedule follows."""
        return self.next_fire_ns is None


def delivered(message: HasHeaders) -> Delivered | None:
    """Return what a message says of its schedule; None if it is no fire of one."""
    headers = message.headers or {}
    return next((found for one in DIALECTS if (found := _read(headers, one)) is not None), None)


def _read(headers: Mapping[str, str], dialect: Dialect) -> Delivered | None:
    schedule, following = headers.get(dialect.scheduler.decode()), headers.get(dialect.next.decode())
    if not schedule or not following:
        return None
    next_fire = None if following == PURGE.decode() else parse_rfc3339(following)
    if next_fire is not None and not isinstance(next_fire, int):
        return None
    message_id = headers.get(MSG_ID.decode(), "")
    identity = parse_identity(message_id) or parse_beside(message_id)
    if identity is None or identity[0] != schedule:
        return Delivered(schedule, None, next_fire)
    return Delivered(schedule, identity[2], next_fire, identity[1])
