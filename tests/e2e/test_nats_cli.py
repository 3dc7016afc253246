"""The commands that a user types into the `nats` CLI work as typed, on servers without schedules of their own."""

import json
from pathlib import Path
from typing import Any

from nats_scheduler.schedule.instants import HOUR
from tests.conftest import SharedServer
from tests.harness.account import account_on, in_seconds
from tests.harness.flagged import FLAG
from tests.harness.nats_cli import NatsCli
from tests.harness.processes import sidecar
from tests.harness.servers import V2_11
from tests.harness.watched import Watched

FLAGGED = {"allow_msg_schedules": True, "allow_msg_ttl": True}


def file_in(cli: NatsCli, name: str, **config: Any) -> str:
    """Write a stream file and return its name, as it is typed."""
    wanted = {
        "name": name,
        "subjects": [f"{name}.>"],
        "retention": "limits",
        "storage": "memory",
        "discard": "old",
        "max_age": HOUR,
        "num_replicas": 1,
        **config,
    }
    Path(cli.home, "orders.json").write_text(json.dumps(wanted), "utf-8")
    return "orders.json"


async def test_the_flag_in_the_file_is_all_that_a_stream_needs(watched: Watched, nats_cli: NatsCli) -> None:
    """And it may be typed again; edits by a file without the flag, and by other flags, leave it on."""
    cli, name = nats_cli.at(watched.url), watched.name

    async def fires(rest: str) -> None:
        """Show that the stream is served."""
        flags = ("--schedule-at", in_seconds(0), "--schedule-dest", watched.subject(f"{rest}.out"), "--quiet")
        await cli.run("pub", watched.subject(rest), "hello", *flags)
        [fired] = await watched.wait_for(f"{rest}.out")
        assert fired.body == b"hello"

    async def shown() -> dict[str, Any]:
        """Return the stream's configuration as the CLI shows it."""
        return dict(json.loads(await cli.run("stream", "info", name, "--json"))["config"])

    add = ("stream", "add", "--config", file_in(cli, name, metadata={"team": "shop"}, **FLAGGED))
    await cli.run(*add)
    await watched.sidecar.ready(name)
    await cli.run(*add)
    config = await shown()
    assert (config["metadata"]["team"], config["max_age"], config["allow_rollup_hdrs"]) == ("shop", HOUR, False)
    await fires("added")
    edit = ("stream", "edit", name, "--force")
    more = [f"{name}.>", f"{name}-more.>"]
    await cli.run(*edit, "--config", file_in(cli, name, subjects=more, max_age=2 * HOUR, allow_msg_ttl=True))
    config = await shown()
    assert (config["subjects"], config["max_age"]) == (more, 2 * HOUR)
    await fires("edited")
    await cli.run(*edit, "--description", "new", "--max-msgs", "1000")
    config = await shown()
    assert (config["description"], config["max_msgs"]) == ("new", 1000)
    await fires("typed")


async def test_run_connects_by_a_saved_context(
    shared_server: SharedServer, nats_cli: NatsCli, stream_name: str
) -> None:
    server = await shared_server(V2_11)
    await nats_cli.run("context", "save", "shop", "--server", server.url)
    await nats_cli.run("context", "save", "nowhere", "--server", "nats://127.0.0.1:1")
    async with account_on(server.url) as account:
        await account.create(stream_name, allow_msg_schedules=False, **FLAG)
        for how in ("flag", "variable", "selected"):
            await nats_cli.run("context", "select", "shop" if how == "selected" else "nowhere")
            arguments = ("--context", "shop") if how == "flag" else ()
            env = {"NATS_CONTEXT": "shop"} if how == "variable" else {}
            with sidecar("run", *arguments, folder=nats_cli.home, name=how, env=env) as running:
                await running.wait_for_line(f"stream_ready .*stream={stream_name}")
                assert await running.terminate() == 0
        await account.api.call(f"STREAM.DELETE.{stream_name}")
