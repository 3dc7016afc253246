"""Each finding about a stream, on a server on which it is reported, and on one that differs in one thing."""

import pytest

from nats_scheduler.doctor import gather
from nats_scheduler.doctor.finding import Code
from tests.conftest import SharedServer
from tests.doctor.examined import findings_on, of
from tests.doctor.scenes import (
    NEVER,
    SCENES,
    configured,
    consumed,
    copied_beside_a_consumer,
    schedule,
    stored,
    twice,
    unflagged,
)
from tests.harness.account import account_on
from tests.harness.servers import V2_11, V2_12


@pytest.mark.parametrize("code", SCENES)
async def test_it_is_reported_where_it_is_wrong(shared_server: SharedServer, stream_name: str, code: Code) -> None:
    server = await shared_server(SCENES[code].version)
    async with account_on(server.url) as account:
        await SCENES[code].wrong(account, stream_name)
        found = of(await findings_on(server, stream_name), code)
    assert found, f"{code} is reported"
    assert {finding.stream for finding in found} <= {stream_name, None}
    assert all(finding.what and finding.why and finding.command for finding in found)


@pytest.mark.parametrize("code", SCENES)
async def test_it_is_not_reported_where_it_is_right(shared_server: SharedServer, stream_name: str, code: Code) -> None:
    scene = SCENES[code]
    server = await shared_server(scene.right_version or scene.version)
    async with account_on(server.url) as account:
        await scene.right(account, stream_name)
        found = await findings_on(server, stream_name)
    assert of(found, code) == []
    assert of(found, Code.NOT_EXAMINED) == of(found, Code.NO_ANSWER) == []


async def test_a_copy_of_an_interest_stream_removes_only_what_no_consumer_receives(
    shared_server: SharedServer, stream_name: str
) -> None:
    server = await shared_server(V2_11)
    async with account_on(server.url) as account:
        for receives_schedules in (True, False):
            name = f"{stream_name}-{receives_schedules}"
            await copied_beside_a_consumer(receives_schedules=receives_schedules)(account, name)
            removed = of(await findings_on(server, name), Code.COPIES_REMOVE_SCHEDULES)
            assert bool(removed) is not receives_schedules


async def test_a_stream_that_a_later_release_does_not_load_is_reported(
    shared_server: SharedServer, stream_name: str
) -> None:
    """2.12.8 still accepts schedules together with `discard: new`."""
    server = await shared_server(V2_12)
    async with account_on(server.url) as account:
        await configured(discard="new")(account, stream_name)
        (found,) = of(await findings_on(server, stream_name), Code.DEFECT_STREAM_LOST)
        assert found.command == f"nats stream edit {stream_name} --discard old, before you upgrade"
        await stored()(account, f"{stream_name}-old")
        assert of(await findings_on(server, f"{stream_name}-old"), Code.DEFECT_STREAM_LOST) == []


async def test_a_ttl_that_ends_before_the_fire_is_reported_with_what_to_do(
    shared_server: SharedServer, stream_name: str
) -> None:
    server = await shared_server(V2_11)
    async with account_on(server.url) as account:
        await configured(allow_msg_ttl=True)(account, stream_name)
        await account.publish(f"{stream_name}.short", schedule(stream_name, NEVER, **{"Nats-TTL": "1h"}))
        (found,) = of(await findings_on(server, stream_name), Code.ENDS_BEFORE_FIRE)
    assert found.subject == f"{stream_name}.short"
    assert found.what.startswith(f"its own Nats-TTL ends {stream_name}.short at ")
    assert found.command == "publish the schedule again with a longer Nats-TTL"


async def test_a_limit_of_bytes_that_is_near_is_reported(shared_server: SharedServer, stream_name: str) -> None:
    server = await shared_server(V2_11)
    async with account_on(server.url) as account:
        await configured(max_bytes=100_000)(account, stream_name)
        await account.publish(f"{stream_name}.large", body=bytes(50_000))
        assert of(await findings_on(server, stream_name), Code.EVICTS_SOON) == []
        await account.publish(f"{stream_name}.large", body=bytes(45_000))
        (found,) = of(await findings_on(server, stream_name), Code.EVICTS_SOON)
    assert found.what.startswith("max_bytes is 100000 and 95")
    assert found.command == f"nats stream edit {stream_name} --max-bytes 200000"


async def test_a_target_that_no_consumer_of_an_interest_stream_receives_is_reported(
    shared_server: SharedServer, stream_name: str
) -> None:
    server = await shared_server(V2_11)
    async with account_on(server.url) as account:
        await consumed("interest", "s")(account, stream_name)
        (found,) = of(await findings_on(server, stream_name), Code.NO_INTEREST)
    assert found.subject == f"{stream_name}.out"
    assert found.command == f"nats consumer add {stream_name} --filter {stream_name}.out"


async def test_what_is_not_read_because_there_is_too_much_is_noted(
    shared_server: SharedServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "MAX_BODIES_COMPARED", 2)
    monkeypatch.setattr(gather, "MAX_SEARCHED_MESSAGES", 3)
    server = await shared_server(V2_11)
    plain = f"{stream_name}-plain"
    async with account_on(server.url) as account:
        await twice(b"a", b"b", b"c")(account, stream_name)
        await unflagged(account, plain)
        for _ in range(2):
            await account.publish(f"{plain}.other")
        assert Code.SCHEDULES_WITHOUT_FLAG in {found.code for found in await findings_on(server, plain)}
        await account.publish(f"{plain}.other")
        found = await findings_on(server, plain)
        noted = of(await findings_on(server, stream_name), Code.NOT_EXAMINED)
    assert of(found, Code.SCHEDULES_WITHOUT_FLAG) == []
    assert [one.what.partition(": only the newest 3")[2] for one in of(found, Code.NOT_EXAMINED)] == [
        " messages are searched"
    ]
    assert [one.what.endswith("only 2 bodies are compared") for one in noted] == [True]
