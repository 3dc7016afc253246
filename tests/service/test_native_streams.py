"""A sidecar beside the native scheduler answers for what the server fires as it does for what it fires itself."""

from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.engine.inputs import NOTHING_SETTLED
from nats_scheduler.jetstream.streams import METADATA_FLAG, StreamState
from nats_scheduler.observe.documents import schedule_document
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.stored_listing import read_schedules
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import CLOCK, account_on, in_seconds, sidecar_on
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


async def test_one_schedule_its_next_and_its_past_fires(native: Asked) -> None:
    await native.create("O")
    repeats = native.version != V2_12
    await native.schedule("O.one", "@every 1s" if repeats else at(1))
    await native.schedule("O.past", f"@at {in_seconds(0.2)}")
    await native.account.wait_for("O", "O.out", 3 if repeats else 1)
    known = await native.answer("schedules.get", stream="O", subject="O.one")
    assert (known["owner"], known["owner_answered"], known["flight"]) == (None, True, None)
    assert (known["schedule"]["fired_by"], known["schedule"]["mode"]) == ("server", "native")
    upcoming = await native.answer("schedules.next", stream="O", subject="O.one", count=3)
    fires = [fire["nanoseconds"] for fire in upcoming["fires"]]
    assert [later - earlier for earlier, later in pairwise(fires)] == [SECOND] * (2 if repeats else 0)
    past = (await native.answer("fires.list", stream="O", subject="O.past", target="O.out"))["fires"]
    assert [(one["fired_by"], one["next_fire"]) for one in past] == [("server", None)]
    assert (await native.refusal("schedules.get", stream="O", subject="O.past")).code == 404
    recent = (await native.answer("fires.recent", stream="O", filter="O.one"))["fires"]
    minutes = (await native.answer("activity.list", stream="O"))["minutes"]
    known = (await native.answer("fires.list", stream="O", subject="O.one", limit=200))["fires"]
    late = {one["sequence"]: one["lateness_nanoseconds"] for one in known}
    assert (len(recent) >= 2) is repeats
    assert all(late[one["sequence"]] == one["lateness_nanoseconds"] and not one["overdue"] for one in recent)
    assert sum(one["fires"] for one in minutes) >= len(recent)
    alone = f"fires.recent.{native.running.sidecar.instance}"
    assert (await native.answer(alone, stream="O"))["fires"] == [], "this one has fired nothing"
    await native.create("S")
    await native.schedule("S.ours", at(0.5), "X-")
    await native.schedule("S.theirs", at(0.5))
    await holds(native, "S", "S.ours")
    timeline = await native.answer("timeline.list", stream="S", minutes=60)
    assert (timeline["complete"], sum(minute["fires"] for minute in timeline["minutes"])) == (True, 2)
    soonest = [(one["subject"], one["fired_by"]) for one in timeline["soonest"]]
    assert soonest == [("S.ours", "sidecar"), ("S.theirs", "server")]


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
