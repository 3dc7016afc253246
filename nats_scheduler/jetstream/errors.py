"""What can go wrong between this process and JetStream, named by who must act.

Outcomes that the engine must reason about are values (`engine.outcomes`); exceptions are for everything else.
"""


class JetStreamError(Exception):
    """Any failure of this room."""


class ConnectError(JetStreamError):
    """No server could be reached, or none let us in. The operator acts, or the network heals."""


class CredentialsError(ConnectError):
    """What we log in with cannot be used, whatever the server says: a file is missing or holds something else."""


class ConnectionLostError(JetStreamError):
    """The connection ended while an answer was awaited: whether the request took effect is unknown."""


class ConsumerLostError(JetStreamError):
    """The consumer through which a bucket was followed is gone; another one may be made."""


class NoAnswerError(JetStreamError):
    """No answer within the deadline: whether the request took effect is unknown."""


class LeaderBehindError(JetStreamError):
    """The leader of the stream may not know yet what was asked for: its answer proves nothing. Time heals."""


class UnreadableAnswerError(JetStreamError):
    """What came as an answer is none: somebody else may have answered. Whether the request took effect is unknown."""


class UnsendableError(JetStreamError):
    """The server would hang up over this request, so that it is not sent: its subject or body is too long."""


class NoJetStreamError(JetStreamError):
    """Nobody listens where JetStream should: it is off, or off for this account. The operator acts."""


class NotPermittedError(JetStreamError):
    """Our user may not publish this request, which therefore did nothing. The operator acts."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"{subject}: our user lacks the permission to publish there")
        self.subject = subject


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
