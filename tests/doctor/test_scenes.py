"""Each finding about a stream, on a server on which it is reported, and on one that differs in one thing.

It tests `doctor/schedule_checks.py` too.
It tests `doctor/server_defects.py` and `message/stream_findings.py` too.
"""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from nats_scheduler.doctor import gather
from nats_scheduler.doctor.examination import examine
from nats_scheduler.engine.inputs import NOTHING_SETTLED
from nats_scheduler.message.findings import Code, Finding
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.stored_listing import read_schedules
from nats_scheduler.schedule.instants import HOUR
from tests.conftest import SharedServer
from tests.doctor.examined import facts_on, findings_on, of
from tests.doctor.scenes import (
    SCENES,
    configured,
    consumer,
    copied,
    copied_beside_a_consumer,
    copy,
    schedule,
    stored,
    twice,
    unflagged,
)
from tests.harness.account import CLOCK, Account, account_on
from tests.harness.flagged import FLAGGED
from tests.harness.servers import V2_11, V2_12, V2_14, V2_15
from tests.harness.waiting import eventually


@pytest.fixture
async def account(shared_server: SharedServer) -> AsyncIterator[Account]:
    """Connect to the shared server of 2.11."""
    async with account_on((await shared_server(V2_11)).url) as connected:
        yield connected


async def found_on(shared_server: SharedServer, stream: str, version: str = V2_11) -> list[Finding]:
    return await findings_on(await shared_server(version), stream)


@pytest.mark.parametrize("code", SCENES)
async def test_it_is_reported_where_it_is_wrong_and_not_where_it_is_right(
    shared_server: SharedServer, stream_name: str, code: Code
) -> None:
    scene, right = SCENES[code], f"{stream_name}-right"
    async with account_on((await shared_server(scene.version)).url) as account:
        await scene.wrong(account, stream_name)
        found = of(await found_on(shared_server, stream_name, scene.version), code)
    assert found, f"{code} is reported"
    assert {finding.stream for finding in found} <= {stream_name, None}
    assert all(finding.what and finding.why and finding.command for finding in found)
    version = scene.right_version or scene.version
    async with account_on((await shared_server(version)).url) as account:
        await scene.right(account, right)
        others = await found_on(shared_server, right, version)
    assert of(others, code) == of(others, Code.NOT_EXAMINED) == of(others, Code.NO_ANSWER) == []


async def test_a_copy_removes_only_what_no_consumer_receives(
    shared_server: SharedServer, stream_name: str, account: Account
) -> None:
    for receives_schedules in (True, False):
        name = f"{stream_name}-{receives_schedules}"
        await copied_beside_a_consumer(receives_schedules=receives_schedules)(account, name)
        removed = of(await found_on(shared_server, name), Code.COPIES_REMOVE_SCHEDULES)
        assert bool(removed) is not receives_schedules


TAKES = (Code.CONSUMER_TAKES_SCHEDULES, Code.COPIES_REMOVE_SCHEDULES, Code.COPIED)


async def test_a_stream_that_a_later_release_does_not_load_is_reported(
    shared_server: SharedServer, stream_name: str
) -> None:
    """2.12.8 still accepts schedules together with `discard: new`."""
    async with account_on((await shared_server(V2_12)).url) as account:
        await configured(discard="new")(account, stream_name)
        (found,) = of(await found_on(shared_server, stream_name, V2_12), Code.DEFECT_STREAM_LOST)
        assert found.command == f"nats stream edit {stream_name} --discard old, before you upgrade"
        await stored()(account, f"{stream_name}-old")
        assert of(await found_on(shared_server, f"{stream_name}-old", V2_12), Code.DEFECT_STREAM_LOST) == []


@pytest.mark.parametrize("retention", ["workqueue", "interest", "limits"])
async def test_schedules_on_their_own_subject_are_taken_by_nobody(
    shared_server: SharedServer, stream_name: str, retention: str
) -> None:
    """The usual layout: one subject for messages, one for schedules, a filter on the first one."""
    name = stream_name
    async with account_on((await shared_server(V2_11)).url) as account:

        async def taken() -> set[Code]:
            return {one.code for one in await found_on(shared_server, name)} & set(TAKES)

        subjects = [f"{name}.ev.>", f"{name}._sch.>"]
        await account.create(name, metadata=FLAGGED, retention=retention, subjects=subjects)
        await copy(account, name, filter_subject=f"{name}.ev.>")
        assert await taken() == set(), "no schedule is stored yet"
        if retention == "interest":  # it stores only what a consumer receives
            await consumer(account, name, subjects[1], "keeps")
        if retention != "workqueue":  # there the copy has a consumer of its own, and excludes another one
            await consumer(account, name, f"{name}.ev.>")
        await account.publish(f"{name}._sch.a", schedule(name, **{"Nats-Schedule-Target": f"{name}.ev.a"}))
        assert await account.messages(name, f"{name}._sch.a")
        assert await taken() == set()


async def test_what_is_not_read_because_there_is_too_much_is_noted(
    shared_server: SharedServer, stream_name: str, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "MAX_BODIES_COMPARED", 2)
    monkeypatch.setattr(gather, "MAX_SEARCHED_MESSAGES", 3)
    plain = f"{stream_name}-plain"
    await twice(b"a", b"b", b"c")(account, stream_name)
    await unflagged(account, plain)
    for _ in range(2):
        await account.publish(f"{plain}.other")
    assert of(await found_on(shared_server, plain), Code.SCHEDULES_UNSERVED)
    await account.publish(f"{plain}.other")
    found = await found_on(shared_server, plain)
    noted = of(await found_on(shared_server, stream_name), Code.NOT_EXAMINED)
    assert of(found, Code.SCHEDULES_UNSERVED) == []
    searched = [one.what.partition(": only the newest 3")[2] for one in of(found, Code.NOT_EXAMINED)]
    assert searched == [" messages are searched"]
    assert [one.what.endswith("only 2 bodies are compared") for one in noted] == [True]


# -- releases that have a defect: the versions at its limits -----------------------------------------------------------


async def test_a_copy_of_a_queue_is_reported_where_it_empties_it(shared_server: SharedServer, stream_name: str) -> None:
    server = await shared_server(V2_14)
    async with account_on(server.url) as account:
        await copied("workqueue", "mirror", part="out")(account, stream_name)
    facts = await facts_on(server, stream_name)
    assert facts.server is not None
    for version in ("2.14.0", "2.14.2", "2.14.5"):
        found = examine(replace(facts, server=replace(facts.server, version=version))).findings
        assert [one.stream for one in found if one.code is Code.DEFECT_QUEUE_EMPTIED] == [stream_name], version
    assert not [one for one in examine(facts).findings if one.code is Code.DEFECT_QUEUE_EMPTIED]


async def test_a_copy_of_a_queue_removes_only_what_it_filters(shared_server: SharedServer, stream_name: str) -> None:
    """A server that fails this has the defect: its release belongs into `Capabilities.empties_queues`."""
    server, target = await shared_server(V2_15), f"{stream_name}.out"
    async with account_on(server.url) as account:
        await copied("workqueue", part="out")(account, stream_name)
        for between in ("a", "b"):
            await account.publish(target)
            await account.publish(f"{stream_name}.{between}", schedule(stream_name))
        await account.publish(target)
        await account.wait_for(f"{stream_name}-copy", target, 3)

        async def is_copied() -> bool:
            return await account.messages(stream_name, target) == []

        await eventually(is_copied, describe="what is copied is removed")
        kept = [one.subject for one in await account.messages(stream_name, ">")]
        assert kept == [f"{stream_name}.{rest}" for rest in ("s", "a", "b")]


async def test_a_silent_schedule_is_found_from_its_fires(shared_server: SharedServer, stream_name: str) -> None:
    server = await shared_server(V2_15)
    async with account_on(server.url) as account:
        await account.create(stream_name, allow_msg_ttl=True)
        for rest, pattern in (("s", "@every 1h"), ("fires", "@every 1s"), ("once", "@at 2040-01-01T00:00:00Z")):
            await account.publish(f"{stream_name}.{rest}", schedule(stream_name, pattern))
        for rest, removes in (("rolls", {"Nats-Schedule-Rollup": "sub"}), ("ttl", {"Nats-Schedule-TTL": "5m"})):
            headers = {**schedule(stream_name, "@every 1h", **removes), "Nats-Schedule-Target": f"{stream_name}.last"}
            await account.publish(f"{stream_name}.{rest}", headers)
        await account.wait_for(stream_name, f"{stream_name}.out")
        facts = await facts_on(server, stream_name)
        (stream,) = facts.read

        async def silent(hours: float, **config: object) -> list[str | None]:
            """Return what is found that many hours later, if nothing is stored until then."""

            def later() -> int:
                return CLOCK.now() + int(hours * HOUR)

            read = await read_schedules(
                account.connection, account.api, stream.state, Mode.NATIVE, NOTHING_SETTLED, later
            )
            state = replace(stream.state, config={**stream.config, **config})
            then = replace(stream, state=state, at=later(), schedules=read.schedules)
            found = examine(replace(facts, streams=[then])).findings
            return [one.subject for one in of(list(found), Code.SCHEDULE_SILENT)]

        fires = [f"{stream_name}.fires"]
        assert await silent(0) == []
        assert await silent(3.9) == fires
        assert sorted(await silent(4.1), key=str) == [*fires, f"{stream_name}.s"]
        for limits in ({"retention": "workqueue"}, {"max_bytes": 1 << 20}, {"max_msgs_per_subject": 2}):
            assert await silent(4.1, **limits) == []
        assert await silent(4.1, max_age=3 * HOUR) == []


async def test_an_order_that_a_plain_message_ended_is_found(shared_server: SharedServer, stream_name: str) -> None:
    server = await shared_server(V2_15)
    async with account_on(server.url) as account:
        await account.create(stream_name)
        meant = {"Nats-Schedule-X-Debounce": "true"}
        for rest, headers in (("order", {}), ("meant", meant), ("moved", {}), ("twice", {})):
            await account.publish(f"{stream_name}.{rest}", schedule(stream_name, **headers))
        for rest in ("order", "meant"):
            await account.publish(f"{stream_name}.{rest}", "", b"plain")
        portable = {f"X-{name}": value for name, value in schedule(stream_name).items()}
        await account.publish(f"{stream_name}.moved", portable)
        await account.publish(f"{stream_name}.twice", schedule(stream_name), b"the server has removed the other one")
        kept = [one.subject for one in await account.messages(stream_name, ">")]
        assert [kept.count(f"{stream_name}.{rest}") for rest in ("order", "twice")] == [2, 1]
    (found,) = of(await findings_on(server, stream_name), Code.SCHEDULE_REPLACED_UNFIRED)
    assert (found.stream, found.subject) == (stream_name, f"{stream_name}.order")
    assert "(sequence 1, published " in found.what
    assert "sequence 5, published " in found.what
