"""A schedule that repeats in a stream with `max_age`: all that store or show it say that it ends, and what helps."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import nats
import pytest

from nats_scheduler.client import Schedules, every
from tests.cli.prompt import Cli, prompt_on
from tests.conftest import SharedServer
from tests.harness.account import sidecar_on
from tests.harness.servers import V2_10, V2_11, V2_15

HOUR_NS = 3_600_000_000_000
REMOVED = "max_age of the stream (1h0m0s) removes it at that age, and then it never fires again; "
NEVER_HELPS = "published with Nats-TTL: never it stays"
IN_TIME = "raise max_age, or publish it again before that"
HELPS = {V2_10: IN_TIME, V2_11: NEVER_HELPS, V2_15: NEVER_HELPS}


@pytest.mark.parametrize("version", HELPS)
async def test_all_that_stores_or_shows_it_says_so(
    cli: Cli, shared_server: SharedServer, stream_name: str, tmp_path: Path, version: str
) -> None:
    server, name, helps = await shared_server(version), stream_name, HELPS[version]
    async with prompt_on(cli, server.url) as prompt:
        await prompt.create(name, max_age=HOUR_NS, allow_msg_ttl=True)
        add = f"add {name} {name}.s --every 1m --target {name}.out"
        for dry_run in ("--dry-run", ""):
            assert REMOVED + helps in (await prompt.says(f"{add} {dry_run}")).stderr
        assert (await prompt.says(f"{add} --replace")).output.count("max_age") == 0, "it is there already"
        assert REMOVED + helps in (await prompt.says(f"edit {name} {name}.s --every 2m")).stderr

        file = tmp_path / "schedules.yaml"
        stated: dict[str, Any] = {"every": "1m", "target": f"{name}.out", "body": "a"}
        file.write_text(json.dumps({"stream": name, "schedules": [{"subject": f"{name}.filed", **stated}]}), "utf-8")
        for more in ("--dry-run", "--yes"):
            said = await prompt.says(f"apply {file} {more}")
            assert said.exit_code == 0, said.output
            assert REMOVED + helps in " ".join(said.output.split()), said.output

        listed = await prompt.shows(f"ls {name}")
        first = f"{name}: {name}.filed: max_age of the stream (1h0m0s) removes it at "
        assert first in listed
        assert f", and then it never fires again; {helps} (schedule_ends_by_age); 1 more like it\n" in listed
        story = await prompt.shows(f"info {name} {name}.s")
        assert "by the max_age of the stream, after its next fire\n" in story
        assert f", and then it never fires again; {helps} (schedule_ends_by_age)\n" in story
        async with sidecar_on(server.url) as running:
            await running.ready(name)
            client = await nats.connect(server.url)
            try:
                schedules, each = await Schedules.on(client, name), every(timedelta(minutes=1))
                created = await schedules.create(f"{name}.made", each, target=f"{name}.out")
                put = await schedules.upsert(f"{name}.put", each, target=f"{name}.out")
                for change in (created, put):
                    assert [one.sentence for one in change.findings] == [f"{REMOVED}{helps} (schedule_ends_by_age)"]
            finally:
                await client.close()
            assert f"{helps} (schedule_ends_by_age); 3 more like it\n" in await prompt.shows(f"ls {name}")
            wanted = {"Nats-Schedule": "@every 1m", "Nats-Schedule-Target": f"{name}.out"}
            request = json.dumps({"stream": name, "subject": f"{name}.new", "headers": wanted}).encode()
            answer = await prompt.account.connection.request("nats_scheduler.v1.check", request)
            (found,) = json.loads(answer.body)["findings"]
            assert (found["code"], found["severity"]) == ("schedule_ends_by_age", "warning")
            assert f"{found['what']}; {found['command']}" == REMOVED + helps
