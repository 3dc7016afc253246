"""A stranger publishes anything, and much of it, into a served stream and at the API: others still fire on their grid.

Real servers, a real sidecar.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from nats_scheduler.engine.events import ScheduleAccepted, ScheduleRejected
from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.message.headers import header_value
from nats_scheduler.runtime.sidecar import SENDING_STANDSTILL_LIMIT_NS
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import in_seconds
from tests.harness.flagged import Served, served_on
from tests.harness.log_lines import capture_logs
from tests.harness.loop_pauses import LoopPauses
from tests.harness.seeds import draws, generator
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually
from tests.hostile.flood import Sent, message

MESSAGES = draws(800)
AT_ONCE = 100
EVERY_SECONDS = 3
"""Longer than the pauses of a shared machine, which would make a shorter interval miss a fire now and then."""
LOOK_INTERVAL_SECONDS = 0.1
MIN_STANDSTILL_SECONDS = SENDING_STANDSTILL_LIMIT_NS / SECOND - 0.2
"""What may have had the sidecar end its connection: both look at most a tenth of a second apart."""
ODD_LITERALS = ("*a", "x>", ">y", "kept.é")
BROKEN = ("engine_failed", "task_failed", "connection_lost", "contact_lost", "jetstream_unavailable")


async def pour(connection: Connection, sent: Sequence[Sent]) -> dict[int, bytes]:
    """Publish all of it, and return the answers by number; what nobody takes has an empty one."""
    inbox, answers = connection.inbox("flood"), dict[int, bytes]()

    def answered(subject: bytes, _reply: bytes, _block: bytes, body: bytes) -> None:
        answers[int(subject.split(b".")[-1])] = body

    number = connection.subscribe(f"{inbox}.*", answered)
    frames = [frame(one.subject, f"{inbox}.{n}", one.block, one.body) for n, one in enumerate(sent)]
    for start in range(0, len(frames), AT_ONCE):
        batch = frames[start : start + AT_ONCE]
        connection.write(b"".join(batch))
        count = start + len(batch)
        await eventually(lambda count=count: len(answers) >= count)  # type: ignore[misc]
    connection.unsubscribe(number)
    return answers


def damage(lines: list[dict[str, Any]], name: str, *, stood_still: bool) -> list[dict[str, Any]]:
    """Return the lines of a log that say that something is broken.

    Another stream of a server that tests share may have just been found: a flooded server answers for it later.
    A sidecar ends its connection after a standstill; that is no damage if the machine stood still, and not we.
    """
    found = [line for line in lines if line["event"] in BROKEN and line.get("stream", name) == name]
    return [line for line in found if not (stood_still and "stood still" in line.get("reason", ""))]


async def all_are_judged(served: Served, sent: Sequence[Sent]) -> set[int]:
    """Pour messages, wait until each schedule is accepted or rejected, and return them."""
    answers = await pour(served.account.connection, sent)
    judged = {seq for n, one in enumerate(sent) if (seq := sequence_of(answers[n])) and is_a_schedule(one)}

    def missing() -> set[int]:
        return judged - {event.sequence for kind in (ScheduleAccepted, ScheduleRejected) for event in served.of(kind)}

    await eventually(lambda: not missing(), describe=lambda: f"{missing()} neither accepted nor rejected")
    return judged


@pytest.mark.clause("hostile-patterns", "hostile-headers", "hostile-subjects")
async def test_whatever_is_poured_into_a_stream_the_others_fire(served: Served) -> None:
    random = generator(__name__)
    sent = [message(random, served.name, number) for number in range(MESSAGES)]
    connection, pauses = served.sidecar.sidecar.connection, LoopPauses(LOOK_INTERVAL_SECONDS)
    with capture_logs() as lines:
        await served.schedule("canary", f"@every {EVERY_SECONDS}s", target="song")
        await served.wait_for("song")
        judged = await all_are_judged(served, sent)
        fires = await served.wait_for("song", len(await served.messages("song")) + 2)
        await served.none_left_out(fires, "canary", EVERY_SECONDS * SECOND)
    pauses.end()
    stood_still = pauses.longest_standstill > MIN_STANDSTILL_SECONDS
    assert damage(lines, served.name, stood_still=stood_still) == []
    assert stood_still or served.sidecar.sidecar.connection is connection
    assert len(judged) > MESSAGES // 2
    codes = {event.rejection.code for event in served.of(ScheduleRejected)}
    assert codes >= {10189, 10190, 10191, 10192, 10203, 10223}


def sequence_of(answer: bytes) -> int:
    """Give the sequence under which a message was stored, 0 where it was not."""
    said = json.loads(answer or b"{}")
    return 0 if "error" in said else int(said.get("seq", 0))


def is_a_schedule(sent: Sent) -> bool:
    """Return whether a message with a sound end carries a schedule; if the end is cut, a consumer may see another."""
    return sent.block.endswith(b"\r\n\r\n") and bool(header_value(sent.block, b"Nats-Schedule"))


# -- odd subjects ------------------------------------------------------------------------------------------------------


@pytest.mark.clause("hostile-subjects")
async def test_a_schedule_on_a_wildcard_removes_nothing(served: Served) -> None:
    kept = [await served.publish(f"kept.{number}") for number in range(3)]
    kept.append(await served.publish("ba"))
    for rest in (">", "*", "kept.*") * 2:
        await served.schedule(rest, f"@at {in_seconds(0.3)}")
    for rest in ODD_LITERALS:
        await served.schedule(rest, f"@at {in_seconds(0.3)}", target=f"fired.{rest}")
    for rest in ODD_LITERALS:
        await served.wait_for(f"fired.{rest}")
        await served.gone(rest)
    await served.canary(0.3)
    assert {event.rejection.code for event in served.of(ScheduleRejected)} == {10190}
    assert all([await served.account.api.message(served.name, seq=sequence) for sequence in kept])


@pytest.mark.clause("hostile-subjects")
async def test_where_json_cannot_name_a_subject_no_other_one_is_removed(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with served_on(server.url) as served:
        far = served.headers("@at 2100-01-01T00:00:00Z")
        # Both look the same in JSON: what is not UTF-8 is replaced there.
        replaced = await served.publish("s.\udce9", far, b"replaced")
        await served.publish("s.\udce8", far, b"replaced on another subject")
        await served.publish("s.\ufffd", body=b"what they look like")
        await served.publish("s.\udce9", far, b"replacing")
        await served.publish("s.\udce8", far, b"replacing the other")
        left = [b"what they look like", b"replacing", b"replacing the other"]
        await served.left(">", left)
        assert await served.account.api.message("S", seq=replaced) is None
        await served.publish("s.\udce9", served.headers(f"@at {in_seconds(0.5)}"), b"fires")
        await served.wait_for("out")
        await served.left(">", [left[0], left[2], b"fires"])
        await served.publish("s.\udcfe", served.headers("@every 1s", "again"))
        await served.wait_for("again", 2)
