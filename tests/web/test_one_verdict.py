"""The status page and `top` say the same of one situation, and nothing is well without a fresh answer about health."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.message.foreign_json import time_of
from nats_scheduler.observe.texts import SERVER_ALONE
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.service.verdict import MAX_HEALTH_AGE_NS, WORDS
from tests.conftest import StartServer
from tests.harness.account import account_on
from tests.harness.processes import ChildProcess, sidecar
from tests.harness.servers import V2_11, V2_15
from tests.harness.waiting import eventually
from tests.web.browsing import Browsing, browsing

EACH_SECOND = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "O.out"}


def documents(top: ChildProcess) -> list[dict[str, Any]]:
    """Return all that `top --json` has printed in whole lines."""
    return [json.loads(line) for line in top.stdout.splitlines(keepends=True) if line.endswith("\n")]


async def both_say(page: Browsing, top: ChildProcess, level: Any, sentence: str) -> None:
    """Wait until the page and `top` both give this verdict with this reason."""
    await page.shows("/", f"<title>{WORDS[level]}", sentence)

    def said() -> bool:
        last = documents(top)[-1:]
        return any(one["verdict"] == level and sentence in str(one["reasons"]) for one in last)

    await eventually(said, describe=lambda: f"{level} and {sentence!r}: {top.stdout[-2000:]}")


@pytest.mark.parametrize("version", [V2_11, V2_15])
async def test_whatever_runs_or_was_killed_the_page_and_top_give_one_verdict(
    start_server: StartServer, tmp_path: Path, version: str
) -> None:
    server = await start_server(version)
    words = ("top", "--json", "--interval", "200ms", "--server", server.url)
    async with account_on(server.url) as account, browsing(server.url, reads_server=True) as page:
        is_fired_by_server = version == V2_15
        if is_fired_by_server:
            await account.create("O", storage="file")
        with sidecar(*words, folder=tmp_path / "top", name="top") as top:
            alone = ("note", SERVER_ALONE[1:]) if is_fired_by_server else ("bad", "No sidecar answers")
            await both_say(page, top, *alone)
            with sidecar("run", "--server", server.url, folder=tmp_path / "run") as running:
                await running.wait_for_line("connected")
                if not is_fired_by_server:
                    await account.create("O", storage="file")
                await account.publish("O.s", EACH_SECOND)
                await account.wait_for("O", "O.out", 2)
                await both_say(page, top, "ok", "")
                running.kill()
                killed = time.time_ns()
                await both_say(page, top, *alone)
            last = killed + MAX_HEALTH_AGE_NS + SECOND
            await eventually(lambda: (time_of(documents(top)[-1]["at"]) or 0) > last)
            told = [one for one in documents(top) if (time_of(one["at"]) or 0) > killed + MAX_HEALTH_AGE_NS]
            levels = {one["verdict"] for one in told}
            assert levels <= {alone[0], "warn"}, "of who was killed the heartbeats are silent, and nothing is just well"
