"""The printed output: complete in a pipe, harmless on a terminal, where no word of a table is ever broken."""

from __future__ import annotations

import pytest

from nats_scheduler.cli.output import fold, print_table
from nats_scheduler.observe.texts import printable
from nats_scheduler.observe.times import span_text, time_text
from nats_scheduler.schedule.instants import DAY, HOUR, MILLISECOND, SECOND
from tests.cli.prompt import NEVER, Cli, Prompt, prompt_on, words
from tests.conftest import StartServer
from tests.harness.account import sidecar_on
from tests.harness.servers import V2_14
from tests.harness.waiting import eventually

WIDTHS = (80, 120)


async def test_no_cell_of_a_list_is_broken_inside_a_word(prompt: Prompt) -> None:
    async with sidecar_on(prompt.url) as running:
        for name, config in (("ORDERS", {"max_age": 7 * DAY}), ("INVOICES", {})):
            await prompt.account.create(name, **config)
            await running.ready(name)

        async def are_served() -> bool:
            lists = [await prompt.document(line) for line in ("ls", "stream ls")]
            return all((one["sidecars"], one["problem"]) == (1, None) for found in lists for one in found["streams"])

        await eventually(are_served, describe="the sidecar is known to serve both")
        out, zone = "ORDERS.reminders.payment.due", "America/Argentina/Buenos_Aires"
        await prompt.schedule("ORDERS.schedules.a7f3b2c1-55d0-4c0e-9a55", NEVER, out)
        await prompt.schedule("ORDERS.weekly", "0 30 9 * * mon-fri", out, Time_Zone=zone)
        await prompt.schedule("ORDERS.wrong", "*/5 * * * *", out)
        await prompt.account.publish("ORDERS.near", {"Nats-Schedul": "@daily", "Nats-Schedule-Target": out})
        for line, expected in {
            "ls ORDERS": "ORDERS.schedules.a7f3b2c1-55d0-4c0e-9a55 ORDERS.weekly next fire (UTC) in expiring mon-fri"
            " ends before their next fire: max_age because of 10189 crontab; beginning what is wrong"
            " Nats-Schedul header 2 schedules; 1 of them invalid; 1 with misnamed headers",
            "ls --invalid": "ORDERS.wrong 10189 what is wrong crontab; seconds: Nats-Schedule may be meant",
            "stream ls": "ORDERS INVOICES emulated sidecars who fires X-Nats-Schedule 2 in all:",
            "instances": "instance state owns stands by unable alive 1 in all: stream owner standbys none",
        }.items():
            for columns in WIDTHS:
                shown = await prompt.shows(line, columns=columns)
                assert words(expected) - words(shown) == set(), (line, shown)
                assert max(map(len, shown.splitlines())) <= columns, shown
        wide = await prompt.shows("ls ORDERS --wide", columns=80)
        assert words("sequence stored dialect mode rollup ends (UTC)") - words(wide) == {"rollup"}


def test_no_cell_is_broken_of_what_needs_no_server(cli: Cli) -> None:
    for columns in WIDTHS:
        zone = ("--tz", "America/Argentina/Buenos_Aires")
        fires = cli("next", "0 30 9 * * mon-fri", *zone, columns=columns).stdout
        settings = cli("settings", "show", columns=columns).stdout
        assert words("UTC in 5 fires,") <= words(fires)
        assert words("connection.request_timeout default setting value source in all:") <= words(settings)
        assert max(map(len, [*fires.splitlines(), *settings.splitlines()])) <= columns


async def test_what_graduate_finds_is_not_broken_inside_a_word(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_14)
    async with prompt_on(cli, server.url) as prompt:
        await prompt.create(allow_msg_schedules=False)
        await prompt.schedule("ORDERS.schedules.a7f3b2c1-55d0-4c0e-9a55-1f6a8a1e", NEVER, x="X-")
        for columns in WIDTHS:
            shown = (await prompt.says("graduate ORDERS --dry-run", columns=columns)).stdout
            assert words("stream ORDERS the server would hold schedules") - words(shown) == set(), shown
            assert max(map(len, shown.splitlines())) <= columns, shown


async def test_a_table_that_fits_in_no_way_becomes_lines(prompt: Prompt) -> None:
    await prompt.create()
    subject = "ORDERS." + "x" * 60
    await prompt.schedule(subject, NEVER)
    shown = await prompt.shows("ls ORDERS", columns=80)
    assert f"subject          {subject}\n" in shown
    assert "next fire (UTC)  2200-01-01T00:00:00Z\n" in shown


def test_a_row_is_one_line_in_a_pipe_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["subject", "pattern"], [["a" * 500, "b" * 500], ["short", "[bold]x[/bold] :smile:"]])
    assert capsys.readouterr().out.splitlines() == [
        "subject".ljust(500) + "  pattern",
        "a" * 500 + "  " + "b" * 500,
        "short".ljust(500) + "  [bold]x[/bold] :smile:",
    ]


def test_text_is_folded_at_blanks_only_and_control_characters_are_escaped() -> None:
    assert fold("the quick brown-fox jumps", 10) == ["the quick", "brown-fox", "jumps"]
    assert fold("extraordinarily long", 5) == ["extraordinarily", "long"]
    assert fold("日本 日本", 4) == ["日本", "日本"]
    assert fold("", 5) == [""]
    escaped = {"grün 日本 '\"": "grün 日本 '\"", "a\x1b[31m\r\nb": "a\\x1b[31m\\r\\nb", "bad \udcff": "bad \\udcff"}
    assert {text: printable(text) for text in escaped} == escaped


def test_times_are_as_short_as_they_are_worth_reading() -> None:
    times = {
        SECOND: "1970-01-01T00:00:01Z",
        SECOND + 250 * MILLISECOND + 7: "1970-01-01T00:00:01.25Z",
        SECOND + 7: "1970-01-01T00:00:01Z",
    }
    assert {time: time_text(time) for time in times} == times
    spans = {90 * SECOND: "1m30s", 47 * HOUR: "47h0m0s", 49 * HOUR: "2d1h", 800 * DAY: "2y70d"}
    assert {span: span_text(span) for span in spans} == spans
