"""Messages for which the server would hang up, or that it would carry out, are refused with a reason and not sent."""

import pytest

from nats_scheduler.control.errors import NotPossibleError, RefusedError
from nats_scheduler.engine.actions import PublishFires, PurgeSchedule, Report
from nats_scheduler.engine.events import FireRefused, ScheduleRejected
from nats_scheduler.message.rejection import MAX_KEPT_CHARS
from nats_scheduler.message.subjects import is_covered, is_literal_subject, is_valid_subject, subject_matches
from tests.conftest import SharedServer
from tests.engine.direct import Desk, schedule
from tests.harness.account import account_on
from tests.harness.servers import V2_11
from tests.hostile.effort import SECONDS_A_TEXT, at_most
from tests.hostile.texts import LONG, SUBJECTS


@pytest.mark.clause("hostile-subjects")
def test_a_schedule_on_a_wildcard_is_refused_before_it_purges() -> None:
    for subject in ("orders.>", ">", "*", "orders.*", "orders.*.x"):
        desk = Desk()
        desk.read(schedule("@every 1s", 8, subject), schedule("@every 1s", 9, subject))
        events = [action.event for action in desk.actions if isinstance(action, Report)]
        rejected = [(e.schedule, e.rejection.code) for e in events if isinstance(e, ScheduleRejected)]
        assert rejected == [(subject, 10190), (subject, 10190)]
        assert not [action for action in desk.at(60).actions if isinstance(action, PurgeSchedule | PublishFires)]


def fired(block: bytes) -> tuple[int, list[int]]:
    """Give how many fires of a schedule with this block are sent, and the codes of those refused."""
    message = schedule("@every 1s")._replace(block=block)
    desk = Desk(message)
    desk.at(1)
    desk.found(message)
    events = [action.event for action in desk.actions if isinstance(action, Report)]
    return len(desk.fires), [event.code for event in events if isinstance(event, FireRefused)]


@pytest.mark.clause("hostile-subjects")
def test_a_fire_on_a_target_that_cannot_be_published_to_is_refused() -> None:
    block = schedule("@every 1s", Nats_Schedule_Target="t.out").block
    targets = [f"$JS.{rest}" for rest in ("API.STREAM.DELETE.ORDERS", "hub.API.STREAM.DELETE.ORDERS", "ACK.x")]
    targets += ["$SYS.REQ.SERVER.PING", "t." + "k" * 4_000, "t." + "\udcff" * 3_600]
    for target in targets:
        assert fired(block.replace(b"t.out", target.encode("utf-8", "surrogateescape"))) == (0, [10190]), target


@pytest.mark.clause("size-limits")
def test_a_header_block_that_grew_over_the_limit_is_refused() -> None:
    blocks = {filling: schedule("@every 1s", Filling="x" * filling).block[: 65_535 - 2] for filling in (65_000, 65_500)}
    assert {filling: fired(block + b"\r\n") for filling, block in blocks.items()} == {
        65_000: (1, []),
        65_500: (0, [10097]),
    }


@pytest.mark.clause("hostile-subjects")
def test_no_subject_raises_or_is_dear() -> None:
    for name, subject in SUBJECTS.items():
        with at_most(SECONDS_A_TEXT, name):
            if is_literal_subject(subject):
                assert is_valid_subject(subject), name
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
        with pytest.raises(NotPossibleError):
            await account.api.stream("S" * 5_000)
        with pytest.raises(RefusedError, match="message size exceeds maximum allowed"):
            await connection.request("a", b"x" * (connection.server.max_payload + 1))
        with pytest.raises(NotPossibleError):
            connection.subscribe("s" * 5_000, lambda *_message: None)
        assert not connection.publish("a" * 5_000, b"")
        assert not connection.publish("a", b"x" * (connection.server.max_payload + 1))
        await account.api.info()
        assert not connection.is_lost
