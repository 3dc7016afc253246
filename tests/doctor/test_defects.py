"""The releases that have a defect: the versions at its limits. What it takes on a stream is in the scenes."""

from dataclasses import replace

import pytest

from nats_scheduler.doctor.examination import examine
from nats_scheduler.doctor.finding import Code
from tests.conftest import SharedServer
from tests.doctor.examined import facts_on
from tests.doctor.scenes import copied, schedule
from tests.harness.account import WAIT_SECONDS, account_on
from tests.harness.servers import V2_14, V2_15
from tests.harness.waiting import eventually


@pytest.mark.parametrize("version", ["2.14.0", "2.14.2", "2.14.5"])
@pytest.mark.parametrize("kind", ["mirror", "sources"])
async def test_a_copy_of_a_work_queue_is_reported_for_the_releases_that_empty_it(
    shared_server: SharedServer, stream_name: str, version: str, kind: str
) -> None:
    server = await shared_server(V2_14)
    async with account_on(server.url) as account:
        await copied("workqueue", kind, part="out")(account, stream_name)
    facts = await facts_on(server, stream_name)
    assert facts.server is not None
    found = examine(replace(facts, server=replace(facts.server, version=version))).findings
    assert [one.stream for one in found if one.code is Code.DEFECT_QUEUE_EMPTIED] == [stream_name]
    assert not [one for one in examine(facts).findings if one.code is Code.DEFECT_QUEUE_EMPTIED]


@pytest.mark.parametrize("version", [V2_14, V2_15])
async def test_a_copy_of_a_work_queue_removes_nothing_that_its_filter_leaves_out(
    shared_server: SharedServer, stream_name: str, version: str
) -> None:
    """A server that fails this has the defect: its release belongs into `Capabilities.empties_queues`."""
    server, target = await shared_server(version), f"{stream_name}.out"
    async with account_on(server.url) as account:
        await copied("workqueue", part="out")(account, stream_name)
        for between in ("a", "b"):
            await account.publish(target)
            await account.publish(f"{stream_name}.{between}", schedule(stream_name))
        await account.publish(target)
        await account.wait_for(f"{stream_name}-copy", target, 3)

        async def is_copied() -> bool:
            return await account.messages(stream_name, target) == []

        await eventually(is_copied, within_seconds=WAIT_SECONDS, describe="what is copied is removed")
        kept = [one.subject for one in await account.messages(stream_name, ">")]
        assert kept == [f"{stream_name}.{rest}" for rest in ("s", "a", "b")]
