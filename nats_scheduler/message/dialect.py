"""The two spellings of the schedule headers: those of ADR-51 and their portable twins.

Rule: code that reads or writes schedule headers takes their names from a `Dialect`, never from a literal.
A server of 2.12 or later refuses `Nats-Schedule*` on a stream without schedules, so the sidecar offers the same feature
there under `X-Nats-Schedule*`.
Only the name of a header depends on the dialect, not its meaning. `Nats-TTL`, `Nats-Rollup`, `Nats-Msg-Id` and
`Nats-Expected-*` belong to the server and have no portable twin.
"""

import re
from dataclasses import dataclass
from typing import Literal

from nats_scheduler.message.headers import header_value


@dataclass(frozen=True, slots=True)
class Dialect:
    """One spelling of the schedule headers.

    `schedule` is also the prefix of all other names: every header that starts with it belongs to the dialect.
    """

    name: Literal["adr51", "portable"]
    schedule: bytes
    target: bytes
    source: bytes
    ttl: bytes
    time_zone: bytes
    rollup: bytes
    scheduler: bytes
    next: bytes

    @property
    def names(self) -> tuple[bytes, ...]:
        """All eight names."""
        return (
            self.schedule,
            self.target,
            self.source,
            self.ttl,
            self.time_zone,
            self.rollup,
            self.scheduler,
            self.next,
        )


ADR51 = Dialect(
    name="adr51",
    schedule=b"Nats-Schedule",
    target=b"Nats-Schedule-Target",
    source=b"Nats-Schedule-Source",
    ttl=b"Nats-Schedule-TTL",
    time_zone=b"Nats-Schedule-Time-Zone",
    rollup=b"Nats-Schedule-Rollup",
    scheduler=b"Nats-Scheduler",
    next=b"Nats-Schedule-Next",
)
"""The headers of ADR-51, which servers up to 2.11 store and do not interpret."""

PORTABLE = Dialect(
    name="portable",
    schedule=b"X-Nats-Schedule",
    target=b"X-Nats-Schedule-Target",
    source=b"X-Nats-Schedule-Source",
    ttl=b"X-Nats-Schedule-TTL",
    time_zone=b"X-Nats-Schedule-Time-Zone",
    rollup=b"X-Nats-Schedule-Rollup",
    scheduler=b"X-Nats-Scheduler",
    next=b"X-Nats-Schedule-Next",
)
"""The same headers under names that no server interprets."""

DIALECTS = (ADR51, PORTABLE)
"""Both dialects; if a message is a schedule in both, the first one counts."""


def dialect_named(name: str | None) -> Dialect | None:
    """Return the dialect with a name; None if there is none."""
    return next((one for one in DIALECTS if one.name == name), None)


def _search(dialect: Dialect) -> re.Pattern[bytes]:
    """Compile the search for the names and values of all headers that start with a dialect's prefix."""
    name = rb"\r\n(" + re.escape(dialect.schedule) + rb"[^:\r]*)"
    value = rb"([^\r]*(?:\r(?!\n)[^\r]*)*)"
    return re.compile(name + rb": *" + value)


_SEARCHES = {dialect.name: _search(dialect).findall for dialect in (ADR51, PORTABLE)}


def schedule_fields(block: bytes, dialect: Dialect) -> dict[bytes, str]:
    """Return the first value of each header in the block that starts with the dialect's prefix.

    Values are those of `header_value`, as text; bytes that are not UTF-8 become surrogate escapes. One pass finds them
    all, because a million messages are read at start. If the prefix is also somewhere else in the block, the server's
    own search is used, name by name.
    """
    found: list[tuple[bytes, bytes]] = _SEARCHES[dialect.name](block)
    if not found:
        return {}
    if block.count(dialect.schedule) != len(found):
        found = _search_by_name(block, dialect, found)
    found.reverse()
    return {name: value.decode("utf-8", "surrogateescape") for name, value in found}


def _search_by_name(block: bytes, dialect: Dialect, found: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    values = ((name, header_value(block, name)) for name in dialect.names)
    extensions = [(name, value) for name, value in found if name.startswith(dialect.schedule + b"-X-")]
    return [(name, value) for name, value in values if value is not None] + extensions
