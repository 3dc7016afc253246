"""In which spelling a new schedule is written: that of ADR-51, or the portable one.

Rule: the first spelling that fires on its stream, unless the schedule asks for more than that one gives: a policy that
is read beside the portable headers only, or, where the server itself fires, any policy with an effect, and what that
server cannot do.
Cost: none. Limit: whether a sidecar runs that fires the portable headers is not decided here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from nats_scheduler.control.errors import NotServedError
from nats_scheduler.control.port import Served
from nats_scheduler.message.dialect import ADR51, PORTABLE, Dialect
from nats_scheduler.message.placing import Header
from nats_scheduler.message.policies import extension_prefix

PORTABLE_POLICIES = frozenset({"X-Syntax", "X-Target"})
"""The policies that are read beside the portable headers only, on every stream."""

LABELS = frozenset({"X-Note", "X-Owner"})
"""The policies that say nothing about fires: they mean the same where the server fires."""

REPEATING_VERSION = (2, 14)
"""From this version on a server that fires by itself knows more than `@at`: the other patterns, sources, roll-ups."""

_BEYOND_AT = (ADR51.time_zone, ADR51.source, ADR51.rollup)
_VERSION = re.compile(r"(\d+)\.(\d+)").match


def spelling_of(served: Served, headers: Sequence[Header], *, portable: bool = False) -> Dialect:
    """Return the spelling of a new schedule with these headers, which are given in the spelling of ADR-51.

    `portable` asks for the portable one. Raises `NotServedError` if nothing fires that spelling on the stream.
    """
    why = "they were asked for" if portable else _why_portable(served, dict(headers))
    chosen = PORTABLE if why else served.dialects[0]
    if chosen not in served.dialects:
        raise NotServedError(f"nothing fires portable headers (X-Nats-Schedule) on stream {served.name}, and {why}")
    return chosen


def has_no_effect(served: Served, policies: Collection[str]) -> list[str]:
    """Return which of these policies, such as `X-Jitter`, have no effect beside the headers of ADR-51, by name."""
    return sorted(set(policies) - LABELS) if served.is_native else sorted(set(policies) & PORTABLE_POLICIES)


def _why_portable(served: Served, headers: Mapping[bytes, bytes]) -> str:
    """Return what needs the portable headers; "" if nothing does."""
    prefix = extension_prefix(ADR51)
    policies = [f"X-{name.removeprefix(prefix).decode()}" for name in headers if name.startswith(prefix)]
    if without_effect := has_no_effect(served, policies):
        return f"{', '.join(without_effect)} needs them"
    is_at = headers.get(ADR51.schedule, b"").startswith(b"@at ")
    if served.is_native and _is_old(served.server_version) and not (is_at and headers.keys().isdisjoint(_BEYOND_AT)):
        return f"the server itself ({served.server_version}) fires @at only"
    return ""


def _is_old(version: str) -> bool:
    found = _VERSION(version)
    return found is not None and (int(found[1]), int(found[2])) < REPEATING_VERSION
