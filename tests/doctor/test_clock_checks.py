"""The bounds of a clock, whether the clocks of a cluster differ, and where two versions of a zone begin to differ."""

import re
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nats_scheduler.doctor.clock_checks import ZONES_COMPARED_NS, check_nodes_clocks, first_difference, offset_of
from nats_scheduler.doctor.facts import AccountFacts, ClockReading
from nats_scheduler.message.findings import Code
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.tzif import OffsetTable, read_tzif
from nats_scheduler.schedule.zone_data import package_zone_data
from tests.doctor.examined import facts_on, findings_on, of
from tests.harness.account import account_on
from tests.harness.cluster import running_cluster
from tests.harness.flagged import FLAGGED
from tests.harness.rewriting import rewritten
from tests.harness.servers import V2_11

NOW = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * SECOND


def test_only_what_the_way_of_the_answer_does_not_explain_is_an_offset() -> None:
    for shown, offset in ((105, 0), (100, 0), (130, 20), (80, -20)):
        assert offset_of(ClockReading("S", shown, 100, 110)) == offset, shown


# -- the nodes of a cluster --------------------------------------------------------------------------------------------


def reading(node: str, offset: int, travel: int = 0) -> ClockReading:
    """Make a reading of a clock that is ahead by `offset`, from an answer that took `travel` to arrive (ns)."""
    return ClockReading("S", NOW + offset + travel, NOW, NOW + travel, node)


def test_the_clocks_of_two_nodes_differ_if_no_delay_explains_it() -> None:
    cases: list[tuple[list[ClockReading], str | None]] = [
        ([reading("a", 0), reading("b", SECOND)], "the clock of node b is 1.0 s ahead of that of node a"),
        ([reading("a", 0), reading("b", SECOND - 1)], None),
        ([reading("a", 90 * SECOND), reading("b", 90 * SECOND)], None),  # this machine's clock is the wrong one
        ([reading("a", 0, 2 * SECOND), reading("b", 2 * SECOND)], None),  # the way of the answer explains it
        ([reading("", 0), reading("", 60 * SECOND)], None),  # no cluster
    ]
    for readings, what in cases:
        found = list(check_nodes_clocks(AccountFacts(clocks=readings)))
        assert [one.code for one in found] == [Code.CLOCKS_DIFFER] * (what is not None), readings
        assert what is None or what in found[0].what


def shifted(server: EmbeddedServer, node: str) -> AbstractAsyncContextManager[str]:
    """Relay a server, and shift by an hour the time in each answer that a node gave: no test can set its clock."""

    def rewrite(line: bytes) -> bytes:
        if b'"leader":"%b"' % node.encode() not in line:
            return line
        return re.sub(rb'("ts":"[^T]+T)(\d\d)', lambda m: b"%b%02d" % (m[1], (int(m[2]) + 1) % 24), line)

    return rewritten(server.port, rewrite)


@pytest.mark.server
async def test_the_clock_of_each_node_of_a_cluster_is_read_and_compared(tmp_path: Path) -> None:
    """A node that leads no stream is asked through a consumer."""
    async with running_cluster(V2_11, tmp_path) as cluster, account_on(cluster.urls[0]) as account:
        nodes = {node.name for node in cluster.nodes}
        await account.create("S", metadata=FLAGGED, num_replicas=3)
        leaders: set[str] = set()
        for number in range(40):
            if leaders != nodes:
                config = {
                    "name": f"c{number}",
                    "durable_name": f"c{number}",
                    "ack_policy": "explicit",
                    "num_replicas": 1,
                }
                request = {"stream_name": "S", "config": config}
                info = await account.api.call(f"CONSUMER.CREATE.S.c{number}", request)
                leaders.add(info["cluster"]["leader"])
        facts = await facts_on(cluster.urls[0])
        assert {one.node for one in facts.clocks} == leaders == nodes
        assert {" > c" in one.where for one in facts.clocks} == {True, False}
        assert list(check_nodes_clocks(facts)) == [], "they run on one machine"
        wrong = cluster.nodes[1].name
        async with shifted(cluster.nodes[0], wrong) as url:
            (found,) = of(await findings_on(url), Code.CLOCKS_DIFFER)
        assert f"node {wrong}" in found.what


def test_zones_differ_from_the_first_instant_with_another_offset_on() -> None:
    berlin, summer = zone("Europe/Berlin"), int(datetime(2026, 3, 29, 1, tzinfo=UTC).timestamp()) * SECOND
    assert first_difference(berlin, berlin, NOW) is None
    assert first_difference(berlin, zone("Africa/Lagos"), NOW) == summer
    assert first_difference(berlin, zone("Asia/Tokyo"), NOW) == NOW
    far = (NOW + ZONES_COMPARED_NS) // SECOND + 1
    assert first_difference(OffsetTable(0, (), ""), OffsetTable(0, ((far, 3600),), ""), NOW) is None, (
        "it is not searched"
    )
    assert first_difference(OffsetTable(0, (), ""), OffsetTable(0, ((far - 2, 3600),), ""), NOW) is not None


def zone(name: str) -> OffsetTable:
    table = read_tzif(package_zone_data(name) or b"")
    assert table is not None
    return table
