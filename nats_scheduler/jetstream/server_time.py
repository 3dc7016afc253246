"""The server's time, from an answer that contains it.

Rule: STREAM.INFO and CONSUMER.INFO have `ts`, when the answer was made, on every version from 2.10 on.
Limit: from an answer without it the time is not known.
"""

from collections.abc import Mapping
from typing import Any

from nats_scheduler.jetstream.foreign_json import time_of


def server_time(info: Mapping[str, Any] | None) -> int | None:
    """Return when an answer was made (ns since the Unix epoch); None if it does not say."""
    return None if info is None else time_of(info.get("ts"))
