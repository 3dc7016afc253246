"""Why a schedule was not changed: one type for each thing that a caller may want to handle.

The codes are those of the server's API, if the server has one for it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from nats_scheduler.message.rejection import Rejection


class ScheduleError(Exception):
    """A schedule was not read or not changed; the message is one sentence for people."""

    code: int | None = None
    """The server's error code (`err_code`), None if it has none for this."""


class StreamNotFoundError(ScheduleError):
    """The stream does not exist."""

    code = 10059


class NotServedError(ScheduleError):
    """The stream has no schedules, or nothing fires them."""

    code = 10188


class NotFoundError(ScheduleError):
    """No schedule is stored on the subject."""

    code = 10037


class ConflictError(ScheduleError):
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


class RejectedError(ScheduleError):
    """The message would be no valid schedule: nothing was stored."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(str(rejection))
        self.rejection = rejection
        """The header, its value, what was expected, and the server's code."""
        self.code = rejection.code


class RefusedError(ScheduleError):
    """The server refused it: nothing was stored or deleted."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class ForbiddenError(ScheduleError):
    """The user lacks a permission for it, or a rule does not allow it."""


class NoAnswerError(ScheduleError):
    """The server does not answer: nothing was changed."""


class UnknownOutcomeError(ScheduleError):
    """Nothing shows whether it was done; doing it again is safe."""


@contextmanager
def maybe_done() -> Iterator[None]:
    """Raise `UnknownOutcomeError` in place of `NoAnswerError`: what was asked for may be done."""
    try:
        yield
    except NoAnswerError as error:
        raise UnknownOutcomeError(str(error)) from None


class NotPossibleError(ScheduleError):
    """The operation cannot be done to this schedule as it is, such as resuming one that is not paused."""
