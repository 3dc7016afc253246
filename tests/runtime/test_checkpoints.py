"""Which checkpoint counts after the mode of a stream has changed."""

from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.stream_service import read_checkpoint
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import SharedServer
from tests.harness.account import account_on
from tests.harness.servers import V2_14

NOW = 100 * SECOND


async def test_what_was_settled_while_we_emulated_is_settled_for_portable_schedules_after_an_upgrade(
    shared_server: SharedServer, stream_name: str
) -> None:
    server = await shared_server(V2_14)
    state = StreamState({"name": "S"}, "then", 1, 50)
    async with account_on(server.url) as account:
        registry = Registry(account.connection, account.api, stream_name)
        await registry.open()

        async def write(mode: Mode, through: int) -> None:
            value = {"created": "then", "through": through, "sequence": 50, "unsettled": []}
            await registry.put(f"checkpoint.S.{mode}", value)

        async def read(mode: Mode) -> int | None:
            checkpoint = await read_checkpoint(registry, state, mode, NOW)
            return None if checkpoint is None else checkpoint.through

        await write(Mode.EMULATED, 10)
        assert [await read(mode) for mode in (Mode.EMULATED, Mode.DORMANT, Mode.NATIVE)] == [10, 10, 10]
        await write(Mode.DORMANT, 20)
        assert [await read(mode) for mode in (Mode.EMULATED, Mode.DORMANT)] == [10, 20]
        await write(Mode.EMULATED, 30)
        assert [await read(mode) for mode in (Mode.EMULATED, Mode.DORMANT)] == [30, 30]
        await account.api.call(f"STREAM.DELETE.{registry.stream}")
