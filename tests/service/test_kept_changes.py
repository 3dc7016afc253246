"""The author of a change can be read as long as the stream of failures keeps it, and a change is no failure."""

import json

import pytest

from nats_scheduler.control.changes import Author, Change, Kind, change_advisory, read_change
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.service.advisories import AdvisoryQuery, find_changes, find_failures
from tests.conftest import StartServer
from tests.harness.account import Account, account_on
from tests.harness.servers import V2_10, V2_15

AT = 1_790_000_000 * SECOND


def change(subject: str, stream: str = "S", after: int = 2) -> Change:
    return Change(Kind.EDITED, stream, subject, 1, after, Author("jane", "why"), AT, (), ("note",))


async def record(account: Account, one: Change) -> None:
    subject, body, block = change_advisory(one)
    await account.publish_block(subject, block, body)


@pytest.mark.parametrize("version", [V2_10, V2_15])
async def test_changes_are_found_newest_first_and_are_no_failures(start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account:
        config = {"name": "K", "subjects": ["nats_scheduler.advisory.>"], "storage": "memory"}
        await account.api.call("STREAM.CREATE.K", config)
        made = [change("S.a"), change("S.b"), change("T.a", "T"), change("S.a", after=3)]
        for one in made:
            await record(account, one)
        failure = {"type": "io.nats_scheduler.advisory.v1.cannot_serve", "stream": "S", "reason": "x"}
        await account.publish_block("nats_scheduler.advisory.cannot_serve.S", b"", json.dumps(failure).encode())
        wrong = {"type": "io.nats_scheduler.advisory.v1.schedule_changed", "stream": "S", "schedule": "S.a"}
        await account.publish_block("nats_scheduler.advisory.schedule_changed.S.S.a", b"", json.dumps(wrong).encode())
        kept_in = StreamState.from_info(await account.api.stream("K"))

        async def found(query: AdvisoryQuery) -> list[Change | None]:
            answer = await find_changes(account.connection, account.api, kept_in, query)
            assert answer["complete"]
            return [read_change(one["advisory"]) for one in answer["failures"]]

        assert await found(AdvisoryQuery()) == made[::-1]
        assert await found(AdvisoryQuery(stream="S")) == [made[3], made[1], made[0]]
        assert await found(AdvisoryQuery(stream="S", schedule="S.a")) == [made[3], made[0]]
        assert await found(AdvisoryQuery(schedule="*.a", limit=1)) == [made[3]]
        failures = await find_failures(account.connection, account.api, kept_in, AdvisoryQuery())
        assert [one["kind"] for one in failures["failures"]] == ["cannot_serve"]
