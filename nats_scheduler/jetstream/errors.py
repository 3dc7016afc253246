"""The errors that can occur between this process and JetStream, each with what has to happen then.

Outcomes that the engine must reason about are values (`engine.inputs`); exceptions are for everything else.
"""

import re
from typing import NamedTuple

from nats.errors import ProtocolError

# Read the server's `-ERR` lines about a permission that the sidecar's user lacks.
#
# A denied publish gets no answer on its reply subject. The server only sends an `-ERR` line with the subject, in
# quotes and escaped as Go writes them, and the connection stays open. So a request that waits for an answer has to be
# failed because of this line, or it waits until its deadline.
#
# The rule: a line that cannot be read is not a denial; the client library gets it, and ends the connection.

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


class FrameError(ProtocolError):
    """What a server sends is not the protocol, or not what it announced; the connection cannot be read any further."""

    def __str__(self) -> str:
        return str(self.args[0])


TEMPORARY_STATUS = 503
"""The server's status for "not now": no leader, a shutdown, a lack of resources."""


class JetStreamError(Exception):
    """Any failure between this process and JetStream."""


class ConnectError(JetStreamError):
    """No server could be reached, or none accepted the login. The operator acts, or the network recovers."""


class CredentialsError(ConnectError):
    """The credentials cannot be used with any server: a file is missing or holds something else. The operator acts."""


class ConnectionLostError(JetStreamError):
    """The connection ended before the answer came: whether the request took effect is unknown."""


class NoAnswerError(JetStreamError):
    """No answer within the deadline: whether the request took effect is unknown."""


class UnreadableAnswerError(JetStreamError):
    """The answer cannot be read: another client may have sent it. Whether the request took effect is unknown."""


class UnsendableError(JetStreamError):
    """The request was not sent, because the server would close the connection over it: subject or body is too long."""


class NoJetStreamError(JetStreamError):
    """JetStream does not subscribe to its subjects: it is off, or off for this account. The operator acts."""


class NotPermittedError(JetStreamError):
    """The user may not publish this request, which therefore did nothing. The operator acts."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"{subject}: the sidecar's user lacks the permission to publish there")
        self.subject = subject

    @property
    def permission(self) -> Denial:
        """The missing permission: the same for every attempt."""
        return Denial(True, self.subject).permission


class ApiError(JetStreamError):
    """The server refused a request, with its own code.

    `status` is the HTTP-like code, `code` the `err_code` that servers promise to keep.
    """

    def __init__(self, status: int, code: int, description: str, request: str) -> None:
        super().__init__(f"{request}: {description} (server code {code})")
        self.status = status
        self.code = code
        self.description = description
        self.request = request
