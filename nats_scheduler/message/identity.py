"""The identity of a fire: which schedule, which version of it, which fire time.

Rule: every instance computes the same identity for the same fire, from the stored schedule alone. It travels
as `Nats-Msg-Id`, so the server's duplicate window swallows a repeated fire, and whoever reads the stream
later knows exactly which fires happened. The sequence stands before the subject because a subject may hold
colons.
Anybody can write an identity, and store something under it before the fire. Then the fire takes another one, in which
the sequence of what has taken the first stands: whoever tries the first finds the same.
Limit: a message id is only compared inside the stream's duplicate window.
"""

import re

_PREFIX = "nats-scheduler:"
# No leading zeros, and bounded: a foreign id must not cost more than a glance, and only our own text parses.
_FORM = re.compile(r"nats-scheduler:(0|[1-9][0-9]{0,19})(?:/[1-9][0-9]{0,19})?:(0|-?[1-9][0-9]{0,39}):(.+)", re.DOTALL)


def fire_identity(schedule: str, sequence: int, fire_time: int, taken: int = 0) -> str:
    """Write the identity of a fire.

    `schedule` is the subject of the schedule, `sequence` the stream sequence of its message (0 to 2^64 - 1),
    `fire_time` the instant it was due, in nanoseconds since the Unix epoch. `taken` is the sequence of a message that
    has taken the identity before and is not the fire.
    """
    version = f"{sequence}/{taken}" if taken else sequence
    return f"{_PREFIX}{version}:{fire_time}:{schedule}"


def parse_identity(text: str) -> tuple[str, int, int] | None:
    """Read an identity back as (schedule, sequence, fire time); None for any other message id."""
    if not text.startswith(_PREFIX):
        return None
    match = _FORM.fullmatch(text)
    return match and (match[3], int(match[1]), int(match[2]))
