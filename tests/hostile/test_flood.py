"""A stranger publishes anything, and much of it, into a served stream and at the API: others still fire on their grid.

Real servers, a real sidecar; with `NATS_SCHEDULER_FUZZ=N` it is N times as much.
"""

import json
from collections.abc import Iterable, MutableMapping, Sequence
from functools import partial
from typing import Any

import pytest

from nats_scheduler.engine.events import (
    FireReadBack,
    FireRefused,
    FiresMissed,
    ScheduleAccepted,
    ScheduleEnded,
    ScheduleRejected,
)
from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.message.headers import header_value
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.flagged import Served
from tests.harness.log_lines import capture_logs
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually
from tests.hostile.effort import EFFORT, seeded
from tests.hostile.flood import Sent, message, request

MESSAGES = 2_000 * EFFORT
REQUESTS = 600 * EFFORT
AT_ONCE = 100
EVERY_SECONDS = 3
"""Longer than the pauses of a shared machine, which would make a shorter interval miss a fire now and then."""
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
        await eventually(partial(_has, answers, start + len(batch)), within_seconds=30)
    connection.unsubscribe(number)
    return answers


def _has(answers: dict[int, bytes], count: int) -> bool:
    return len(answers) >= count


def broken(lines: Iterable[MutableMapping[str, Any]], stream: str) -> list[MutableMapping[str, Any]]:
    """Pick the lines that report damage.

    A pause of the machine is none of the flood's damage, and another stream of a server that tests share may have just
    been found: a server that is flooded answers for it later.
    """
    concerning = [line for line in lines if line.get("stream", stream) == stream]
    return [line for line in concerning if line["event"] in BROKEN and "stood still" not in line.get("reason", "")]


def fired(sidecar: Running, stream: str, subject: str) -> list[int]:
    """Give the fire times (ns) of a schedule that were stored, in that order."""
    return [event.fire_time for event in sidecar.of(stream, FireReadBack) if event.schedule == subject]


def neither_fired_nor_missed(sidecar: Running, stream: str, subject: str) -> set[int]:
    """Return the fire times (ns) between the first and the last fire that were not stored, and not reported either.

    A busy machine may stop the process for more than an interval; then one fire makes up for those before it.
    """
    times, step = fired(sidecar, stream, subject), EVERY_SECONDS * SECOND
    reported = {
        fire_time
        for event in sidecar.of(stream, FiresMissed)
        if event.schedule == subject and event.made_up is not None
        for fire_time in range(event.first, event.made_up, step)
    }
    return set(range(times[0], times[-1], step)) - set(times) - reported


async def canary(served: Served) -> str:
    """Store a schedule that fires now and then, and wait for its first fire."""
    await served.schedule("canary", f"@every {EVERY_SECONDS}s", target="song")
    await served.wait_for("song")
    return served.subject("canary")


async def still_sings(served: Served, subject: str) -> None:
    """Wait for two more fires, and hold them all against the grid."""
    before = len(fired(served.sidecar, served.name, subject))
    await eventually(lambda: len(fired(served.sidecar, served.name, subject)) >= before + 2, within_seconds=30)
    times = fired(served.sidecar, served.name, subject)
    assert times == sorted(set(times))
    assert {(fire_time - times[0]) % (EVERY_SECONDS * SECOND) for fire_time in times} == {0}
    assert not neither_fired_nor_missed(served.sidecar, served.name, subject)


@pytest.mark.clause("hostile-patterns", "hostile-headers", "hostile-subjects")
async def test_whatever_is_poured_into_a_stream_the_others_fire_on_their_grid(served: Served) -> None:
    rng = seeded()
    sent = [message(rng, served.name, number) for number in range(MESSAGES)]
    connection = served.sidecar.sidecar.connection
    with capture_logs() as lines:
        subject = await canary(served)
        answers = await pour(served.account.connection, sent)
        judged = [seq for n, one in enumerate(sent) if (seq := _sequence(answers[n])) and _is_a_schedule(one)]

        def missing() -> set[int]:
            told = served.sidecar.of(served.name, ScheduleAccepted) + served.sidecar.of(served.name, ScheduleRejected)
            return set(judged) - {event.sequence for event in told}

        await eventually(lambda: not missing(), within_seconds=30, describe=lambda: f"{missing()} neither way")
        await still_sings(served, subject)
    assert len(judged) > MESSAGES // 2
    assert not broken(lines, served.name)
    assert served.sidecar.sidecar.connection is connection
    rejected = served.sidecar.of(served.name, ScheduleRejected)
    assert {event.rejection.code for event in rejected} >= {10189, 10190, 10191, 10192, 10203, 10223}


def _sequence(answer: bytes) -> int:
    """Give the sequence under which a message was stored, 0 where it was not."""
    said = json.loads(answer or b"{}")
    return 0 if "error" in said else int(said.get("seq", 0))


def _is_a_schedule(sent: Sent) -> bool:
    """Return whether a message with a sound end carries a schedule; if the end is cut, a consumer may see another."""
    return sent.block.endswith(b"\r\n\r\n") and bool(header_value(sent.block, b"Nats-Schedule"))


@pytest.mark.clause("hostile-json")
async def test_whatever_is_asked_of_the_api_the_schedules_fire_on_their_grid(served: Served) -> None:
    rng = seeded()
    sent = [request(rng, served.name, number) for number in range(REQUESTS)]
    connection = served.sidecar.sidecar.connection
    with capture_logs() as lines:
        subject = await canary(served)
        for start in range(0, len(sent), AT_ONCE):
            # Not each is answered: a server of 2.11 has a queue for requests that it passes on.
            frames = [frame(one.subject, "", one.block, one.body) for one in sent[start : start + AT_ONCE]]
            served.account.connection.write(b"".join(frames))
            await served.account.api.info()
        await served.schedule("after", f"@at {in_seconds(0.5)}", target="after.out")
        await served.wait_for("after.out")
        await still_sings(served, subject)
    assert not broken(lines, served.name)
    assert served.sidecar.sidecar.connection is connection


@pytest.mark.clause("size-limits")
async def test_what_a_server_would_hang_up_over_is_refused_and_the_others_fire(start_server: StartServer) -> None:
    server = await start_server(V2_11, config="max_payload: 100000\n")
    async with account_on(server.url) as account, sidecar_on(server.url) as sidecar:
        await account.create("S")
        await sidecar.ready("S")
        connection = sidecar.sidecar.connection
        served = Served(account, "S", sidecar, server.url, V2_11)
        subject = await canary(served)
        room = 100_000 - len(b"NATS/1.0\r\nNats-Schedule: @every 1s\r\nNats-Schedule-Target: S.out\r\n\r\n")
        await served.schedule("payload", "@every 1s", b"x" * room)
        await served.publish(
            "block", f"Nats-Schedule: @every 1s\r\nNats-Schedule-Target: S.out\r\nA: {'x' * 65_400}\r\n"
        )
        await served.schedule("target", "@every 1s", target="k" * 5_000)
        expected = {("S.payload", 10054), ("S.block", 10097), ("S.target", 10190)}

        def refused() -> set[tuple[str, int]]:
            return {(event.fire.schedule, event.code) for event in sidecar.of("S", FireRefused)}

        await eventually(lambda: refused() == expected, within_seconds=30, describe=lambda: f"{refused()}")
        await still_sings(served, subject)
        assert sidecar.sidecar.connection is connection


@pytest.mark.clause("hostile-subjects")
async def test_a_schedule_on_a_wildcard_removes_nothing_and_an_odd_literal_only_itself(served: Served) -> None:
    kept = [await served.publish(f"kept.{number}") for number in range(3)]
    kept.append(await served.publish("ba"))
    for rest in (">", "*", "kept.*"):
        await served.schedule(rest, f"@at {in_seconds(0.3)}")
        await served.schedule(rest, f"@at {in_seconds(0.3)}")
    for rest in ODD_LITERALS:
        await served.schedule(rest, f"@at {in_seconds(0.3)}", target=f"fired.{rest}")
    for rest in ODD_LITERALS:
        await served.wait_for(f"fired.{rest}")
    await served.schedule("canary", f"@at {in_seconds(0.3)}", target="song")
    await served.wait_for("song")
    assert {event.rejection.code for event in served.sidecar.of(served.name, ScheduleRejected)} == {10190}
    for sequence in kept:
        assert await served.account.api.message(served.name, seq=sequence)
    for rest in ODD_LITERALS:
        await eventually(partial(_is_empty, served, rest), within_seconds=30)


@pytest.mark.clause("hostile-subjects")
async def test_a_schedule_on_a_subject_that_is_not_utf8_fires_and_is_removed(served: Served) -> None:
    """JSON cannot name it, and what lies on its replacement character's subject is somebody else's."""
    other = await served.publish("h.\ufffd")
    once = {"Nats-Schedule": f"@at {in_seconds(0.3)}", "Nats-Schedule-Target": served.subject("once")}
    again = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": served.subject("again")}
    sequence = await served.publish("h.\udcff", once)
    await served.publish("h.\udcfe", again)
    await served.wait_for("once")
    await served.wait_for("again", 2)
    await eventually(partial(_is_deleted, served, sequence), within_seconds=30)
    assert await served.account.api.message(served.name, seq=other)


@pytest.mark.clause("hostile-subjects")
async def test_a_schedule_on_a_subject_with_a_del_fires_or_is_told_and_stays(served: Served) -> None:
    """A server of 2.11 stores such a message and does not find it by its subject: its own guard refuses each fire."""
    sequence = await served.schedule("h.\x7f", "@every 1s")
    if served.version == V2_11:
        await eventually(lambda: served.sidecar.of(served.name, FireRefused), within_seconds=30)
        assert {event.code for event in served.sidecar.of(served.name, FireRefused)} == {10071}
    else:
        await served.wait_for("out", 2)
    assert await served.account.api.message(served.name, seq=sequence)
    assert not served.sidecar.of(served.name, ScheduleEnded)


@pytest.mark.clause("hostile-subjects")
async def test_a_target_on_which_the_server_takes_orders_is_refused(
    emulated_server: EmbeddedServer, stream_name: str
) -> None:
    victim, recorder = f"{stream_name}V", f"{stream_name}R"
    async with account_on(emulated_server.url) as account, sidecar_on(emulated_server.url) as sidecar:
        await account.create(victim)
        order = f"$JS.API.STREAM.DELETE.{victim}"
        await account.create(recorder, subjects=[f"{recorder}.>", order], no_ack=True)
        await sidecar.ready(recorder)
        block = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": order}
        lines = "".join(f"{name}: {value}\r\n" for name, value in block.items())
        account.connection.write(frame(f"{recorder}.s", "", f"NATS/1.0\r\n{lines}\r\n".encode(), b""))
        await eventually(lambda: sidecar.of(recorder, FireRefused), within_seconds=30)
        assert {event.code for event in sidecar.of(recorder, FireRefused)} == {10190}
        assert await account.api.stream(victim)
        for name in (recorder, victim):
            account.connection.write(frame(f"$JS.API.STREAM.DELETE.{name}", "", b"", b""))
        await eventually(lambda: _is_gone(account, victim), within_seconds=30)


async def _is_gone(account: Account, name: str) -> bool:
    return await account.api.stream(name) is None


async def _is_deleted(served: Served, sequence: int) -> bool:
    return await served.account.api.message(served.name, seq=sequence) is None


async def _is_empty(served: Served, rest: str) -> bool:
    return await served.account.api.message(served.name, last_by_subj=served.subject(rest)) is None
