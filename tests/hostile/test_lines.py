"""A flood of mistakes is counted whole and logged in part, and no log line carries a terminal's orders."""

import json
from typing import Literal

import pytest

from nats_scheduler.engine.events import ScheduleRejected
from nats_scheduler.jetstream.request_watch import ConfigRequested
from nats_scheduler.message.rejection import MAX_KEPT_CHARS, PATTERN_INVALID
from nats_scheduler.observe.log import MAX_LINES, Allowance, configure_logging, logger
from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.last_requests import LastRequests
from tests.harness.log_lines import capture_logs
from tests.harness.waiting import eventually

pytestmark = pytest.mark.clause("hostile-headers")

REJECTED = ScheduleRejected("s", 1, PATTERN_INVALID.rejection("Nats-Schedule", "x" * 60_000, "is " + "y" * 60_000))


async def test_so_many_lines_then_one_that_says_how_many_were_left_out() -> None:
    left_out: list[tuple[str, str, int]] = []
    allowance = Allowance(lambda *line: left_out.append(line), period=0.05)
    granted = [allowance.grants("rejected", "S") for _ in range(MAX_LINES + 7)]
    assert granted == [True] * MAX_LINES + [False] * 7
    assert allowance.grants("rejected", "T")
    await eventually(lambda: left_out == [("rejected", "S", 7)])
    assert allowance.grants("rejected", "S")


async def test_every_rejection_is_counted_and_few_are_logged_and_advised() -> None:
    metrics, advisories = Metrics(), list[bytes]()
    reporter = Reporter(metrics)
    reporter.advise = lambda message: advisories.append(message.body)
    with capture_logs() as lines:
        for _ in range(5 * MAX_LINES):
            reporter.report("S", REJECTED)
            reporter.problem("flag_not_in_force", stream="S")
    assert [sum(line["event"] == event for line in lines) for event in ("schedule_rejected", "flag_not_in_force")] == [
        MAX_LINES,
        MAX_LINES,
    ]
    assert metrics.value("schedules_rejected", stream="S", code="10189") == 5 * MAX_LINES
    assert len(advisories) == MAX_LINES
    assert max(map(len, advisories)) < 4 * MAX_KEPT_CHARS
    assert len(json.loads(advisories[0])["value"]) == MAX_KEPT_CHARS


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_a_publisher_wrote_cannot_steer_a_terminal(
    form: Literal["text", "json"], capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(form, "info")
    logger().warning("schedule_rejected", value="\x1b[2J\x9b31m\r\nforged\0\udcff", sound="größe *")
    line = capsys.readouterr().err
    assert line.endswith("\n")
    assert line.removesuffix("\n").isprintable()
    assert line.count("forged") == 1
    assert "größe" in line or "gr\\u00f6\\u00dfe" in line


def test_what_was_settled_is_not_kept() -> None:
    """A flood of requests for streams of any name leaves nothing behind."""
    requests = LastRequests(lambda: 0.0)
    for number in range(1_000):
        request = ConfigRequested(f"S{number}", {"name": f"S{number}"}, creates=True)
        requests.seen(request)
        if number % 2:
            requests.discard(request.stream)
        requests.settled(request)
        assert not requests.may_be_undone(request)
    assert not requests._seen
    assert not requests._waited_for
