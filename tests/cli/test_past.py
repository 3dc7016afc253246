"""`nats-scheduler history` shows what a sidecar or a server fired, and how late, as a table and as a document.

It tests `cli/history.py` too.
"""

from __future__ import annotations

import pytest

from tests.cli.prompt import Cli, Prompt, prompt_on
from tests.conftest import StartServer
from tests.harness.account import sidecar_on
from tests.harness.servers import V2_10, V2_11


async def fired_twice(prompt: Prompt) -> None:
    await prompt.schedule("S.s", "@every 1s")
    await prompt.account.wait_for("S", "S.out", 2)


@pytest.mark.parametrize("version", [V2_10, V2_11])
async def test_the_fires_of_a_sidecar_are_shown(cli: Cli, start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    async with prompt_on(cli, server.url) as prompt:
        async with sidecar_on(server.url) as running:
            await prompt.account.create("S")
            await running.ready("S")
            await fired_twice(prompt)
        stored = [message.sequence for message in await prompt.account.messages("S", "S.out")]
        document = await prompt.document("history S S.s")
        fires = document["fires"]
        assert (document["searched"], document["complete"]) == ("S.out", True)
        assert [fire["sequence"] for fire in fires] == stored[::-1]
        assert {fire["fired_by"] for fire in fires} == {"sidecar"}
        assert [fire["next_fire"] for fire in fires[1:]] == [fire["fire_time"] for fire in fires[:-1]]
        older = (await prompt.document("history S S.s --limit 1"))["older"]
        assert f"older ones: --before {older}" in await prompt.shows("history S S.s --limit 1")
        until = fires[0]["stored"]
        for more in (f"--before {older}", f"--until {until}"):
            assert (await prompt.document(f"history S S.s {more}"))["fires"] == fires[1:]
        each = (await prompt.document("history S S.s --contents"))["fires"]
        assert [fire["content"]["sequence"] for fire in each] == stored[::-1]
        assert {(fire["content"]["body"], fire["content"]["subject"]) for fire in each} == {("body", "S.out")}
        text = await prompt.shows("history S --limit 1 --contents")
        assert f"\nFire {stored[-1]} of S.s:\n\n  Nats-Scheduler: S.s\n" in text
        assert text.endswith("\nIts body (text, 4 bytes):\n\n  body\n")
        many = await prompt.says("history S S.s --limit 101 --contents")
        assert (many.exit_code, "expected at most 100" in many.stderr) == (2, True)
        for more, shown in (("--limit 1", fires[:1]), ("--since 2200-01-01T00:00:00Z", []), ("--since 1h", fires)):
            assert (await prompt.document(f"history S S.s {more}"))["fires"] == shown
        async with sidecar_on(server.url, allowed_targets=("S=S.other",)) as running:
            await running.ready("S")
            assert await prompt.document("history S S.s") == document, "its target is not allowed any more"
