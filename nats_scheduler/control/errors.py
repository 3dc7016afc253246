"""The errors of this package: what a server, a sidecar or a stream did not do that was asked for, and who has to act.

The rule: an error is a class of its own if some caller handles it in another way; what else differs, its sentence says.
Outcomes that the engine must reason about are values (`engine.inputs`). The codes are those of the server's API.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from nats_scheduler.message.rejection import Rejection


class SchedulerError(Exception):
    """What was asked for was not done; the message is one sentence for people."""

    code: int | None = None
    """The server's error code (`err_code`), None if it has none for this."""

    may_be_done: bool = False
    """True if the request may be done all the same, as far as this error shows; a question changes nothing."""


# -- no answer: the network, the server or the operator of it acts ---------------------------------------------------


class NoAnswerError(SchedulerError):
    """There is no answer, or none that can be read; after a question, nothing was changed."""

    may_be_done = True


class DeadlineError(NoAnswerError):
    """No answer came in time."""


class ConnectionLostError(NoAnswerError):
    """The connection ended before an answer came."""


class NotConnectedError(NoAnswerError):
    """There is no connection, so nothing was sent: no server is reached, none takes the login, or it is unusable."""

    may_be_done = False


class NoRespondersError(NoAnswerError):
    """Nothing subscribes to the subject, so nothing was done: no JetStream, no leader of a stream, or no sidecar."""

    may_be_done = False


class UnknownOutcomeError(SchedulerError):
    """Nothing shows whether it was done; doing it again is safe."""

    may_be_done = True


@contextmanager
def maybe_done() -> Iterator[None]:
    """Raise `UnknownOutcomeError` in place of `NoAnswerError`: what was asked for may be done."""
    try:
        yield
    except NoAnswerError as error:
        raise UnknownOutcomeError(str(error)) from None


# -- an answer that refuses: the caller acts, or the operator ----------------------------------------------------------


class ForbiddenError(SchedulerError):
    """The user lacks a permission for it, or a rule does not allow it: nothing was done."""

    def __init__(self, message: str, subject: str = "") -> None:
        super().__init__(message)
        self.subject = subject
        """The subject to which the user may not publish; "" for another reason."""


class RefusedError(SchedulerError):
    """The server refused a request: nothing was done."""

    def __init__(self, status: int, code: int, description: str, request: str) -> None:
        super().__init__(f"{request}: {description} (server code {code})")
        self.status = status
        """As of HTTP."""
        self.code: int = code
        """The `err_code` that servers promise to keep, 0 for none."""
        self.description = description
        self.request = request


def too_large(subject: str, size: int, most: int) -> RefusedError:
    """Return the refusal of a message that a server would close the connection over: it is not sent."""
    description = f"message size exceeds maximum allowed: {size:,} bytes with headers, and the server takes {most:,}"
    return RefusedError(400, 10054, description, subject)


class RejectedError(SchedulerError):
    """The message would be no valid schedule, or the stream could not have any: nothing was stored."""

    def __init__(self, rejection: Rejection, where: str = "") -> None:
        super().__init__(f"{where}: {rejection}" if where else str(rejection))
        self.rejection = rejection
        """The header, its value, what was expected, and the server's code."""
        self.code = rejection.code


class NotPossibleError(SchedulerError):
    """It cannot be done as things are, such as resuming a schedule that is not paused; the message says what can."""


# -- another state of things than the caller took for granted ----------------------------------------------------------


class StreamNotFoundError(SchedulerError):
    """The stream does not exist."""

    code = 10059


class NotServedError(SchedulerError):
    """The stream has no schedules, or nothing fires them."""

    code = 10188


class NotFoundError(SchedulerError):
    """No schedule is stored on the subject."""

    code = 10037


class ConflictError(SchedulerError):
    """Another client changed the schedule at the same time, or it is another version than the caller expects."""

    code = 10071

    def __init__(self, message: str, sequence: int | None = None) -> None:
        super().__init__(message)
        self.sequence = sequence
        """The last message on the subject now, 0 for none; None if that is not known."""


class AlreadyExistsError(ConflictError):
    """Another schedule is stored on the subject already."""


class ReplacesUnfiredWarning(UserWarning):
    """Another body is about to replace a schedule that fires once and has not fired: as an error it prevents that."""
