"""`nats-scheduler stream`: what a file requests, on servers that support the flag and on those that drop it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.runtime.modes import EXPLANATIONS, Mode
from tests.cli.prompt import Cli, Prompt, prompt_on
from tests.conftest import StartServer
from tests.harness.servers import V2_11, V2_15

Write = Callable[..., Path]


@pytest.fixture(params=[V2_11, V2_15])
async def any_prompt(
    request: pytest.FixtureRequest, cli: Cli, start_server: StartServer
) -> AsyncIterator[tuple[Prompt, Mode]]:
    """The command line against a server of each version, and who fires on a flagged stream there."""
    server = await start_server(request.param)
    async with prompt_on(cli, server.url) as one:
        yield one, Mode.NATIVE if request.param == V2_15 else Mode.EMULATED


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a stream file: `write("ORDERS", mirror={…})`."""

    def to_file(name: str, **config: Any) -> Path:
        file = tmp_path / f"{name}.json"
        given = {"name": name, "subjects": [f"{name}.>"], "storage": "memory", "allow_msg_schedules": True, **config}
        file.write_text(json.dumps({key: value for key, value in given.items() if value is not None}))
        return file

    return to_file


async def test_a_file_creates_changes_or_leaves_its_stream(any_prompt: tuple[Prompt, Mode], write: Write) -> None:
    prompt, mode = any_prompt
    assert await prompt.shows("stream ls") == (
        "no stream carries schedules: `nats-scheduler stream add FILE` makes one\n"
    )
    assert [info async for info in prompt.account.api.streams()] == [], "ls writes nothing"
    for limit, outcome in ((1000, "created"), (2000, "updated"), (2000, "unchanged")):
        said = await prompt.says("stream add", str(write("ORDERS", max_msgs=limit)))
        done = f"stream ORDERS {outcome}, {mode}: {EXPLANATIONS[mode]}\n"
        assert (said.stdout, said.stderr, said.exit_code) == (done, "", 0)
    await prompt.account.create("OTHER", allow_msg_schedules=False)
    assert (await prompt.shows("stream add", str(write("OTHER")))).startswith(f"stream OTHER updated, {mode}: ")
    config = (await prompt.account.api.stream("OTHER"))["config"]
    is_native = mode is Mode.NATIVE
    assert (config.get("allow_msg_schedules", False), config["allow_rollup_hdrs"]) == (is_native, is_native)
    assert "nats-scheduler.allow_msg_schedules" not in (config.get("metadata") or {}), "it is left as it is otherwise"


async def test_the_flag_cannot_be_switched_off_again(any_prompt: tuple[Prompt, Mode], write: Write) -> None:
    prompt, _mode = any_prompt
    await prompt.shows("stream add", str(write("ORDERS")))
    for off in (False, None):
        said = await prompt.says("stream add", str(write("ORDERS", allow_msg_schedules=off)))
        assert (said.exit_code, "(server code 10052)" in said.stderr) == (1, True)
    assert (await prompt.shows("stream add", str(write("ORDERS")))).startswith("stream ORDERS unchanged")


async def test_one_bad_file_does_not_keep_the_others_from_being_used(prompt: Prompt, write: Write) -> None:
    good, refused = write("A"), write("COPY", mirror={"name": "M"}, subjects=None)
    broken, wrong, missing = (good.with_name(f"{name}.json") for name in ("broken", "wrong", "missing"))
    broken.write_text("{")
    wrong.write_text("[]")
    said = await prompt.says("stream add", *map(str, (broken, good, refused, missing, write("B"))))
    assert said.exit_code == 2
    assert [line.split(",")[0] for line in said.stdout.splitlines()] == ["stream A created", "stream B created"]
    complained = [line.partition(".json")[0] for line in said.stderr.splitlines()]
    assert complained == [f"nats-scheduler: error: {good.with_name(name)}" for name in ("broken", "missing", "COPY")]
    said = await prompt.says("stream add", *map(str, (good, refused, wrong)), "--json")
    assert (said.exit_code, said.stderr) == (2, "")
    document = json.loads(said.stdout)
    assert [(one["stream"], one["outcome"]) for one in document["streams"]] == [("A", "unchanged")]
    assert [(one["file"], one["stream"], one.get("err_code")) for one in document["errors"]] == [
        (str(wrong), None, None),
        (str(refused), "COPY", 10186),
    ]


@pytest.mark.clause("stream-sources")
async def test_ls_leaves_out_a_stream_that_can_have_no_schedules_any_more(prompt: Prompt, write: Write) -> None:
    await prompt.account.create("ORIGIN", allow_msg_schedules=False)
    for name, change in (("SOURCING", {"sources": [{"name": "ORIGIN"}]}), ("SEALED", {"sealed": True})):
        await prompt.shows("stream add", str(write(name)))
        assert [one["stream"] for one in (await prompt.document("stream ls"))["streams"]] == [name]
        config = (await prompt.account.api.stream(name))["config"]
        await prompt.account.api.update_stream({**config, **change})
        assert (await prompt.document("stream ls"))["streams"] == []
