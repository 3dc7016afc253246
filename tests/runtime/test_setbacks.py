"""Setbacks that only an operator can mend are reported once and retried seldom; others are retried soon, each time
with a report."""

from nats_scheduler.jetstream.api import consumer_name
from nats_scheduler.jetstream.errors import JetStreamError, NoAnswerError, NotPermittedError
from nats_scheduler.runtime.work import RETRY_WAIT_LIMIT_SECONDS, Setbacks


def denied(stream: str = "ORDERS") -> NotPermittedError:
    """Be denied another consumer."""
    return NotPermittedError(f"$JS.API.CONSUMER.CREATE.{stream}.{consumer_name()}")


class Work:
    """Work that fails."""

    def __init__(self) -> None:
        self.reported: list[str] = []
        self.setbacks = Setbacks(1.0, lambda reason: self.reported.append(reason))

    def fails(self, error: JetStreamError) -> tuple[bool, float]:
        """Return whether a failure is reported, and how long the wait is then."""
        before = len(self.reported)
        self.setbacks.failed(error)
        return len(self.reported) > before, self.setbacks.wait_seconds


def test_what_may_heal_is_tried_soon_and_told_each_time() -> None:
    work = Work()
    assert [work.fails(NoAnswerError("none")) for _ in range(3)] == [(True, 1.0)] * 3
    assert work.reported == ["none"] * 3


def test_a_missing_permission_is_told_once_and_tried_more_and_more_seldom() -> None:
    work = Work()
    waits = [1.0, 2.0, 4.0, 8.0, RETRY_WAIT_LIMIT_SECONDS, RETRY_WAIT_LIMIT_SECONDS]
    assert [work.fails(denied()) for _ in waits] == [(wait == 1.0, wait) for wait in waits]


def test_another_failure_is_news_and_begins_anew() -> None:
    work = Work()
    for _ in range(4):
        work.fails(denied())
    errors = (denied("OTHER"), NoAnswerError("none"), denied("OTHER"))
    assert [work.fails(error) for error in errors] == [(True, 1.0)] * 3
