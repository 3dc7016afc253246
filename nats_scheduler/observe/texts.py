"""Policies, advisories and texts of others as people read them, in tables, warnings and answers.

Rule: a text of others cannot contain a terminal command.
"""

import shlex
from collections.abc import Mapping
from typing import Any

from nats_scheduler.control.changed_parts import ChangedParts
from nats_scheduler.message.dialect import PORTABLE, Dialect
from nats_scheduler.message.paused import paused_name
from nats_scheduler.message.policies import Policies, policy_words
from nats_scheduler.observe.times import fewer_digits
from nats_scheduler.schedule.clock_changes import ClockChange
from nats_scheduler.schedule.explain import explain_pattern, interval_words
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.patterns import Pattern


def how_to_resume(stream: str, subject: str, dialect: Dialect) -> str:
    """Return what to do to resume a paused schedule in a dialect: by our command, or with any client."""
    command = shlex.join(["nats-scheduler", "resume", stream, subject])
    by_hand = f"publish its message again with {paused_name(dialect).decode()} renamed to {dialect.schedule.decode()}"
    return f"{command}; or {by_hand}"


def printable(text: str) -> str:
    """Return text with every character that is not printable escaped."""
    return text if text.isprintable() else repr(text)[1:-1]


def takeover_text(reason: str, before: str) -> str:
    """Return why an instance owns a stream, whose owner before it was `before`, "" for none."""
    one = before or "another one"
    texts = {
        "first": "the first owner",
        "order": f"ahead of {one} in the order",
        "left": f"{one} left",
        "gone": f"{one} was gone",
        "not_ready": f"{one} was not ready",
        "unable": f"{one} was unable",
        "idle": f"{one} fired nothing",
    }
    return texts.get(reason, reason)


SERVER_ALONE = (
    "no sidecar is running: the server fires by itself; `nats-scheduler run` beside it adds "
    f"{PORTABLE.schedule.decode()} with policies, metrics and alerts, a record of changes, and the page"
)


def schedule_words(pattern: Pattern, policies: Policies, stored_at: int) -> str:
    """Return in plain words when a stored schedule fires, its policies included."""
    return explain_pattern(pattern, stored_at) + policy_words(policies)


_CLOCK_CHANGES: Mapping[str, str] = {
    ClockChange.MOVED: "moved",
    ClockChange.AFTER_GAP: "after a gap",
    ClockChange.FIRST_OF_TWO: "first of two",
    ClockChange.SECOND_OF_TWO: "second of two",
}


def clock_change_text(change: str | None, shift: int) -> str:
    """Return what a change of the clock, by seconds, does to a fire: `moved: the clock goes forward 1 hour`."""
    if change is None:
        return ""
    words = interval_words(abs(shift) * SECOND)
    amount = words if words[0].isdigit() else f"1 {words}"
    return f"{_CLOCK_CHANGES.get(change, change)}: the clock goes {'forward' if shift > 0 else 'back'} {amount}"


def parts_text(parts: ChangedParts) -> str:
    """Return what a change made of a schedule: `pattern: @every 1h → @every 2h, header Kind, body`."""
    texts = [f"{one.name}: {_value_text(one.before)} → {_value_text(one.after)}" for one in parts.fields]
    texts += [f"header {name}" for name in parts.headers]
    return ", ".join([*texts, "body"] if parts.has_other_body else texts)


def _value_text(value: str | None) -> str:
    return "none" if value is None else value


def what_happened(body: Mapping[str, Any]) -> str:
    """Return what an advisory says in a few words: its code, its reason, and the times that belong to them.

    The commands, `top` and the status page use the same words; no time in them has more than milliseconds.
    """
    parts = [
        f"{body[key]}" if key == "reason" else f"{label} {body[key]}" for key, label in SHOWN.items() if key in body
    ]
    return fewer_digits("; ".join(parts))


SHOWN = {
    "lateness": "late by",
    "header": "header",
    "code": "code",
    "reason": "",
    "due": "due",
    "within": "to be done within",
    "stored_as": "stored as",
    "ends": "ends",
    "since": "since",
    "replaced_by": "replaced by sequence",
    "make_up_fire": "make-up fire",
    "dropped": "dropped",
    "policy": "policy",
    "instance": "instance",
    "key": "key",
}
"""The keys of advisories that a row shows, in this order, and the word before each."""
