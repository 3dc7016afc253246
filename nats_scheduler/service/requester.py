"""Ask a sidecar one question, on behalf of a program that shows or uses the answer.

The rule: an error is a sentence for people, and its class says what a program can do about it. Any client may answer in
place of a sidecar, so what an answer says is read by its model (`service.schemas.read_answer`).
Cost: one request. Limit: an answer is one message, so it is never longer than the server takes.
"""

import json
from collections.abc import Mapping

from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.errors import (
    ConnectionLostError,
    JetStreamError,
    NoAnswerError,
    NoJetStreamError,
    NotPermittedError,
    UnsendableError,
)
from nats_scheduler.jetstream.foreign_json import Object, read_object
from nats_scheduler.service.endpoint import SUBJECTS
from nats_scheduler.service.micro import BAD_REQUEST, FORBIDDEN, error_of


class QuestionError(Exception):
    """A request has no answer; the text is a sentence for people."""


class NotConnectedError(QuestionError):
    """There is no connection to NATS."""


class NothingSubscribesError(QuestionError):
    """Nothing subscribes to the endpoint: no sidecar runs, or none that has it."""


class NotAnsweredError(QuestionError):
    """No answer came in time."""


class RefusedError(QuestionError):
    """A sidecar answered with an error of the micro service, or the request cannot be sent."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class UnreadableError(QuestionError):
    """The answer has another form: a sidecar of another version, or another program, sent it."""

    def __init__(self, sentence: str = "the sidecar answers in a form that this version cannot read") -> None:
        super().__init__(sentence)


async def ask(
    connection: Connection, endpoint: str, request: Mapping[str, object], seconds: float, user: str = "this user"
) -> Object:
    """Send a request to `nats_scheduler.v1.<endpoint>` and return the object that is answered; raises `QuestionError`.

    No answer is expected after `seconds`; `user` is who is named if the permission to ask is missing.
    """
    try:
        reply = await connection.request(f"{SUBJECTS}.{endpoint}", json.dumps(request).encode(), deadline=seconds)
    except NoJetStreamError:
        raise NothingSubscribesError("nothing subscribes to its requests") from None
    except NoAnswerError:
        raise NotAnsweredError(f"no sidecar answered within {seconds:.0f} s") from None
    except NotPermittedError:
        raise RefusedError(FORBIDDEN, f"{user} may not publish to {SUBJECTS}.{endpoint}") from None
    except ConnectionLostError as error:
        raise NotConnectedError(str(error)) from None
    except UnsendableError:
        raise RefusedError(BAD_REQUEST, "the request is too long for the server") from None
    except JetStreamError as error:
        raise NotAnsweredError(str(error)) from None
    if reply.block:
        raise RefusedError(*error_of(reply.block))
    answer = read_object(reply.body)
    if answer is None:
        raise UnreadableError("something answers in place of a sidecar, with what is no JSON object")
    return answer
