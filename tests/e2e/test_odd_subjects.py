"""Schedules on subjects that JSON cannot name: what is done about one of them is done to nothing else."""

import pytest

from tests.conftest import StartServer
from tests.harness.account import WAIT_SECONDS, account_on, in_seconds, sidecar_on
from tests.harness.flagged import FlaggedStream
from tests.harness.servers import EMULATED_VERSIONS
from tests.harness.waiting import eventually


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_where_json_cannot_name_a_subject_nothing_of_another_one_is_removed(
    start_server: StartServer, version: str
) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await account.create("S")
        await running.ready("S")
        stream = FlaggedStream(account, "S")
        far = stream.headers("@at 2100-01-01T00:00:00Z")
        # Both look the same in JSON: what is not UTF-8 is replaced there.
        replaced = await stream.publish("s.\udce9", far, b"replaced")
        await stream.publish("s.\udce8", far, b"of another subject")
        await stream.publish("elsewhere", body=b"of another subject")
        await stream.publish("s.\udce9", far, b"replacing")
        await stream.publish("s.\udce8", far, b"replacing the other")
        bodies = [b"of another subject", b"replacing", b"replacing the other"]

        async def are_removed() -> bool:
            return [message.body for message in await stream.messages(">")] == bodies

        await eventually(are_removed, within_seconds=WAIT_SECONDS, describe="the older versions are removed")
        assert await account.api.message("S", seq=replaced) is None
        due = stream.headers(f"@at {in_seconds(0.5)}")
        await stream.publish("s.\udce9", due, b"fires")
        await stream.wait_for("out")
        await eventually(
            lambda: _holds(stream, b"of another subject", b"replacing the other", b"fires"),
            within_seconds=WAIT_SECONDS,
            describe="what has fired is removed",
        )


async def _holds(stream: FlaggedStream, *bodies: bytes) -> bool:
    return [message.body for message in await stream.messages(">")] == list(bodies)
