"""`nats-scheduler info`: all that is known of a schedule, valid or not, fired by a sidecar or by the server."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from nats_scheduler.cli.session import NONE_RUNNING, NOT_SERVED_YET
from nats_scheduler.engine.views.figures import State
from nats_scheduler.message.timetable import delay_of
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.runtime.modes import EXPLANATIONS, Mode
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.cli.conftest import Cli
from tests.conftest import StartServer
from tests.harness.account import Account, account_on, sidecar_on
from tests.harness.log_lines import capture_logs
from tests.harness.servers import V2_11, V2_14
from tests.harness.terminal import COLUMNS, on_terminal
from tests.harness.waiting import eventually
from tests.house.sources import ROOT

Info = Callable[..., Awaitable[Result]]
FLAGGED = {"nats-scheduler.allow_msg_schedules": "true"}
DAILY = {
    "Nats-Schedule": "0 30 9 * * mon-fri",
    "Nats-Schedule-Time-Zone": "Europe/Berlin",
    "Nats-Schedule-Target": "ORDERS.out",
}
NEVER = {"Nats-Schedule": "@at 2200-01-01T00:00:00Z", "Nats-Schedule-Target": "ORDERS.out"}


@pytest.fixture
async def server(start_server: StartServer) -> EmbeddedServer:
    """Start a server without a scheduler of its own; no sidecar serves it."""
    return await start_server(V2_11)


@pytest.fixture
async def account(server: EmbeddedServer) -> AsyncIterator[Account]:
    """Connect to the server."""
    async with account_on(server.url) as connected:
        yield connected


@pytest.fixture
def info(cli: Cli, server: EmbeddedServer) -> Info:
    """Run `nats-scheduler info …` against the server."""
    return on(cli, server)


def on(cli: Cli, server: EmbeddedServer) -> Info:
    """Return a function that runs `nats-scheduler info …` against a server, in a thread with an own event loop."""

    async def run(*arguments: str) -> Result:
        return await asyncio.to_thread(cli, "info", *arguments, "--server", server.url)

    return run


def labelled(shown: Result) -> dict[str, str]:
    """Return what stands beside each label."""
    assert shown.exit_code == 0, shown.output
    lines = [line for line in shown.stdout.partition("\n\n")[0].splitlines() if not line.startswith(" ")]
    return {line[:11].strip(): line[11:] for line in lines}


async def test_it_says_what_was_published_and_when_it_fires(account: Account, info: Info) -> None:
    await account.create("ORDERS", metadata=FLAGGED)
    sequence = await account.publish("ORDERS.daily", DAILY, b"12345")
    stored = await account.api.message("ORDERS", seq=sequence)
    assert stored is not None
    shown = await info("ORDERS", "ORDERS.daily")
    said = labelled(shown)
    assert said["schedule"] == "ORDERS.daily in ORDERS"
    at = format_rfc3339(stored.stored_at // 10**9 * 10**9)
    assert re.fullmatch(rf"{at}, \S+ ago, as sequence {sequence}, with a body of 5 bytes", said["published"])
    for name, value in DAILY.items():
        assert f"           {name}: {value}\n" in shown.stdout
    assert said["fires"] == "every weekday at 09:30 in Berlin"
    assert re.fullmatch(r"waiting, next fire at \S+:30:00Z, in \S+", said["state"])
    assert said["fired by"] == "no sidecar is running: nothing fires these"
    assert said["removed"] == "never by the stream: neither max_age nor Nats-TTL ends it"
    fires = shown.stdout.partition("Its next fires:\n\n")[2].splitlines()
    assert len(fires) >= 6
    assert "Europe/Berlin" in fires[0]


async def test_an_interval_counts_from_when_it_was_stored(account: Account, info: Info) -> None:
    await account.create("ORDERS", metadata=FLAGGED)
    sequence = await account.publish("ORDERS.s", {"Nats-Schedule": "@every 90m", "Nats-Schedule-Target": "ORDERS.out"})
    stored = await account.api.message("ORDERS", seq=sequence)
    assert stored is not None
    anchor = (stored.stored_at + 5 * 10**8) // 10**9 * 10**9
    shown = json.loads((await info("ORDERS", "ORDERS.s", "--count", "2", "--json")).stdout)
    assert shown["words"] == f"every 1 hour 30 minutes, counted from {format_rfc3339(anchor)}"
    first, second = (fire["nanoseconds"] for fire in shown["next_fires"])
    assert ((first - anchor) % (5_400 * 10**9), second - first) == (0, 5_400 * 10**9)


async def test_a_jittered_schedule_shows_when_its_fires_are_sent(account: Account, info: Info) -> None:
    await account.create("ORDERS", metadata=FLAGGED)
    headers = {"Nats-Schedule": "@every 90m", "Nats-Schedule-Target": "ORDERS.out", "Nats-Schedule-X-Jitter": "10m"}
    sequence = await account.publish("ORDERS.s", headers)
    shown = json.loads((await info("ORDERS", "ORDERS.s", "--count", "2", "--json")).stdout)
    assert shown["words"].endswith(", each sent up to 10m0s later, before the next")
    for fire in (shown["schedule"]["next_fire"], *shown["next_fires"]):
        fire_time = fire["nanoseconds"]
        assert fire["sent"] == format_rfc3339(fire_time + delay_of("ORDERS.s", sequence, fire_time, 600 * 10**9))
    said = await info("ORDERS", "ORDERS.s", "--wide")
    sent = shown["next_fires"][0]["sent"]
    assert re.fullmatch(r"waiting, next fire at \S+, sent at \S+, in \S+", labelled(said)["state"])
    table = said.stdout.partition("Its next fires:\n\n")[2].splitlines()
    assert "sent (UTC)" in table[0]
    assert sent in table[1]


async def test_what_ends_it_before_its_fire_is_in_capitals(account: Account, info: Info) -> None:
    await account.create("ORDERS", metadata=FLAGGED, max_age=3600 * 10**9)
    await account.publish("ORDERS.late", NEVER)
    await account.publish("ORDERS.soon", {"Nats-Schedule": "@every 1m", "Nats-Schedule-Target": "ORDERS.out"})
    late, soon = labelled(await info("ORDERS", "ORDERS.late")), labelled(await info("ORDERS", "ORDERS.soon"))
    assert late["removed"].endswith("by the max_age of the stream, BEFORE its next fire: it will not fire")
    assert late["state"].startswith("expiring")
    assert soon["removed"].endswith("by the max_age of the stream, after its next fire")


async def test_an_invalid_schedule_is_shown_with_the_reason(account: Account, info: Info) -> None:
    await account.create("ORDERS", metadata=FLAGGED)
    await account.publish("ORDERS.wrong", {"Nats-Schedule": "@often", "Nats-Schedule-Target": "ORDERS.out"})
    await account.publish("ORDERS.near", {"Nats-Schedul": "@daily"})
    wrong, near = labelled(await info("ORDERS", "ORDERS.wrong")), labelled(await info("ORDERS", "ORDERS.near"))
    assert wrong["rejected"].startswith("it never fires: Nats-Schedule of '@often'")
    assert "10189" in wrong["rejected"]
    assert near["header"].startswith("Nats-Schedul ")
    assert "fires" not in wrong.keys() | near.keys()


async def test_a_paused_schedule_is_shown_with_its_pattern_since_when_and_how_to_resume_it(
    account: Account, info: Info
) -> None:
    await account.create("ORDERS", metadata=FLAGGED)
    paused = {"Nats-Schedule-X-Paused" if name == "Nats-Schedule" else name: DAILY[name] for name in DAILY}
    await account.publish("ORDERS.daily", paused)
    lines = labelled(shown := await info("ORDERS", "ORDERS.daily"))
    assert "Nats-Schedule-X-Paused: 0 30 9 * * mon-fri" in shown.stdout
    assert lines["fires"] == "every weekday at 09:30 in Berlin"
    assert re.fullmatch(r"paused since \S+Z, \S+ ago: it fires nothing until it is resumed", lines["state"])
    by_hand = "publish its message again with Nats-Schedule-X-Paused renamed to Nats-Schedule"
    assert lines["resume"] == f"nats-scheduler resume ORDERS ORDERS.daily; or {by_hand}"
    assert "Its next fires" not in shown.stdout
    document = json.loads((await info("ORDERS", "ORDERS.daily", "--json")).stdout)
    assert (document["schedule"]["state"], document["schedule"]["next_fire"], document["next_fires"]) == (
        "paused",
        None,
        [],
    )
    assert document["schedule"]["pattern"] == DAILY["Nats-Schedule"]


async def test_a_paused_schedule_that_would_be_rejected_is_shown_with_the_reason(account: Account, info: Info) -> None:
    await account.create("ORDERS", metadata=FLAGGED)
    await account.publish("ORDERS.x", {"Nats-Schedule-X-Paused": "@often", "Nats-Schedule-Target": "ORDERS.out"})
    rejected = labelled(await info("ORDERS", "ORDERS.x"))["rejected"]
    assert rejected.startswith("it never fires: Nats-Schedule of '@often'")
    assert "it is paused, and would be rejected if it was resumed" in rejected


async def test_the_sidecar_that_holds_it_is_named(account: Account, info: Info, server: EmbeddedServer) -> None:
    await account.create("ORDERS", metadata=FLAGGED)
    await account.publish("ORDERS.daily", DAILY)
    with capture_logs():  # else the log of this process is mixed with the output of the command
        async with sidecar_on(server.url) as running:
            await running.ready("ORDERS")

            async def holder() -> str | None:
                shown = json.loads((await info("ORDERS", "ORDERS.daily", "--json")).stdout)
                found: str | None = shown["holder"]
                assert found is None or found in shown["sidecars"]
                return found

            found = await eventually(holder, within_seconds=30, describe="a holder of its shard")

            async def is_named() -> bool:
                said = labelled(await info("ORDERS", "ORDERS.daily"))["fired by"]
                assert said.startswith(f"the sidecar {found}, which holds shard "), said
                return said.endswith("1 serves the stream")

            await eventually(is_named, within_seconds=30, describe="the name of the holder")


async def test_its_last_fires_are_shown_with_their_lateness(
    account: Account, info: Info, server: EmbeddedServer
) -> None:
    await account.create("ORDERS", metadata=FLAGGED)
    await account.publish("ORDERS.s", {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "ORDERS.out"})
    assert (await info("ORDERS", "ORDERS.s")).stdout.splitlines()[-1] == "No fire of it is stored."
    with capture_logs():
        async with sidecar_on(server.url) as running:
            await running.ready("ORDERS")
            await account.wait_for("ORDERS", "ORDERS.out")
    shown = await info("ORDERS", "ORDERS.s")
    past = shown.stdout.partition("Its last fires, newest first:\n\n")[2].splitlines()
    assert past[0].split()[:3] == ["fire", "time", "(UTC)"]
    document = json.loads((await info("ORDERS", "ORDERS.s", "--count", "1", "--json")).stdout)
    [fire] = document["fires"]
    assert (fire["schedule"], fire["target"], fire["fired_by"]) == ("ORDERS.s", "ORDERS.out", "sidecar")
    assert past[1].startswith(fire["fire_time"])


async def test_a_schedule_of_the_server_is_fired_by_the_server(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_14)
    async with account_on(server.url) as account:
        await account.create("ORDERS")
        await account.publish("ORDERS.daily", DAILY)
        assert labelled(await on(cli, server)("ORDERS", "ORDERS.daily"))["fired by"].startswith("the server itself")


async def test_beside_the_server_it_says_which_of_both_fires(cli: Cli, start_server: StartServer) -> None:
    """A native stream has schedules of the server, and portable ones that a sidecar fires."""
    server = await start_server(V2_14)
    info = on(cli, server)
    portable = {f"X-{name}": value for name, value in DAILY.items()}

    async def fired_by(stream: str, name: str) -> tuple[str, str | None]:
        words = stream, f"{stream}.{name}"
        shown, document = await info(*words), await info(*words, "--json")
        if shown.exit_code or document.exit_code:  # the settings of the sidecar are not shared yet
            return "", None
        return labelled(shown)["fired by"], json.loads(document.stdout)["holder"]

    async with account_on(server.url) as account:
        await account.create("ORDERS")
        await account.publish("ORDERS.server", DAILY)
        await account.publish("ORDERS.portable", portable)
        assert await fired_by("ORDERS", "portable") == (NONE_RUNNING, None)
        with capture_logs():
            async with sidecar_on(server.url, portable_streams=("JOBS",)) as running:
                await account.create("JOBS", allow_msg_schedules=False)
                await account.publish("JOBS.portable", {**portable, "X-Nats-Schedule-Target": "JOBS.out"})
                me = running.sidecar.instance
                for stream in ("ORDERS", "JOBS"):

                    async def is_named(name: str = stream) -> bool:
                        said, holder = await fired_by(name, "portable")
                        return said.startswith(f"the sidecar {me}, which holds shard ") and holder == me

                    await eventually(is_named, within_seconds=30, describe=f"the holder of {stream}")
                said, holder = await fired_by("ORDERS", "server")
                assert (said, holder) == (f"the server itself (version {V2_14})", None)
                request = json.dumps({"stream": "ORDERS", "subject": "ORDERS.portable"}).encode()
                answer = json.loads((await account.connection.request("nats_scheduler.v1.schedules.get", request)).body)
                assert (answer["holder"], answer["schedule"]["fired_by"]) == (me, "sidecar")


async def test_what_is_not_there_ends_with_1(account: Account, info: Info) -> None:
    await account.create("ORDERS", metadata=FLAGGED)
    await account.publish("ORDERS.daily", DAILY)
    for words in (("ORDERS", "ORDERS.other"), ("OTHER", "ORDERS.daily")):
        shown = await info(*words)
        assert (shown.exit_code, shown.stdout) == (1, "")
        assert words[0] in shown.stderr


def test_the_page_for_operators_quotes_what_is_printed() -> None:
    page = (ROOT / "docs" / "operating" / "why-not.md").read_text("utf-8")
    rows = re.findall(r"^\| (.+?) \| .+ \|$", page.partition("## It is there")[2].partition("## Something")[0], re.M)
    quoted = [found[1] for row in rows if (found := re.fullmatch(r"`(.+?)(?: …)?`", row)) and row != "`fired by`"]
    source = (ROOT / "nats_scheduler" / "cli" / "info.py").read_text("utf-8")
    printed = [NONE_RUNNING, NOT_SERVED_YET, f"nothing: {EXPLANATIONS[Mode.DORMANT]}", source]
    assert len(quoted) == 4
    assert [text for text in quoted if not any(text in one for one in printed)] == []
    states = re.findall(r"^\| `state +(\w+)`(?:, and `refused`| or `(\w+)`)? \|", page, re.M)
    named = {word for pair in states for word in pair if word}
    assert named == {state.value for state in State} - {State.WAITING.value}


@pytest.mark.parametrize("words", [("ORDERS",), ("ORDERS", "a.*"), ("A.B", "a"), ("ORDERS", "a", "--count", "0")])
def test_wrong_use_ends_with_2(cli: Cli, words: tuple[str, ...]) -> None:
    assert cli("info", *words).exit_code == 2


async def test_it_fits_a_terminal(account: Account, server: EmbeddedServer, tmp_path: Path) -> None:
    await account.create("ORDERS", metadata=FLAGGED, max_age=3600 * 10**9)
    await account.publish("ORDERS.late", NEVER | {"Some": " ".join(["words"] * 40)})
    terminal = await on_terminal("info", "ORDERS", "ORDERS.late", "--server", server.url, folder=tmp_path)
    try:
        assert await terminal.end() == 0
        await terminal.wait_for("it will not fire")
        lines: list[Any] = terminal.text.splitlines()
        assert max(map(len, lines)) <= COLUMNS
    finally:
        await terminal.close()
