"""`nats-scheduler watch`: fires and faults as they happen, for people and for programs, until Ctrl-C."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.cli.watch import advisory_line
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.cli.conftest import Cli
from tests.conftest import StartServer
from tests.harness.account import account_on, sidecar_on
from tests.harness.log_lines import capture_logs
from tests.harness.processes import sidecar
from tests.harness.servers import V2_11, V2_14
from tests.harness.waiting import eventually

EACH_SECOND = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "ORDERS.out"}
WRONG = {"Nats-Schedule": "@often", "Nats-Schedule-Target": "ORDERS.out"}


def events(text: str, kind: str) -> list[dict[str, Any]]:
    """Return the lines of JSON of one kind; a line that is being written is left out."""
    whole = text[: text.rfind("\n") + 1]
    return [line for line in map(json.loads, whole.splitlines()) if line["event"] == kind]


async def test_fires_and_faults_are_lines_for_people(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    with capture_logs():
        async with account_on(server.url) as account, sidecar_on(server.url) as running:
            await account.create("ORDERS")
            await running.ready("ORDERS")
            with sidecar("watch", "ORDERS", "--server", server.url, folder=tmp_path) as process:
                await process.wait_for_line("stream ORDERS is emulated: the sidecar fires")
                await account.publish("ORDERS.s", EACH_SECOND)
                await process.wait_for_line(r"^\d{4}-\S+Z +-?[\d.]+ ms  interval  ORDERS\.s -> ORDERS\.out$")
                await account.publish("ORDERS.wrong", WRONG)
                line = await process.wait_for_line("schedule_rejected: ORDERS ORDERS.wrong; ")
                assert "code 10189" in line
                assert await process.interrupt() == 0
            assert process.stderr == ""


async def test_with_json_each_line_is_a_document_and_a_filter_names_schedules(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    with capture_logs():
        async with account_on(server.url) as account, sidecar_on(server.url) as running:
            await account.create("ORDERS")
            await running.ready("ORDERS")
            words = ("watch", "--json", "--filter", "ORDERS.wanted.*", "--server", server.url)
            with sidecar(*words, folder=tmp_path) as process:
                await process.wait_for_line('"event": "stream"')
                for place in ("other", "wanted"):
                    await account.publish(f"ORDERS.{place}.wrong", WRONG)
                    await account.publish(f"ORDERS.{place}.s", EACH_SECOND)
                fires = await eventually(lambda: events(process.stdout, "fire"), within_seconds=45)
                advisories = await eventually(lambda: events(process.stdout, "advisory"), within_seconds=45)
                assert await process.interrupt() == 0
    assert {fire["schedule"] for fire in events(process.stdout, "fire")} == {"ORDERS.wanted.s"}
    assert {one["schedule"] for one in advisories} == {"ORDERS.wanted.wrong"}
    first = fires[0]
    assert set(first) == {
        *("event", "stream", "schedule", "target", "kind", "fire_time", "stored", "lateness_nanoseconds"),
    }
    fire_time, stored = parse_rfc3339(first["fire_time"]), parse_rfc3339(first["stored"])
    assert isinstance(fire_time, int)
    assert isinstance(stored, int)
    assert first["lateness_nanoseconds"] == stored - fire_time
    assert advisories[0]["type"] == "io.nats_scheduler.advisory.v1.schedule_rejected"


async def test_what_several_sidecars_report_is_shown_once_and_counted(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    with capture_logs():
        async with account_on(server.url) as account, sidecar_on(server.url) as running:
            published: list[tuple[bytes, bytes]] = []
            account.connection.subscribe(
                "nats_scheduler.advisory.>", lambda to, _reply, _block, body: published.append((to, body))
            )
            await account.create("ORDERS")
            await running.ready("ORDERS")
            with (
                sidecar("watch", "--json", "--server", server.url, folder=tmp_path / "json") as process,
                sidecar("watch", "--server", server.url, folder=tmp_path / "text") as for_people,
            ):
                for each in (process, for_people):
                    await each.wait_for_line("ORDERS")
                await account.publish("ORDERS.wrong", WRONG)
                await eventually(lambda: published, within_seconds=45)
                subject, body = published[0]
                account.connection.publish(subject.decode(), body)  # as another sidecar does
                await account.publish("ORDERS.last", WRONG)
                for each in (process, for_people):
                    await each.wait_for_line(r"ORDERS\.last")
                assert await process.interrupt() == 0
                assert await for_people.interrupt() == 0
    shown = [advisory["schedule"] for advisory in events(process.stdout, "advisory")]
    assert shown == ["ORDERS.wrong", "ORDERS.last"]
    first = next(repeated for repeated in events(process.stdout, "repeated") if repeated["schedule"] == "ORDERS.wrong")
    kind = "io.nats_scheduler.advisory.v1.schedule_rejected"
    assert first == {
        "event": "repeated",
        "type": kind,
        "stream": "ORDERS",
        "schedule": "ORDERS.wrong",
        "seq": 1,
        "header": "Nats-Schedule",
        "code": 10189,
        "times": 1,
    }
    assert "schedule_rejected: ORDERS ORDERS.wrong; reported 1 more time;" in for_people.stdout


async def test_settings_of_a_sidecar_that_starts_later_are_used(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("NAMED", allow_msg_schedules=False)
        with sidecar("watch", "--server", server.url, folder=tmp_path) as process:
            await process.wait_for_line("no stream carries schedules yet")
            with capture_logs():
                async with sidecar_on(server.url, portable_streams=("NAMED",)) as running:
                    await running.ready("NAMED")
                    await process.wait_for_line("stream NAMED is portable")
                    assert await process.interrupt() == 0


async def test_that_fires_of_a_native_work_queue_cannot_be_followed_is_said_once(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_14)
    async with account_on(server.url) as account:
        await account.create("JOBS", retention="workqueue")
        await account.create("ORDERS")
        await account.publish("ORDERS.s", EACH_SECOND)
        with sidecar("watch", "--server", server.url, folder=tmp_path) as process:
            await process.wait_for_line("ORDERS.s -> ORDERS.out")
            await account.create("LATER", retention="interest")
            await process.wait_for_line("stream LATER is native")  # the streams were read again
            assert await process.interrupt() == 0
    assert process.stderr.splitlines() == [
        f"nats-scheduler: warning: what the server fires on {name} cannot be followed: "
        f"with {retention} retention, no consumer may be attached to read it"
        for name, retention in (("JOBS", "workqueue"), ("LATER", "interest"))
    ]


async def test_fires_of_the_server_are_shown_and_those_from_before_are_not(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_14)
    async with account_on(server.url) as account:
        await account.create("ORDERS")
        await account.publish("ORDERS.s", EACH_SECOND)
        before = await account.wait_for("ORDERS", "ORDERS.out")
        assert before
        with sidecar("watch", "--json", "--server", server.url, folder=tmp_path) as process:
            started = await process.wait_for_line('"event": "stream"')
            assert json.loads(started)["mode"] == "native"
            fires = await eventually(lambda: events(process.stdout, "fire"), within_seconds=45)
            first = await account.api.message("ORDERS", seq=2)
            assert first is not None
            stored = parse_rfc3339(fires[0]["stored"])
            assert isinstance(stored, int)
            assert stored > first.stored_at
            assert await process.interrupt() == 0


async def test_it_goes_on_after_the_server_was_away(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_14)
    async with account_on(server.url) as account:
        await account.create("ORDERS", storage="file")
        await account.publish("ORDERS.s", EACH_SECOND)
    with sidecar("watch", "--json", "--server", server.url, folder=tmp_path) as process:
        await process.wait_for_line('"event": "fire"')
        await server.kill()
        await process.wait_for_line("warning: the connection is lost")
        seen = len(events(process.stdout, "fire"))
        await server.restart()
        await eventually(lambda: len(events(process.stdout, "fire")) > seen, within_seconds=45)
        assert await process.interrupt() == 0
    assert process.stderr.count("the connection is lost") == 1


async def test_a_stream_that_does_not_exist_ends_with_1(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    with sidecar("watch", "NONE", "--server", server.url, folder=tmp_path) as process:
        assert await process.wait_for_exit() == 1
    assert process.stderr == "nats-scheduler: error: stream NONE does not exist\n"


@pytest.mark.parametrize("words", [("A.B",), ("--filter", "a b"), ("A", "B")])
def test_wrong_use_ends_with_2(cli: Cli, words: tuple[str, ...]) -> None:
    assert cli("watch", *words).exit_code == 2


def test_what_a_terminal_would_obey_is_shown_escaped() -> None:
    advisory = {"type": "x.v1.fire_refused", "stream": "S", "schedule": "s\x1b[2J", "code": 503, "reason": "full"}
    assert advisory_line(advisory, 0) == "1970-01-01T00:00:00Z  fire_refused: S s\\x1b[2J; full; code 503"
