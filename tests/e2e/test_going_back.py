"""A stream that goes back to an earlier state while it is served: what is published then is served all the same."""

import shutil
from pathlib import Path

from nats_scheduler.control.errors import SchedulerError
from tests.harness.account import Account, account_on, in_seconds, sidecar_on
from tests.harness.flagged import AS_ADOPTED, FlaggedStream
from tests.harness.proxy import Proxy, proxy_to
from tests.harness.servers import V2_11
from tests.harness.upgrades import Machine, machine_in

STORED = {"storage": "file", **AS_ADOPTED}
BEFORE = 20
"""The number of messages before it goes back, and of sequences that are given a second time."""


async def last_sequence(account: Account) -> int:
    """Return the stream's last sequence, a high one where nobody answers."""
    try:
        info = await account.api.stream("S")
    except SchedulerError:
        info = None
    return 1 << 60 if info is None else int(info["state"]["last_seq"])


async def goes_on(stream: FlaggedStream) -> None:
    """Publish what is not there any more once the stream has gone back."""
    for number in range(BEFORE):
        await stream.publish("before", body=b"%d" % number)
    await stream.schedule("at", f"@at {in_seconds(3600)}", b"gone", target="anew")
    await stream.schedule("every", "@every 1s", b"gone", target="ticks")
    await stream.wait_for("ticks")


async def expect_fires(stream: FlaggedStream) -> None:
    """Show that what is published now fires, on subjects that had schedules before."""
    await stream.schedule("at", f"@at {in_seconds(0.1)}", b"anew", target="anew")
    await stream.schedule("every", "@every 1s", b"anew", target="ticks.anew")
    fires = await stream.wait_for("anew")
    await stream.wait_for("ticks.anew", 3)
    assert [fire.body for fire in fires] == [b"anew"]
    assert len(await stream.messages("anew")) == 1


async def test_a_stream_that_went_back_is_served_anew(tmp_path: Path) -> None:
    """Its last sequence is no lower then; what shows it is another message under the sequence of the last one read."""
    store, copy = tmp_path / "store", tmp_path / "copy"
    async with machine_in(store) as machine, proxy_to(await machine.install(V2_11)) as proxy:
        async with account_on(machine.url) as account:
            await account.create("S", **STORED)
        async with sidecar_on(proxy.url) as running:
            await running.ready("S")
            await out_of_contact(proxy, machine)
            shutil.copytree(store, copy)
            await machine.install(V2_11)
            proxy.accept()
            await running.ready("S", times=2)
            async with account_on(machine.url) as account:
                await goes_on(FlaggedStream(account, "S"))
            await out_of_contact(proxy, machine)
            read = running.sidecar.served["S"].engine.last_read
            shutil.rmtree(store)
            shutil.copytree(copy, store)
            await machine.install(V2_11)
            async with account_on(machine.url) as account:
                stream = FlaggedStream(account, "S")
                await stream.schedule("unread", f"@at {in_seconds(0.1)}", b"anew", target="unread.anew")
                while await last_sequence(account) < read + BEFORE:
                    await stream.publish("after")
                there = await account.api.message("S", seq=read)
                assert there is not None
                assert there.subject == "S.after"
                proxy.accept()
                told = await running.told_of("stream_rolled_back", stream="S")
                await stream.wait_for("unread.anew")
                await expect_fires(stream)
                assert await stream.messages("ticks") == []
    assert f"another message than the one that was read has sequence {read}" in told["reason"]


async def out_of_contact(proxy: Proxy, machine: Machine) -> None:
    """Stop the server, and let the sidecar find none before the proxy accepts."""
    proxy.refuse()
    proxy.cut()
    await machine.stop()
