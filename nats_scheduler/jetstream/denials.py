"""Read the server's `-ERR` lines about a permission that the sidecar's user lacks.

A denied publish gets no answer on its reply subject. The server only sends an `-ERR` line with the subject, in
quotes and escaped as Go writes them, and the connection stays open. So a request that waits for an answer has to be
failed because of this line, or it waits until its deadline.

The rule: a line that cannot be read is not a denial; the client library gets it, and ends the connection.
"""

import re
from typing import NamedTuple

from nats_scheduler.control.errors import ForbiddenError

_DENIAL = re.compile(rb"-ERR\s+'Permissions Violation for (Publish|Subscription) to \"((?:[^\"\\]|\\.)*)\"", re.I)
_ESCAPE = re.compile(rb"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))", re.S)
_OUR_NAMES = re.compile(r"(?<![^.])nats-scheduler-(?:[0-9a-f]{16}|sidecar-[0-9a-f]{32})(?![^.])")
"""Names of the sidecar's consumers and inboxes: each attempt makes another one."""

_SERVICE_SUBJECTS = re.compile(r"(\$SRV|nats_scheduler\.v1|nats_scheduler\.control\.v1)\.")

_ADVISORIES = "nats_scheduler.advisory."
"""The beginning of the subjects of advisories; each names another schedule."""

_LETTERS = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


class Denial(NamedTuple):
    """A permission that the sidecar's user does not have."""

    publishes: bool
    """True for a publish, False for a subscription."""
    subject: str

    @property
    def permission(self) -> "Denial":
        """The missing permission: the same for every attempt, although each uses another consumer or inbox name.

        It is one for all advisories, one for all subjects of the micro service that read, one for those that change
        something, and one for all inboxes to which it sends answers.
        """
        if self.publishes and self.subject.startswith(_ADVISORIES):
            return Denial(True, f"{_ADVISORIES}>")
        if self.publishes and self.subject.startswith("_"):
            return Denial(True, f"{self.subject.partition('.')[0]}.>")
        if shared := _SERVICE_SUBJECTS.match(self.subject):
            return Denial(self.publishes, f"{shared[1]}.>")
        return Denial(self.publishes, _OUR_NAMES.sub("*", self.subject))


def forbidden(subject: str) -> ForbiddenError:
    """Return the error of a request on a subject that the user may not publish to."""
    return ForbiddenError(f"{subject}: the sidecar's user lacks the permission to publish there", subject)


def read_denial(line: bytes) -> Denial | None:
    """Return what an `-ERR` line denies, None if it is about something else."""
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
