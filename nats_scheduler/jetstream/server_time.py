"""The server's time, read off an answer that shows it.

Rule: STREAM.INFO shows `ts`, the time at which it was written, on every version from 2.10 on.
Limit: an answer without it tells nothing.
"""

from collections.abc import Mapping
from typing import Any

from nats_scheduler.schedule.rfc3339 import parse_rfc3339


def server_time(info: Mapping[str, Any] | None) -> int | None:
    """Return when an answer to STREAM.INFO was written (ns since the Unix epoch); None where it does not say."""
    told = None if info is None else parse_rfc3339(str(info.get("ts", "")))
    return told if isinstance(told, int) else None
