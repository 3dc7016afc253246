"""Read what the server says where our user lacks a permission.

A denied publish gets no answer on its reply subject; the one thing that comes is an `-ERR` line with the subject, in
quotes and escaped as Go writes them, and the connection goes on.
So whoever awaits an answer on that subject has to be told from this line, or waits in vain.

The rule: what cannot be read is no denial, and is left to the client library, which ends the connection.
"""

import re
from typing import NamedTuple

_DENIAL = re.compile(rb"-ERR\s+'Permissions Violation for (Publish|Subscription) to \"((?:[^\"\\]|\\.)*)\"", re.I)
_ESCAPE = re.compile(rb"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))", re.S)
_OUR_NAMES = re.compile(r"(?<![^.])nats-scheduler-(?:[0-9a-f]{16}|sidecar-[0-9a-f]{32})(?![^.])")
"""Of consumers, and of inboxes: another one is made at each attempt."""

_LETTERS = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


class Denial(NamedTuple):
    """What our user may not do."""

    publishes: bool
    """Whether it is about a publish; else about a subscription."""
    subject: str

    @property
    def permission(self) -> "Denial":
        """The permission that lacks: the same however often it is tried, under whatever names of our own making."""
        return Denial(self.publishes, _OUR_NAMES.sub("*", self.subject))


def read_denial(line: bytes) -> Denial | None:
    """Return what an `-ERR` line denies us, None where it is about something else."""
    found = _DENIAL.match(line)
    if found is None:
        return None
    subject = _ESCAPE.sub(_unescaped, found[2])
    return Denial(found[1].lower() == b"publish", subject.decode("utf-8", "surrogateescape"))


def _unescaped(escape: re.Match[bytes]) -> bytes:
    byte, short, long, letter = escape.groups()
    if byte is not None:
        return bytes.fromhex(byte.decode())
    if letter is not None:
        return _LETTERS.get(letter, letter)
    return chr(min(int(short or long, 16), 0x10FFFF)).encode("utf-8", "replace")
