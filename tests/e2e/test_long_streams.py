"""In a long stream schedules that are done are deleted one by one, and every instance knows that they are gone."""

import pytest

from nats_scheduler.jetstream import purge as block_indexes
from tests.conftest import StartServer
from tests.harness.account import WAIT_SECONDS, Running, account_on, in_seconds, sidecar_on
from tests.harness.servers import EMULATED_VERSIONS
from tests.harness.waiting import eventually

COUNT = 60


def held(running: Running) -> int:
    return len(running.sidecar.served["S"].engine.view().page(0, limit=None).finish().schedules)


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_what_fired_and_what_was_replaced_is_deleted_and_nothing_else(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(block_indexes, "LONG_STREAM", 1)
    monkeypatch.setattr(block_indexes, "SHARE_FOR_EACH", 0.001)
    server = await start_server(version)
    deleted: list[str] = []
    async with account_on(server.url) as account, sidecar_on(server.url) as one, sidecar_on(server.url) as two:
        subject = "$JS.API.STREAM.MSG.DELETE.S"
        account.connection.subscribe(subject, lambda subject, *_more: deleted.append(subject.decode()))
        await account.create("S")
        await account.publish("S.plain")
        for running in (one, two):
            await running.ready("S")
            await running.healthy()
        for number in range(COUNT):
            for delay in (3_000, 4) if number % 2 else (4,):
                headers = {"Nats-Schedule": f"@at {in_seconds(delay)}", "Nats-Schedule-Target": f"S.out.{number}"}
                await account.publish(f"S.s.{number}", headers)

        async def is_over() -> bool:
            return not await account.messages("S", "S.s.*") and held(one) == held(two) == 0

        await eventually(is_over, within_seconds=WAIT_SECONDS, describe="no schedule is stored or held")
        fires = [message.subject for message in await account.messages("S", "S.out.*")]
        assert sorted(fires) == sorted(f"S.out.{number}" for number in range(COUNT))
        assert [message.subject for message in await account.messages("S", "S.plain")] == ["S.plain"]
        assert deleted, "what is done while a purge is not needed for anything else"
