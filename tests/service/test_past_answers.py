"""What is past: fires of a schedule, failures and changes, as they are read from streams and as the service answers."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from nats_scheduler.control import past
from nats_scheduler.control.past import FirePast, FireQuery, FoundFires
from nats_scheduler.control.store_port import Served
from nats_scheduler.jetstream import stretches
from nats_scheduler.jetstream.schedule_wire import ScheduleWire
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.conftest import StartServer
from tests.harness.account import Account, account_on, sidecar_on
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import eventually
from tests.service.asking import Refusal, answered, ask
from tests.service.controlling import request as request_change

PORTABLE = {"X-Nats-Schedule": "@every 1s", "X-Nats-Schedule-Target": "S.out"}


async def failures_listed(account: Account, count: int, **request: Any) -> list[dict[str, Any]]:
    """Wait until `count` failures are answered, and return them."""

    async def enough() -> list[dict[str, Any]] | None:
        answer = await ask(account.connection, "failures.list", request)
        return answer["failures"] if isinstance(answer, dict) and len(answer["failures"]) >= count else None

    return await eventually(enough, describe=f"{count} failures")


@pytest.mark.parametrize("version", [V2_11, V2_15])
async def test_past_fires_and_failures_are_answered(start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account, sidecar_on(server.url, allow_control=True) as running:
        await account.create("S")
        await running.ready("S")
        await account.publish("S.s", PORTABLE)
        stored = await account.wait_for("S", "S.out", 3)
        one = {"stream": "S", "subject": "S.s"}
        answer = await answered(account.connection, "fires.list", one)
        assert [fire["sequence"] for fire in answer["fires"][-3:]] == [message.sequence for message in stored[2::-1]]
        assert (answer["searched"], answer["complete"]) == ("S.out", True)
        assert len((await answered(account.connection, "fires.list", {**one, "limit": 2}))["fires"]) == 2
        later = await answered(account.connection, "fires.list", {**one, "since": "2200-01-01T00:00:00Z"})
        assert later["fires"] == []
        for subject in ("S.a", "S.b"):
            await account.publish(subject, {**PORTABLE, "X-Nats-Schedule": "@every soon"})
        assert {failure["schedule"] for failure in await failures_listed(account, 2)} == {"S.a", "S.b"}
        for request in ({"stream": "S", "subject": "S.b"}, {"subject": "S.b"}, {"subject": "*.b"}):
            found = await answered(account.connection, "failures.list", request)
            assert [failure["schedule"] for failure in found["failures"]] == ["S.b"]
        assert found["kept_in"] == "nats_scheduler_failures"
        newest = await answered(account.connection, "failures.list", {"limit": 1, "kind": "schedule_rejected"})
        older = await answered(account.connection, "failures.list", {"limit": 1, "before": newest["older"]})
        assert older["failures"][0]["sequence"] < newest["failures"][0]["sequence"]
        asked = {**one, "author": "Ada", "reason": "stocktaking"}
        changed = [await request_change(account.connection, name, asked) for name in ("pause", "resume")]

        async def listed() -> list[tuple[str, ...]] | None:
            found = (await answered(account.connection, "changes.list", {**one, "limit": 2}))["changes"]
            rows = [tuple(row[key] for key in ("change", "author", "reason", "sequence")) for row in found]
            return rows if len(rows) == 2 else None

        wanted = [(row["change"], "Ada", "stocktaking", row["sequence"]) for row in changed if isinstance(row, dict)]
        assert await eventually(listed, describe="both changes are kept") == wanted[::-1]
        assert (await answered(account.connection, "changes.list", {"stream": "T"}))["changes"] == []


REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    ("fires.list", {"stream": "T", "subject": "T.s"}, 404, "is not served"),
    ("fires.list", {"stream": "S", "subject": "S.*"}, 400, "without wildcards"),
    ("fires.list", {"stream": "S", "subject": "S.s", "since": "soon"}, 400, "a time such as"),
    ("fires.list", {"stream": "S", "subject": "S.s", "limit": 1_001}, 400, "less than or equal to 1000"),
    ("failures.list", {"stream": "S.S"}, 400, "pattern"),
    ("failures.list", {"kind": "a.b"}, 400, "pattern"),
    ("failures.list", {}, 404, "keep_failures is false"),
    ("changes.list", {}, 404, "keep_failures is false"),
]


async def test_what_cannot_be_answered_is_refused_with_what_was_expected(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url, keep_failures=False) as running:
        await account.create("S")
        await running.ready("S")
        for endpoint, request, code, expected in REFUSED:
            refused = await ask(account.connection, endpoint, request)
            assert isinstance(refused, Refusal), refused
            assert (refused.code, expected in refused.sentence) == (code, True), refused


# -- the fires of a schedule are read from its stream, newest first, whatever lies between ----------------------------


async def found_in(account: Account, stream: str, schedule: str | None, **wanted: Any) -> FoundFires:
    """Look for the fires of a schedule."""
    state = StreamState.from_info(await account.api.stream(stream))
    served = Served(state.rules, tuple(DIALECTS), state.is_native)
    query = FireQuery(**{"schedule": schedule, "limit": 20, **wanted})
    return await FirePast(ScheduleWire(account.connection, account.api), served).find(query)


def fire_of(schedule: str, sequence: int, due: int) -> dict[str, str]:
    """Return the headers of a fire as a sidecar stores it."""
    stamps = {"X-Nats-Scheduler": schedule, "X-Nats-Schedule-Next": format_rfc3339(due + SECOND)}
    return {**stamps, "Nats-Msg-Id": fire_identity(schedule, sequence, due)}


async def fill(account: Account, fires: int, others: int) -> list[int]:
    """Store a portable schedule and fires of it with other messages between them; return the sequences of the fires."""
    stored = await account.publish("S.s", PORTABLE)
    message = await account.api.message("S", seq=stored)
    assert message is not None
    first = message.stored_at // SECOND * SECOND - fires * SECOND
    sequences = []
    for number in range(fires):
        for _ in range(others):
            await account.publish("S.other")
        # Of an earlier version of the schedule: they came due before this one was stored.
        sequences.append(await account.publish("S.out", fire_of("S.s", stored - 1, first + number * SECOND)))
    return sequences


async def test_the_search_goes_on_where_it_ended(start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "MAX_MESSAGES_READ", 10)
    async with account_on((await start_server(V2_11)).url) as account:
        await account.create("S", allow_msg_schedules=None)
        sequences = await fill(account, 4, 4)
        found, parts = await found_in(account, "S", "S.s", target=">"), 1
        sequence = [fire.sequence for fire in found.fires]
        while found.older is not None:
            assert not found.is_complete
            found = await found_in(account, "S", "S.s", target=">", before=found.older)
            sequence += [fire.sequence for fire in found.fires]
            parts += 1
        assert (sequence, parts, found.is_complete) == (sequences[::-1], 3, True)


def stored_times(*times: int | None) -> Callable[[int], Awaitable[int | None]]:
    """Return when each message was stored, from sequence 1 on; None is one that was removed."""

    async def stored_at(sequence: int) -> int | None:
        return next((time for time in times[sequence - 1 :] if time is not None), None)

    return stored_at


@pytest.mark.parametrize(("instant", "oldest"), [(5, 0), (10, 0), (11, 1), (30, 1), (31, 4), (40, 4), (41, 6), (99, 6)])
async def test_the_last_message_before_an_instant_is_found(instant: int, oldest: int) -> None:
    """Or a sequence behind it that holds none."""
    times = stored_times(10, None, None, 30, None, 40, None)
    found = await past.last_before(instant, 1, 7, times)
    following = await times(found + 1)
    assert found >= oldest
    assert following is None or following >= instant
    assert await past.last_before(instant, 8, 7, times) == 7, "nothing is stored"


@pytest.mark.parametrize("version", [V2_10, V2_15])
async def test_the_newest_fires_come_first_and_no_more_than_the_limit(
    start_server: StartServer, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stretches, "FIRST_RANGE", 8)
    monkeypatch.setattr(stretches, "FEW_MESSAGES", 2)
    server = await start_server(version)
    async with account_on(server.url) as account:
        configs: list[dict[str, Any]] = [{}, {"retention": "workqueue"}, {"max_consumers": 1}]  # no consumer is left
        for config in configs:
            await account.create("S", allow_msg_schedules=None, **config)
            sequences = await fill(account, 12, 7)
            some = await found_in(account, "S", "S.s", limit=5)
            assert [fire.sequence for fire in some.fires] == sequences[:-6:-1], config
            every = await found_in(account, "S", "S.s", limit=100, target=">")
            assert [fire.sequence for fire in every.fires] == sequences[::-1], config
            assert (some.is_complete, every.is_complete) == (True, True)
            since = every.fires[3].stored_at
            late = await found_in(account, "S", "S.s", since=since)
            assert [fire.sequence for fire in late.fires] == [s for s in sequences[::-1] if s >= sequences[-4]]
            early = await found_in(account, "S", "S.s", until=since)
            assert [fire.sequence for fire in early.fires] == sequences[-5::-1]
            await account.api.call("STREAM.DELETE.S")
