"""Programs that arm the next schedule when they receive a fire, and those that cancel at that moment."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from tests.conftest import SharedServer
from tests.differential.chains import NATIVE, RETENTIONS, SYSTEMS, System, played, stages
from tests.harness.cluster import running_cluster
from tests.harness.leads import OvertakenError, with_more_time
from tests.harness.servers import V2_11

AT_ONCE, MANY = 20, 300
"""The number of schedules of each program; many are a burst, of which the purges wait for each other."""

APART = 23 * MILLISECOND
"""The time (ns) between two due times where fires come one by one."""

EXACT = ("arms-after", "creates", "removes")
"""Programs for which it does not matter whether the schedule is gone already."""

WORK_SECONDS = (1.0, 4.0, 16.0, 64.0)
"""The time that a worker takes before it acts: far above that of a purge; the next one if a busy machine needs it."""

each_system = pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: f"{system.name}-{system.version}")


async def counts(
    system: System,
    url: str,
    folder: Path,
    programs: Sequence[str],
    at_once: int,
    *,
    retentions: Sequence[str] = RETENTIONS,
    apart: int = 0,
    work: int = 0,
    replicas: int = 1,
) -> dict[tuple[str, str], int]:
    """Run programs, each on streams of all retentions at the same time; return how many were right."""
    right: dict[tuple[str, str], int] = {}
    async with stages(system, url, folder, retentions, replicas) as made:
        for program in programs:
            outcomes = await asyncio.gather(*(played(program, stage, at_once, apart, work) for stage in made))
            right |= {(program, stage.retention): one for stage, one in zip(made, outcomes, strict=True)}
    return right


def each(programs: Sequence[str], right: int, retentions: Sequence[str] = RETENTIONS) -> dict[tuple[str, str], int]:
    return {(program, retention): right for program in programs for retention in retentions}


@each_system
@pytest.mark.clause("gone-with-its-fire")
async def test_what_names_the_fired_schedule_is_as_right_as_natively(
    system: System, shared_server: SharedServer, tmp_path: Path
) -> None:
    server = await shared_server(system.version)
    assert await counts(system, server.url, tmp_path, EXACT, AT_ONCE, apart=APART) == each(EXACT, AT_ONCE)


@pytest.mark.deep
@each_system
@pytest.mark.parametrize("retention", RETENTIONS)
@pytest.mark.clause("gone-with-its-fire")
async def test_in_a_burst_what_names_the_fired_schedule_is_right(
    retention: str, system: System, shared_server: SharedServer, tmp_path: Path
) -> None:
    server = await shared_server(system.version)
    right = await counts(system, server.url, tmp_path, EXACT, MANY, retentions=[retention])
    assert right == each(EXACT, MANY, [retention])


@pytest.mark.deep
@pytest.mark.clause("gone-with-its-fire")
async def test_on_three_nodes_what_names_the_fired_schedule_is_right(tmp_path: Path) -> None:
    system = next(one for one in SYSTEMS if one.version == V2_11)
    async with running_cluster(V2_11, tmp_path / "cluster") as cluster:
        url, folder = cluster.nodes[0].url, tmp_path / "sidecar"
        assert await counts(system, url, folder, EXACT, AT_ONCE, apart=APART, replicas=3) == each(EXACT, AT_ONCE)


@pytest.mark.clause("gone-with-its-fire")
async def test_beside_the_native_scheduler_a_schedule_is_gone_with_its_fire(
    shared_server: SharedServer, tmp_path: Path
) -> None:
    server, programs = await shared_server(NATIVE.version), ("arms-at-0", "cancels")
    assert await counts(NATIVE, server.url, tmp_path, programs, AT_ONCE) == each(programs, AT_ONCE)


@pytest.mark.parametrize(
    ("system", "retention"),
    [
        pytest.param(
            system,
            retention,
            id=f"{system.name}-{retention}",
            marks=[] if system.version == V2_11 and retention == "limits" else pytest.mark.deep,
        )
        for system in SYSTEMS
        if system.has_sidecar
        for retention in RETENTIONS
    ],
)
@pytest.mark.clause("gone-with-its-fire")
async def test_a_worker_that_takes_a_second_finds_the_schedules_gone(
    system: System, retention: str, shared_server: SharedServer, tmp_path: Path
) -> None:
    server, programs = await shared_server(system.version), ("arms-at-0", "cancels")

    async def work(seconds: float) -> None:
        folder = tmp_path / f"{seconds:g}"
        right = await counts(
            system, server.url, folder, programs, MANY, retentions=[retention], work=round(seconds * SECOND)
        )
        if right != each(programs, MANY, [retention]):
            raise OvertakenError(str(right))

    await with_more_time(work, WORK_SECONDS)
