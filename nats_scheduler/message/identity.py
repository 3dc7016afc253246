"""The identity of a fire: its schedule, the version of the schedule, and the fire time.

Rule: every instance computes the same identity for the same fire, from the stored schedule alone.
It is sent as `Nats-Msg-Id`. So the server discards a repeated fire within its duplicate window, and a program that
reads the stream later can see exactly which fires happened. The sequence is before the subject, because a subject may
contain colons.
Any client can write an identity, and store a message with it before the fire. Then the fire gets another identity,
which contains the sequence of that message: every instance that tries the first identity finds the same message, until
that leaves the duplicate window (`engine.holding.claimed_fires.free_soon`).
If the server refused a message and keeps its identity, the next identity contains the sequence of the schedule. So the
next identity follows from the one before and from the server's answer to it (`number_after`), and every instance takes
the same way to what is stored.
A fire that was requested is stored *beside* its schedule: it has an identity of another form, which no fire of the
timetable has, and so it changes nothing of the schedule.
Limit: a message id is only compared inside the stream's duplicate window.
"""

import re

IDENTITY_PREFIX = "nats-scheduler:"
# No leading zeros and a limited length: a foreign id must be rejected quickly, and only what `fire_identity` writes is
# one.
_FORM = re.compile(r"nats-scheduler:(0|[1-9][0-9]{0,19})(?:/[1-9][0-9]{0,19})?:(0|-?[1-9][0-9]{0,39}):(.+)", re.DOTALL)

_BESIDE = re.compile(r"nats-scheduler:beside:(0|[1-9][0-9]{0,19}):(0|-?[1-9][0-9]{0,39}):(.+)", re.DOTALL)


def fire_identity(schedule: str, sequence: int, fire_time: int, taken: int = 0) -> str:
    """Write the identity of a fire.

    `schedule` is the subject of the schedule, `sequence` the stream sequence of its message (0 to 2^64 - 1) and
    `fire_time` the time at which it was due, in nanoseconds since the Unix epoch. `taken` is 0 for the first identity,
    and for any other one its number (`number_after`).
    """
    version = f"{sequence}/{taken}" if taken else sequence
    return f"{IDENTITY_PREFIX}{version}:{fire_time}:{schedule}"


def number_after(taken: int, sequence: int, message: int = 0) -> int:
    """Return the number of the identity after the one with number `taken`; numbers only grow.

    `sequence` is that of the schedule. `message` is the sequence of the message that has the identity and is not the
    fire; 0 if no message has it, and the server keeps it because it refused one.
    """
    return max(message or sequence, taken + 1) if taken else message or sequence


def parse_identity(text: str) -> tuple[str, int, int] | None:
    """Parse an identity as (schedule, sequence, fire time); None for any other message id."""
    if not text.startswith(IDENTITY_PREFIX):
        return None
    match = _FORM.fullmatch(text)
    return match and (match[3], int(match[1]), int(match[2]))


def beside_identity(schedule: str, sequence: int, fire_time: int) -> str:
    """Write the identity of a fire that was requested; the parameters are those of `fire_identity`."""
    return f"{IDENTITY_PREFIX}beside:{sequence}:{fire_time}:{schedule}"


def parse_beside(text: str) -> tuple[str, int, int] | None:
    """Parse such an identity as (schedule, sequence, fire time); None for any other message id."""
    match = _BESIDE.fullmatch(text) if text.startswith(IDENTITY_PREFIX) else None
    return match and (match[3], int(match[1]), int(match[2]))
