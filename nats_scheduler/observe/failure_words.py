"""What an advisory says in a few words, for people who read what went wrong.

Rule: the command `failures` and the status page use the same words.
"""

from collections.abc import Mapping
from typing import Any


def what_happened(body: Mapping[str, Any]) -> str:
    """Return what an advisory says in a few words: its code, its reason, and the times that belong to them."""
    parts = [
        f"{body[key]}" if key == "reason" else f"{label} {body[key]}" for key, label in SHOWN.items() if key in body
    ]
    return "; ".join(parts)


SHOWN = {
    "lateness": "late by",
    "header": "header",
    "code": "code",
    "reason": "",
    "due": "due",
    "ends": "ends",
    "since": "since",
    "make_up_fire": "make-up fire",
    "dropped": "dropped",
    "policy": "policy",
    "instance": "instance",
    "key": "key",
}
"""The keys of advisories that a row shows, in this order, and the word before each."""
