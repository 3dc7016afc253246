"""Schedules are changed beside sidecars and native schedulers: no edit is lost, and nothing is reported as a fault.

What fires that were requested mean to a sidecar is in `tests/engine/test_forgeries.py`.
"""

import asyncio

import pytest

from nats_scheduler.control.edits import add, edit
from nats_scheduler.control.errors import ConflictError
from nats_scheduler.control.pausing import pause, resume
from nats_scheduler.control.standing import current
from nats_scheduler.engine.events import FireForged, ScheduleRejected
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.schedule_form import Edit
from tests.conftest import SharedServer
from tests.control.test_connection_store import store_of
from tests.harness.blocks import block_to_send
from tests.harness.flagged import served_on
from tests.harness.seeds import generator
from tests.harness.servers import V2_11, V2_15


@pytest.mark.parametrize("version", [V2_11, V2_15])
async def test_no_edit_is_lost_beside_whatever_fires(
    shared_server: SharedServer, stream_name: str, version: str
) -> None:
    async with served_on((await shared_server(version)).url, stream_name, config={}) as served:
        store, name, subject = await store_of(served.account), stream_name, served.subject("s")
        await add(store, name, subject, block_to_send(served.headers("@every 1s") | {"Count": "0"}), b"")

        async def count(number: int) -> None:
            random, done = generator(f"{__name__} {number}"), 0
            while done < 4:
                found = await current(store, await store.served(name), subject)
                wanted = int(header_value(found.message.block, b"Count") or b"") + 1
                try:
                    if random.random() < 0.2:
                        await (resume if found.is_paused else pause)(store, name, subject, expected=found.sequence)
                    else:
                        change = Edit(set=[(b"Count", b"%d" % wanted)])
                        await edit(store, name, subject, change, expected=found.sequence)
                        done += 1
                except ConflictError:
                    continue

        await asyncio.gather(*(count(number) for number in range(6)))
        found = await current(store, await store.served(name), subject)
        assert header_value(found.message.block, b"Count") == b"24"
        assert found.rejection is None
        assert [*served.of(FireForged), *served.of(ScheduleRejected)] == []
        await served.call("STREAM.DELETE")
