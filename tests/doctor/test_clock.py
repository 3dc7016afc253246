"""The bounds of a clock, whether the clocks of a cluster differ, and where two versions of a zone begin to differ."""

import re
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nats_scheduler.doctor.clock import ZONES_COMPARED_NS, check_nodes_clocks, first_difference, offset_of
from nats_scheduler.doctor.facts import AccountFacts, ClockReading
from nats_scheduler.doctor.finding import Code
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.zones import OffsetTable, package_zone_data, read_tzif
from tests.doctor.examined import facts_on, findings_on, of
from tests.harness.account import Account, account_on
from tests.harness.cluster import Cluster, running_cluster
from tests.harness.rewriting import rewritten
from tests.harness.servers import V2_11

NOW = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * SECOND


@pytest.mark.parametrize(
    ("shown", "asked", "answered", "offset"),
    [
        (105, 100, 110, 0),  # somewhere between: no offset is shown
        (100, 100, 110, 0),
        (130, 100, 110, 20),  # ahead of the answer: so much at least
        (80, 100, 110, -20),
    ],
)
def test_only_what_the_way_of_the_answer_does_not_explain_is_an_offset(
    shown: int, asked: int, answered: int, offset: int
) -> None:
    assert offset_of(ClockReading("S", shown, asked, answered)) == offset


# -- the nodes of a cluster --------------------------------------------------------------------------------------------


def reading(node: str, offset: int, travel: int = 0) -> ClockReading:
    """Make a reading of a clock that is ahead by `offset`, from an answer that took `travel` to arrive (ns)."""
    return ClockReading("S", NOW + offset + travel, NOW, NOW + travel, node)


@pytest.mark.parametrize(
    ("readings", "what"),
    [
        ([reading("a", 0), reading("b", SECOND)], "the clock of node b is 1.0 s ahead of that of node a"),
        ([reading("a", 0), reading("b", SECOND - 1)], None),
        ([reading("a", -8 * SECOND), reading("b", 0), reading("c", 3 * SECOND)], "node c is 11.0 s ahead of that of"),
        ([reading("a", 90 * SECOND), reading("b", 90 * SECOND)], None),  # this machine's clock is the wrong one
        ([reading("a", 0, 2 * SECOND), reading("b", 2 * SECOND)], None),  # the way of the answer explains it
        ([reading("a", 60 * SECOND)], None),
        ([reading("", 0), reading("", 60 * SECOND)], None),  # no cluster
    ],
)
def test_the_clocks_of_two_nodes_differ_if_no_delay_explains_it(readings: list[ClockReading], what: str | None) -> None:
    found = list(check_nodes_clocks(AccountFacts(clocks=readings)))
    assert [one.code for one in found] == [Code.CLOCKS_DIFFER] * (what is not None)
    assert what is None or what in found[0].what


async def led_by_each(cluster: Cluster, account: Account) -> dict[str, str]:
    """Create streams until each node leads one, or a consumer of one; return the streams by their leaders."""
    led: dict[str, str] = {}
    for number in range(30):
        info = await account.create(f"S{number}", allow_msg_schedules=False)
        led.setdefault(info["cluster"]["leader"], f"S{number}")
        if len(led) == len(cluster.nodes):
            break
    assert len(led) == len(cluster.nodes), led
    return led


def shifted(server: EmbeddedServer, node: str) -> AbstractAsyncContextManager[str]:
    """Relay a server, and shift by an hour the time in each answer that a node gave: no test can set its clock."""

    def rewrite(line: bytes) -> bytes:
        if b'"leader":"%b"' % node.encode() not in line:
            return line
        return re.sub(rb'("ts":"[^T]+T)(\d\d)', lambda m: b"%b%02d" % (m[1], (int(m[2]) + 1) % 24), line)

    return rewritten(server.port, rewrite)


@pytest.mark.server
async def test_the_clock_of_each_node_of_a_cluster_is_read_and_compared(tmp_path: Path) -> None:
    async with running_cluster(V2_11, tmp_path) as cluster, account_on(cluster.urls[0]) as account:
        led = await led_by_each(cluster, account)
        facts = await facts_on(cluster.urls[0])
        assert {one.node for one in facts.clocks} == set(led)
        assert list(check_nodes_clocks(facts)) == [], "they run on one machine"
        wrong = cluster.nodes[1].name
        async with shifted(cluster.nodes[0], wrong) as url:
            (found,) = of(await findings_on(url), Code.CLOCKS_DIFFER)
        assert f"node {wrong}" in found.what


@pytest.mark.server
async def test_a_node_that_leads_no_stream_is_asked_through_a_consumer(tmp_path: Path) -> None:
    async with running_cluster(V2_11, tmp_path) as cluster, account_on(cluster.urls[0]) as account:
        await account.create("S", metadata={"nats-scheduler.allow_msg_schedules": "true"}, num_replicas=3)
        leaders: set[str] = set()
        for number in range(40):
            config = {"durable_name": f"c{number}", "ack_policy": "explicit", "num_replicas": 1}
            info = await account.api.call(
                f"CONSUMER.CREATE.S.c{number}", {"stream_name": "S", "config": {**config, "name": f"c{number}"}}
            )
            leaders.add(info["cluster"]["leader"])
            if leaders == {node.name for node in cluster.nodes}:
                break
        facts = await facts_on(cluster.urls[0])
    assert {one.node for one in facts.clocks} == leaders
    assert len(leaders) == len(cluster.nodes)
    assert {" > c" in one.where for one in facts.clocks} == {True, False}


def test_equal_zones_do_not_differ() -> None:
    table = zone("Europe/Berlin")
    assert first_difference(table, table, NOW) is None


def test_zones_differ_from_the_first_instant_with_another_offset_on() -> None:
    summer = int(datetime(2026, 3, 29, 1, tzinfo=UTC).timestamp()) * SECOND
    assert first_difference(zone("Europe/Berlin"), zone("Africa/Lagos"), NOW) == summer
    assert first_difference(zone("Europe/Berlin"), zone("Asia/Tokyo"), NOW) == NOW


def test_what_differs_after_the_last_fire_that_is_searched_does_not_count() -> None:
    far = (NOW + ZONES_COMPARED_NS) // SECOND + 1
    assert first_difference(OffsetTable(0, (), ""), OffsetTable(0, ((far, 3600),), ""), NOW) is None
    assert first_difference(OffsetTable(0, (), ""), OffsetTable(0, ((far - 2, 3600),), ""), NOW) is not None


def zone(name: str) -> OffsetTable:
    table = read_tzif(package_zone_data(name) or b"")
    assert table is not None
    return table
