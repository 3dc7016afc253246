"""A program that runs through an upgrade of the server goes on: each schedule is spelled for what fires it by then."""

from datetime import timedelta
from pathlib import Path

import pytest

from nats_scheduler.client import Change, NoAnswerError, Schedules, every
from nats_scheduler.runtime.modes import Mode
from tests.client.conftest import Connect
from tests.harness.account import WAIT_SECONDS, account_on, sidecar_on
from tests.harness.servers import V2_11, V2_15
from tests.harness.upgrades import machine_in
from tests.harness.waiting import eventually

EVERY = every(timedelta(hours=1)).policies(note="x")


@pytest.mark.server
async def test_the_spelling_follows_the_server_and_the_flag(tmp_path: Path, connect: Connect) -> None:
    async with machine_in(tmp_path) as machine:
        url = await machine.install(V2_11)
        connection = await connect(url, max_reconnect_attempts=-1, reconnect_time_wait=0.1)
        async with sidecar_on(url) as sidecar:
            async with account_on(url) as account:
                await account.create("S", storage="file")
            await sidecar.ready("S")
            schedules = await Schedules.on(connection, "S")
            await schedules.create("S.before", EVERY, target="S.out")
            assert (await schedules.get("S.before")).spelling == "adr51"

            await machine.install(V2_15)

            async def modes() -> bool:
                """Return whether the sidecar has noticed the upgrade, as the client asks it."""
                try:
                    return (await schedules.serving()).served.dialects[0].name == "portable"
                except NoAnswerError:
                    return False

            await eventually(modes, within_seconds=WAIT_SECONDS, describe=f"the stream is {Mode.DORMANT}")

            async def stored() -> Change | None:
                try:
                    return await schedules.upsert("S.dormant", EVERY, target="S.out")
                except NoAnswerError:
                    return None

            await eventually(stored, within_seconds=WAIT_SECONDS, describe="a schedule is stored")
            assert (await schedules.get("S.dormant")).spelling == "portable"

            async with account_on(url) as account:
                config = (await account.api.stream("S"))["config"]
                await account.api.update_stream({**config, "allow_msg_schedules": True})
            await schedules.create("S.after", EVERY, target="S.out")
            after = await schedules.get("S.after")
            assert (after.spelling, after.is_fired_by_server) == ("adr51", True)
            assert after.when == EVERY
