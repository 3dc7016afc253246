"""Messages that a killed server of 2.10 brings back at the front of a stream are removed by a sidecar that runs on."""

import shutil
from pathlib import Path

from nats_scheduler.engine.events import Ending, FireStored, ScheduleEnded, StreamReady
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.conftest import StartServer
from tests.harness.account import account_on, in_seconds, sidecar_on
from tests.harness.servers import V2_10, server_binary
from tests.harness.waiting import eventually

NUMBER = 50
SOON_SECONDS = 45.0


async def schedules_in(url: str) -> list[str]:
    """List the schedules that a server holds."""
    async with account_on(url) as account:
        return [message.subject for message in await account.messages("S", "S.s.*")]


async def test_what_a_killed_server_brings_back_is_removed_while_the_sidecar_runs_on(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_10)
    async with sidecar_on(server.url) as running:
        async with account_on(server.url) as account:
            await account.create("S", storage="file")
            await running.ready("S")
            at = in_seconds(1)
            for number in range(NUMBER):
                headers = {"Nats-Schedule": f"@at {at}", "Nats-Schedule-Target": "S.out"}
                await account.publish(f"S.s.{number}", headers)
            await eventually(
                lambda: [e.ending for e in running.of("S", ScheduleEnded)] == [Ending.FIRED] * NUMBER,
                within_seconds=SOON_SECONDS,
                describe="all have fired and are removed",
            )
        assert await schedules_in(server.url) == []
        await server.kill()
        shutil.copytree(server.store_dir, tmp_path / "copy")
        copy = EmbeddedServer(server_binary(V2_10), tmp_path / "copy", name=server.name)
        await copy.start()
        try:
            assert await schedules_in(copy.url), "nothing came back: this test proves nothing"
        finally:
            await copy.stop()
        await server.start()
        await running.ready("S", 2)

        async def none_is_left() -> bool:
            try:
                return await schedules_in(server.url) == []
            except JetStreamError:
                return False

        await eventually(none_is_left, within_seconds=SOON_SECONDS, describe="what came back is removed again")
        assert len(running.of("S", StreamReady)) >= 2
        assert len([event for event in running.of("S", FireStored) if not event.duplicate]) == NUMBER
