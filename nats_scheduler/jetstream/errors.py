"""The errors that can occur between this process and JetStream, each with what has to happen then.

Outcomes that the engine must reason about are values (`engine.inputs`); exceptions are for everything else.
"""

from nats.errors import ProtocolError

from nats_scheduler.jetstream.denials import Denial


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


class RequestUnansweredError(JetStreamError):
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
