"""Mappings of the account move what is published to a target: the fire is ours all the same, and that is said once."""

import pytest

from nats_scheduler.engine.events import FireForged, TargetMapped
from nats_scheduler.message.findings import Code
from tests.conftest import StartServer
from tests.doctor.examined import findings_on, of
from tests.harness.account import account_on, in_seconds, sidecar_on
from tests.harness.flagged import FlaggedStream
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

MAPPINGS = """
"S.mapped": "S.there"
"S.weighted": [ { destination: "S.one", weight: 50% }, { destination: "S.other", weight: 50% } ]
"S.by.*": "S.part.{{partition(3,1)}}.{{wildcard(1)}}"
"S.elsewhere": "OTHER.there"
"S.nowhere": "NOWHERE.there"
"""
CONFIG = f"accounts {{ A {{ jetstream: enabled, mappings: {{ {MAPPINGS} }}, users: [{{ user: a, password: p }}] }} }}"
STORED = {"mapped": ("there",), "weighted": ("one", "other"), "by.x": ("part.*.x",)}


@pytest.fixture
async def url(start_server: StartServer) -> str:
    return (await start_server(V2_11, config=CONFIG)).url.replace("nats://", "nats://a:p@")


@pytest.mark.clause("account-mappings")
async def test_fires_mapped_within_the_stream_count_as_stored(url: str) -> None:
    async with account_on(url) as account, sidecar_on(url) as running:
        await account.create("S")
        await running.ready("S")
        stream = FlaggedStream(account, "S")
        for target in STORED:
            await stream.schedule(f"s.{target}", "@every 1s", target=target)
        await stream.schedule("at", f"@at {in_seconds(1)}", target="mapped")

        async def stored() -> bool:
            found = {target: [await stream.messages(one) for one in on] for target, on in STORED.items()}
            return all(sum(map(len, lists)) >= 4 for lists in found.values())

        await eventually(stored, describe="four fires on each target")
        await eventually(lambda: running.of("S", TargetMapped), describe="it is said")

        async def is_done() -> bool:
            return not await stream.messages("at")

        await eventually(is_done, describe="the schedule that fires once is removed")
        times = [one.stored_at // 1_000_000_000 for one in await stream.messages("part.*.x")]
        assert times == sorted(set(times)), "each second has one fire"
        assert not running.of("S", FireForged)
        said = [event.target for event in running.of("S", TargetMapped)]
        assert sorted(said) == sorted(f"S.{target}" for target in STORED)
        found = of(await findings_on(url), Code.TARGET_MAPPED)
    assert {one.subject for one in found} <= {f"S.s.{target}" for target in STORED} | {"S.at"}
    assert len(found) == len(STORED)


@pytest.mark.clause("account-mappings")
@pytest.mark.parametrize(("target", "reason"), [("elsewhere", "stream OTHER answered"), ("nowhere", "no stream")])
async def test_a_fire_mapped_out_of_the_stream_is_reported(url: str, target: str, reason: str) -> None:
    async with account_on(url) as account, sidecar_on(url) as running:
        await account.create("S")
        await account.create("OTHER", allow_msg_schedules=False)
        await running.ready("S")
        stream = FlaggedStream(account, "S")
        await stream.schedule("at", f"@at {in_seconds(0.5)}", target=target)
        await eventually(lambda: running.of("S", TargetMapped), describe="it is said")
        (said,) = running.of("S", TargetMapped)
        assert (said.target, reason in said.reason, "map" in said.reason) == (f"S.{target}", True, True)
        (found,) = of(await findings_on(url), Code.TARGET_MAPPED)
        assert found.subject == "S.at"
        await stream.schedule("at", "@every 1s", target="right")
        await stream.wait_for("right")
