"""`nats-scheduler ls`: what is stored, when it fires next, and what is wrong with the rest.

It tests `cli/listing.py` too.
"""

from __future__ import annotations

import re

import pytest

from tests.cli.prompt import NEVER, Prompt
from tests.harness.account import in_seconds


@pytest.mark.clause("listing")
async def test_tables_show_the_soonest_first(prompt: Prompt) -> None:
    assert (await prompt.shows("ls")).startswith("no stream carries schedules")
    await prompt.create()
    problem = "no sidecar is running: nothing fires the schedules of ORDERS; nats-scheduler run (no_sidecar)"
    assert await prompt.shows("ls") == f"no schedules on ORDERS\n{problem}\n"
    assert await prompt.shows("ls --invalid") == "nothing is invalid on ORDERS\n"
    await prompt.schedule("ORDERS.b", NEVER)
    await prompt.schedule("ORDERS.a", f"@at {in_seconds(-90)}")
    await prompt.schedule("ORDERS.c", "\x1b[31mred")
    shown = await prompt.shows("ls ORDERS")
    lines = [line.split() for line in shown.splitlines()]
    assert lines[0] == ["subject", "pattern", "target", "next", "fire", "(UTC)", "in"]
    assert [line[0] for line in lines[1:3]] == ["ORDERS.a", "ORDERS.b"]
    assert lines[1][5] == "overdue"
    assert lines[2][4:6] == ["2200-01-01T00:00:00Z", lines[2][5]]
    assert re.fullmatch(r"1[0-9][0-9]y[0-9]+d", lines[2][5])
    assert shown.splitlines()[4] == "1 invalid, stored but never fired:"
    assert lines[5] == ["subject", "code", "what", "is", "wrong"]
    assert lines[6][:5] == ["ORDERS.c", "10189", "Nats-Schedule", "of", "'\\x1b[31mred'"]
    assert "\x1b" not in shown, "what a message holds cannot speak to the terminal"
    assert shown.splitlines()[-2:] == ["2 schedules; 1 invalid", problem]
    wide = [line.split() for line in (await prompt.shows("ls ORDERS --wide")).splitlines()]
    assert wide[0] == [*lines[0], "sequence", "stored", "dialect", "mode"]
    assert wide[5] == ["stream", "subject", "code", "header", "value", "reason", "sequence", "stored"]


async def test_what_is_listed_is_chosen(prompt: Prompt) -> None:
    await prompt.create()
    for rest, pattern, target in (
        *(("a.due", f"@at {in_seconds(-90)}", "out"), ("a.later", NEVER, "out"), ("b.often", "@every 1h", "in.b")),
        *(("a.wrong", "soon", "out"), ("b.wrong", "soon", "in.b")),
    ):
        await prompt.schedule(f"ORDERS.{rest}", pattern, f"ORDERS.{target}")

    async def found(options: str) -> tuple[list[str], list[str], int]:
        document = await prompt.document(f"ls ORDERS {options}")
        names = [[one["subject"].removeprefix("ORDERS.") for one in document[key]] for key in ("schedules", "invalid")]
        return names[0], names[1], document["total"]

    wrong = ["a.wrong", "b.wrong"]
    assert await found("--filter ORDERS.a.*") == (["a.due", "a.later"], ["a.wrong"], 2)
    assert await found("--filter .often") == (["b.often"], [], 1)
    assert await found("--filter a.") == (["a.due", "a.later"], ["a.wrong"], 2)
    assert await found("--target in. --sort subject") == (["b.often"], ["b.wrong"], 1)
    assert await found("--sort subject --count 2") == (["a.due", "a.later"], wrong, 3)
    assert await found("--owner nobody") == ([], [], 0)
    assert await found("--kind every --kind cron") == (["b.often"], wrong, 1)
    assert await found("--state overdue") == (["a.due"], wrong, 1)
    assert await found("--count 1") == (["a.due"], wrong, 3)
    assert await found("--invalid") == ([], wrong, 3)
    assert "\n3 schedules, of which 1 is shown; 2 invalid\n" in await prompt.shows("ls --count 1")
    assert "ORDERS.b.often" not in await prompt.shows("ls --invalid")
