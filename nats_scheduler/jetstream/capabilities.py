"""What the connected server can do, by its own information.

`$JS.API.INFO` carries the API level from 2.11 on. Older servers do not send one, which counts as level 0.
"""

from dataclasses import dataclass
from typing import Any

from nats_scheduler.schedule.native import FINDS_LAST_VERSION, GUARD_LEVEL, NATIVE_LEVEL, TTL_LEVEL

OLDEST_VERSION = (2, 10)
"""The oldest version that keeps a stream's metadata, without which a flag would be lost."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the sidecar needs to know of a server."""

    version: str
    api_level: int
    max_payload: int

    @property
    def schedules_natively(self) -> bool:
        """Whether the server has message schedules of its own."""
        return self.api_level >= NATIVE_LEVEL

    @property
    def has_guard(self) -> bool:
        """Whether a fire can be made conditional on its schedule."""
        return self.api_level >= GUARD_LEVEL

    @property
    def has_message_ttl(self) -> bool:
        """Whether the server removes messages whose `Nats-TTL` has run out, on streams with `allow_msg_ttl`."""
        return self.api_level >= TTL_LEVEL

    @property
    def is_too_old(self) -> bool:
        """Whether the server is older than the oldest one that the sidecar serves."""
        return is_too_old(self.version)


def capabilities(account_info: Any, version: str, max_payload: int) -> Capabilities:
    """Return what a server can do, from its answer to `$JS.API.INFO` and from its INFO line."""
    level = (account_info.get("api") or {}).get("level", 0)
    return Capabilities(version, int(level), max_payload)


def is_too_old(version: str) -> bool:
    """Return whether a server of this version is older than the oldest one that the sidecar serves."""
    return (number := _number(version)) is not None and number < OLDEST_VERSION


def finds_last(version: str) -> bool:
    """Return whether `last_by_subj` finds an earlier message once the last one of a subject was deleted by sequence."""
    return (number := _number(version)) is not None and number >= FINDS_LAST_VERSION


def _number(version: str) -> tuple[int, ...] | None:
    """Return the first two numbers of a version, None if they are not numbers."""
    numbers = version.split(".")[:2]
    return tuple(map(int, numbers)) if all(n.isdigit() for n in numbers) else None
