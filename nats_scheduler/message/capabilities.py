"""The abilities of each server version: one table, which the sidecar, the commands and the client ask.

    version   API level   from there on
    2.10      0           a stream keeps its metadata: the oldest version that is served
    2.11      1           the guard is checked (`Nats-Expected-Last-Subject-Sequence-Subject`), and `Nats-TTL` acted on
    2.12      2, 3        message schedules, `@at` only; `last_by_subj` finds what lies before a deleted message
    2.14      4 and more  `@every` and cron, time zones, sources and roll-ups; mirrors and sources copy schedules

The rule: a level or a version is compared here and nowhere else; all others ask for an ability.
`$JS.API.INFO` carries the API level from 2.11 on, and so do the metadata of a stream. Older servers send none, which
counts as level 0. What only some patch releases of a version do is judged by the version.
Limit: the patch releases are those of the server that answers; others of its cluster may have another version.
"""

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from nats_scheduler.schedule.patterns import At, Pattern

GUARD_LEVEL, NATIVE_LEVEL, REPEATING_LEVEL = 1, 2, 4
"""The API levels from which on a server can do more: of 2.11, 2.12 and 2.14."""

LEVEL_VERSIONS = {GUARD_LEVEL: (2, 11), NATIVE_LEVEL: (2, 12), REPEATING_LEVEL: (2, 14)}
"""The first version of each of these levels."""

OLDEST_VERSION = (2, 10)
OLDEST = ".".join(map(str, OLDEST_VERSION))
"""The oldest version that is served."""

DISCARD_NEW_REFUSED_FROM = ((2, 12, 10), (2, 14, 2))
"""From these patch releases on, each of its line, `discard: new` and schedules exclude each other, also at start."""

QUEUES_EMPTIED = (2, 14, 0), (2, 14, 6)
"""From the first release on, until the second mended it, a copy of a work queue removes what its filter leaves out."""

DEFAULT_MAX_PAYLOAD = 1 << 20
"""Bytes; what a server allows if its operator says nothing."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The abilities of one server."""

    version: str = ""
    api_level: int = 0
    max_payload: int = DEFAULT_MAX_PAYLOAD

    @property
    def has_guard(self) -> bool:
        """True if a fire can be made conditional on its schedule."""
        return self.api_level >= GUARD_LEVEL

    @property
    def has_message_ttl(self) -> bool:
        """True if the server removes messages whose `Nats-TTL` has run out, on streams with `allow_msg_ttl`."""
        return self.api_level >= GUARD_LEVEL

    @property
    def schedules_natively(self) -> bool:
        """True if the server has message schedules of its own, and refuses their headers on other streams."""
        return self.api_level >= NATIVE_LEVEL

    @property
    def finds_last(self) -> bool:
        """True if `last_by_subj` finds the message before one that was deleted by its sequence."""
        return self.api_level >= NATIVE_LEVEL

    @property
    def schedules_all(self) -> bool:
        """True if its scheduler takes all that ADR-51 has, and copies of a stream take schedules."""
        return self.api_level >= REPEATING_LEVEL

    @property
    def schedules_at_only(self) -> bool:
        """True if it has message schedules, and of their patterns only `@at`."""
        return self.schedules_natively and not self.schedules_all

    @property
    def upgraded(self) -> "Capabilities":
        """Its abilities once it has a scheduler: its own, or those of a 2.14."""
        return self if self.schedules_natively else replace(self, api_level=REPEATING_LEVEL)

    def reads(self, pattern: Pattern) -> bool:
        """Return whether the server adopts a schedule with this pattern once it has message schedules."""
        return isinstance(pattern.base, At) or self.schedules_all

    @property
    def is_too_old(self) -> bool:
        """True if the server is older than the oldest one that the sidecar serves."""
        number = _number(self.version)
        return bool(number) and number < OLDEST_VERSION

    @property
    def refuses_discard_new(self) -> bool:
        """True if it refuses schedules together with `discard: new`, and so does not load such a stream."""
        number = _number(self.version)
        of_line = [first for first in DISCARD_NEW_REFUSED_FROM if first[:2] == number[:2]]
        return number >= of_line[0] if of_line else number > DISCARD_NEW_REFUSED_FROM[-1]

    @property
    def empties_queues(self) -> bool:
        """True if a copy of a work queue removes messages there that its filter leaves out."""
        return QUEUES_EMPTIED[0] <= _number(self.version) < QUEUES_EMPTIED[1]


def capabilities(account_info: Any, version: str, max_payload: int) -> Capabilities:
    """Return what a server can do, from its answer to `$JS.API.INFO` and from its INFO line."""
    level = (account_info.get("api") or {}).get("level", 0)
    return Capabilities(version, int(level), max_payload)


def capabilities_of(version: str) -> Capabilities:
    """Return what a server of a version can do; the least if the version is no number."""
    number = _number(version)
    return Capabilities(version, max((level for level, first in LEVEL_VERSIONS.items() if number >= first), default=0))


def _number(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with, such as (2, 12, 0) of `2.12.0-RC.1`."""
    return tuple(map(int, takewhile(str.isdecimal, version.partition("-")[0].split("."))))
