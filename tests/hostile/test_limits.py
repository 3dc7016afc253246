"""Messages for which the server would hang up, or that it would carry out, are refused with a reason and not sent."""

import pytest

from nats_scheduler.engine.actions import PublishFires, PurgeSchedule, Report
from nats_scheduler.engine.events import FireRefused, ScheduleRejected
from nats_scheduler.jetstream.errors import UnsendableError
from nats_scheduler.message.rejection import MAX_KEPT_CHARS
from nats_scheduler.message.subjects import is_covered, is_literal_subject, is_valid_subject, subject_matches
from tests.conftest import SharedServer
from tests.engine.direct import Desk, schedule
from tests.harness.account import account_on
from tests.harness.servers import V2_11
from tests.hostile.effort import SECONDS_A_TEXT, at_most
from tests.hostile.texts import LONG, SUBJECTS

AT = "@at 2026-01-01T00:00:05Z"


def rejections(desk: Desk) -> list[tuple[str, int]]:
    events = [action.event for action in desk.actions if isinstance(action, Report)]
    return [(event.schedule, event.rejection.code) for event in events if isinstance(event, ScheduleRejected)]


def fired(desk: Desk) -> tuple[int, list[int]]:
    """Give how many fires were sent, and the codes of those refused."""
    events = [action.event for action in desk.actions if isinstance(action, Report)]
    return len(desk.fires), [event.code for event in events if isinstance(event, FireRefused)]


@pytest.mark.clause("hostile-subjects")
@pytest.mark.parametrize("subject", ["orders.>", ">", "*", "orders.*", "orders.*.x"])
def test_a_schedule_on_a_wildcard_is_refused_before_it_purges(subject: str) -> None:
    first, second = schedule("@every 1s", 8, subject), schedule("@every 1s", 9, subject)
    desk = Desk()
    desk.read(first, second)
    assert rejections(desk) == [(subject, 10190), (subject, 10190)]
    assert not [action for action in desk.at(60).actions if isinstance(action, PurgeSchedule | PublishFires)]


@pytest.mark.clause("hostile-subjects")
@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("$JS.API.STREAM.DELETE.ORDERS", 10190),
        ("$JS.hub.API.STREAM.DELETE.ORDERS", 10190),
        ("$JS.ACK.x", 10190),
        ("$SYS.REQ.SERVER.PING", 10190),
        ("t." + "k" * 4_000, 10190),
        ("t." + "\udcff" * 3_600, 10190),
    ],
)
def test_a_fire_on_a_target_that_cannot_be_published_to_is_refused(target: str, code: int) -> None:
    message = schedule("@every 1s", Nats_Schedule_Target="t.out")
    message = message._replace(block=message.block.replace(b"t.out", target.encode("utf-8", "surrogateescape")))
    desk = Desk(message)
    desk.at(1)
    desk.found(message)
    assert fired(desk) == (0, [code])


@pytest.mark.clause("size-limits")
@pytest.mark.parametrize(("filling", "expected"), [(65_000, (1, [])), (65_500, (0, [10097]))])
def test_a_header_block_that_grew_over_the_limit_is_refused(filling: int, expected: tuple[int, list[int]]) -> None:
    message = schedule("@every 1s", Filling="x" * filling)
    message = message._replace(block=message.block[: 65_535 - 2] + b"\r\n")
    desk = Desk(message)
    desk.at(1)
    desk.found(message)
    assert fired(desk) == expected


@pytest.mark.clause("hostile-subjects")
@pytest.mark.parametrize("name", SUBJECTS)
def test_no_subject_raises_or_is_dear(name: str) -> None:
    subject = SUBJECTS[name]
    with at_most(SECONDS_A_TEXT):
        if is_literal_subject(subject):
            assert is_valid_subject(subject)
        is_covered(subject, ("orders.>", "*.b", "a.*.c.>"))
        subject_matches(subject, "orders.>")
        subject_matches("orders.new", subject)


@pytest.mark.clause("hostile-headers")
def test_what_is_kept_of_rejected_schedules_is_short() -> None:
    desk = Desk(*(schedule("1," * (LONG // 2), number, f"s.{number}") for number in range(1, 20)))
    assert len(desk.engine.inactive.rejected) == 19
    for one in desk.engine.inactive.rejected.values():
        texts = one.rejection.value, one.rejection.reason, one.pattern, one.target
        assert max(map(len, texts)) <= MAX_KEPT_CHARS


@pytest.mark.clause("size-limits")
async def test_a_request_that_the_server_would_hang_up_over_is_not_sent(shared_server: SharedServer) -> None:
    async with account_on((await shared_server(V2_11)).url) as account:
        connection = account.connection
        with pytest.raises(UnsendableError):
            await account.api.stream("S" * 5_000)
        with pytest.raises(UnsendableError):
            await connection.request("a", b"x" * (connection.server.max_payload + 1))
        with pytest.raises(UnsendableError):
            connection.subscribe("s" * 5_000, lambda *_message: None)
        assert not connection.publish("a" * 5_000, b"")
        assert not connection.publish("a", b"x" * (connection.server.max_payload + 1))
        await account.api.info()
        assert not connection.is_lost
