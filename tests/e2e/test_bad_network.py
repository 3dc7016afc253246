"""Fires over a bad network: what was not acknowledged is sent again under the same identity, and stored once."""

from nats_scheduler.engine.events import FireStored, FireUnknown
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import account_on, in_seconds, sidecar_on
from tests.harness.flagged import Served, fire_time_of
from tests.harness.proxy import proxy_to
from tests.harness.servers import V2_11


async def test_a_fire_without_acknowledgements_is_stored_once(start_server: StartServer) -> None:
    """On a work queue stream, where only the acknowledgement shows it, since the fire itself is lost on the way."""
    server = await start_server(V2_11)
    async with (
        account_on(server.url) as account,
        proxy_to(server.url) as network,
        sidecar_on(network.url, ack_timeout=SECOND // 5) as running,
    ):
        await account.create("S", storage="file", retention="workqueue")
        await running.ready("S")
        here = Served(account, "S", running, server.url, server.version)
        # Acknowledgements of fires come to the inbox that all streams of a connection share.
        network.to_client.loses = lambda subject: b".a." in subject or subject.startswith(b"S.out")
        await here.schedule("at", f"@at {in_seconds(0.3)}", target="out.at")
        await here.schedule("every", "@every 1s", target="out.every")
        waits = [event.retry_after for event in await here.reported(FireUnknown, 8)]
        assert len(await here.messages("out.at")) == 1
        assert len(await here.messages("out.every")) == 1, "the next fire waits for this one"
        network.heal()
        every = await here.wait_for("out.every", 4)
        assert len(await here.messages("out.at")) == 1
        repeated = {event.fire.target for event in here.of(FireStored) if event.duplicate}
        assert repeated == {"S.out.at", "S.out.every"}
    times = [fire_time_of(fire) for fire in every]
    assert times == sorted(set(times))
    assert max(waits) <= SECOND
