"""A sidecar beside the native scheduler answers for what the server fires as it does for what it fires itself."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.engine.inputs import NOTHING_SETTLED
from nats_scheduler.jetstream.streams import METADATA_FLAG, StreamState
from nats_scheduler.observe.documents import schedule_document
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.stored_listing import read_schedules
from tests.conftest import StartServer
from tests.harness.account import CLOCK, account_on, sidecar_on
from tests.harness.servers import NATIVE_VERSIONS, V2_11, V2_12, V2_15
from tests.harness.upgrades import machine_in
from tests.harness.waiting import eventually
from tests.service.asking import Asked, at


@pytest.fixture(params=NATIVE_VERSIONS)
async def native(request: pytest.FixtureRequest, start_server: StartServer) -> AsyncIterator[Asked]:
    server = await start_server(request.param)
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        yield Asked(account, running, request.param)


async def holds(native: Asked, stream: str, *subjects: str) -> None:
    """Wait until the sidecar itself holds these schedules."""
    held = native.running.sidecar.served[stream].engine.held
    await eventually(lambda: all(held.peek(one) is not None for one in subjects), describe=f"{subjects} are held")


async def stored(native: Asked, stream: str, mode: Mode = Mode.NATIVE) -> list[dict[str, Any]]:
    """Read the stream as `ls --json` does."""
    state = StreamState.from_info(await native.account.api.stream(stream))
    found = await read_schedules(native.account.connection, native.account.api, state, mode, NOTHING_SETTLED, CLOCK.now)
    return [dict(schedule_document(stream, mode, one)) for one in found.schedules]


async def test_both_kinds_are_listed_as_ls_lists_them(native: Asked) -> None:
    await native.create("O", allow_msg_ttl=True)
    await native.schedule("O.server.1", at(5))
    await native.schedule("O.sidecar.1", at(3), "X-")
    await native.schedule("O.sidecar.2", "0 0 0 1 1 *", "X-")
    await native.schedule("O.server.2", at(1))
    expected = ["O.server.2", "O.sidecar.1", "O.server.1", "O.sidecar.2"]
    if native.version != V2_12:
        await native.schedule("O.server.3", "0 0 12 2 1 *")
        expected.append("O.server.3")
    await holds(native, "O", "O.sidecar.1", "O.sidecar.2")
    page = await native.answer("schedules.list", stream="O")
    assert [one["subject"] for one in page["schedules"]] == expected
    assert page["schedules"] == await stored(native, "O")
    assert {one["subject"].split(".")[1]: (one["fired_by"], one["dialect"]) for one in page["schedules"]} == {
        "server": ("server", "adr51"),
        "sidecar": ("sidecar", "portable"),
    }
    assert page["mode"] == "native"
    last = (await native.account.api.stream("O"))["state"]["last_seq"]

    async def all_is_read() -> bool:
        return bool((await native.answer("schedules.list", stream="O"))["read_through"] == last)

    await eventually(all_is_read, describe="O is read to its end")
    assert await native.subjects("O", filter="O.server.*", limit=1) == ["O.server.2"]
    (stream,) = (await native.answer("streams.list"))["streams"]
    assert (stream["mode"], stream["schedules"]["total"], stream["unread"]) == ("native", len(expected), None)
    assert stream["next"]["subject"] == "O.server.2"
    pages, cursor = list[str](), None
    while cursor is not None or not pages:
        part = await native.answer("schedules.list", stream="O", limit=2, cursor=cursor)
        pages += [one["subject"] for one in part["schedules"]]
        cursor = part["cursor"]
    assert pages == expected


@pytest.mark.server
async def test_on_a_dormant_stream_nothing_fires_and_all_is_listed(tmp_path: Path) -> None:
    """Schedules that were stored on a server of 2.11 wait for their graduation after the upgrade."""
    async with machine_in(tmp_path) as machine:
        async with account_on(await machine.install(V2_11)) as account:
            await account.create("O", storage="file", metadata={METADATA_FLAG: "true"})
            for subject, pattern in (("O.server", "@every 1h"), ("O.invalid", "@every soon"), ("O.gone", "@daily")):
                await account.publish(subject, {"Nats-Schedule": pattern, "Nats-Schedule-Target": "O.out"})
        await machine.install(V2_15)
        async with sidecar_on(machine.url) as running, account_on(machine.url) as account:
            await running.ready("O")
            native = Asked(account, running, V2_15)
            await native.schedule("O.sidecar", at(3), "X-")
            await holds(native, "O", "O.sidecar")
            page = await native.answer("schedules.list", stream="O", kind=["at", "every"])
            fired_by = {one["subject"]: one["fired_by"] for one in page["schedules"]}
            assert (page["mode"], fired_by) == ("dormant", {"O.server": "none", "O.sidecar": "sidecar"})
            assert await native.listed("O") == await stored(native, "O", Mode.DORMANT)
            await account.api.call("STREAM.PURGE.O", {"filter": "O.gone"})
            assert set(await native.subjects("O")) == {"O.server", "O.sidecar"}
            rejected = (await native.answer("rejected.list", stream="O"))["rejected"]
            assert [(one["subject"], one["dialect"]) for one in rejected] == [("O.invalid", "adr51")]
            assert (await native.answer("streams.list"))["streams"][0]["rejected"] == 1
