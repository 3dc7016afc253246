"""Policies in words, and the warning that a server ignores them.

Rule: a policy that has no effect is reported wherever its schedule is shown, with the spelling that would have one.
Cost: none for a schedule without policies.
"""

from nats_scheduler.engine.view import FiredBy, ListedSchedule
from nats_scheduler.message.dialect import PORTABLE
from nats_scheduler.message.overlap import Overlap
from nats_scheduler.message.policies import Policies
from nats_scheduler.message.policy_values import Kept
from nats_scheduler.schedule.durations import format_duration
from nats_scheduler.schedule.explain import explain_pattern
from nats_scheduler.schedule.patterns import Pattern

SHOWN_APART = frozenset({"X-Note", "X-Owner"})
"""The policies that only say something to people."""

NO_SERVER_KNOWS = (
    f"no server knows: they have no effect where the server itself fires; beside {PORTABLE.schedule.decode()}, "
    f"as {PORTABLE.schedule.decode()}-X-…, they have one"
)


def policies_text(policies: Policies) -> str:
    """Return the policies that change when a schedule fires: `X-End 2026-12-31T00:00:00Z, X-Limit 3`."""
    return ", ".join(f"{name} {value}" for name, value in policies.written if name not in SHOWN_APART)


def schedule_words(pattern: Pattern, policies: Policies, stored_at: int) -> str:
    """Return in plain words when a stored schedule fires, its policies included."""
    words = explain_pattern(pattern, stored_at)
    if policies.jitter is not None:
        words += f", each sent up to {format_duration(policies.jitter)} later, before the next"
    return words + _missed_words(policies) + _overlap_words(policies)


def _missed_words(policies: Policies) -> str:
    """Say which missed fires are made up, unless that is the latest."""
    kept, most = policies.missed
    if kept is Kept.SKIP:
        return f"; what is more than {format_duration(policies.grace)} late is skipped"
    if kept is Kept.ALL and most is not None:
        return f"; of missed fires the latest {most} are made up" if most > 1 else ""
    return "; each missed fire is made up" if kept is Kept.ALL else ""


def _overlap_words(policies: Policies) -> str:
    """Say what happens to a fire while the one before is unfinished, unless it is sent."""
    if policies.overlap is Overlap.ALLOW:
        return ""
    words = "is skipped" if policies.overlap is Overlap.SKIP else "waits"
    most = "" if policies.timeout is None else f", for {format_duration(policies.timeout)} at most"
    return f"; a fire {words} while the one before is unfinished{most}"


def has_ignored_policies(listed: ListedSchedule) -> bool:
    """Return whether a server fires a schedule that has policies, and so without them."""
    return listed.fired_by is not FiredBy.SIDECAR and bool(policies_text(listed.terms.policies))
