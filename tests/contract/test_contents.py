"""What a fire needs is read as it is stored: bursts together, and single messages, also where servers count wrongly.

A burst that is read together has the same contents as read one by one, and each read is answered once.
"""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from nats_scheduler.engine.fire import FetchContent
from nats_scheduler.engine.inputs import ContentFetched
from nats_scheduler.jetstream.content_runs import (
    MAX_RUN_GAP,
    MAX_RUN_OTHERS,
    MAX_RUN_SCHEDULES,
    MIN_RUN_SCHEDULES,
    runs_of,
)
from nats_scheduler.jetstream.lookups import last_on
from nats_scheduler.jetstream.stretches import StretchReader
from nats_scheduler.message.headers import with_headers
from tests.conftest import SharedServer, StartServer
from tests.contract.sides import PortSide, server_side
from tests.harness.account import Account, account_on
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import eventually, one_turn

BURST = 3 * MIN_RUN_SCHEDULES


async def store_burst(side: PortSide) -> list[FetchContent]:
    """Store schedules with a message of another client between each two; return the requests for them."""
    requests = []
    for number in range(BURST):
        block = with_headers(b"", [(b"X-Nats-Schedule", b"@at 2030-01-01T00:00:00Z"), (b"N", b"%d" % number)])
        sequence = await side.store(f"s.{number}", block, b"\x00\xff\r\n" * number)
        requests.append(FetchContent(side.subject(f"s.{number}"), sequence, None, by_sequence=True))
        await side.store("other", b"", b"between")
    return requests


async def read(side: PortSide, requests: list[FetchContent], *, turns: bool = False) -> dict[int, ContentFetched]:
    """Read, all at once or with a turn of the event loop between each two; return the answers, one for each request."""
    side.inputs.clear()
    for request in requests:
        side.contact.ask(request)
        if turns:
            await one_turn()
    answers = await side.hears(ContentFetched, len(requests))
    assert Counter(answer.sequence for answer in answers) == Counter(request.sequence for request in requests)
    return {answer.sequence: answer for answer in answers}


async def test_contents_read_together_or_one_by_one_are_the_same(side: PortSide) -> None:
    requests = await store_burst(side)
    together = await read(side, requests)
    assert all(answer.message is not None for answer in together.values())
    assert together == await read(side, [request._replace(by_sequence=False) for request in requests])
    patient = [request._replace(may_wait=True) for request in requests]
    assert together == await read(side, patient, turns=True), "what may wait is read with what is asked for later"
    assert together == await read(side, [*patient[1:], requests[0]]), "what may not wait takes the others with it"

    async def none_is_left() -> bool:
        return await side.consumers() == 0

    await eventually(none_is_left, describe="no consumer is left behind")


async def test_what_is_gone_is_no_message_and_the_others_are_read(side: PortSide) -> None:
    requests = await store_burst(side)
    gone = {requests[0].sequence, requests[BURST // 2].sequence, requests[-1].sequence}
    for sequence in sorted(gone):
        await side.delete(sequence)
    requests[3] = requests[3]._replace(schedule=side.subject("nobody"))
    answers = await read(side, requests)
    unread = {sequence for sequence, answer in answers.items() if answer.message is None}
    assert unread == {*gone, requests[3].sequence}


FEW_AT_ONCE = "jetstream { limits { max_request_batch: 50 } }\n"
ONE_CONSUMER = (
    "accounts { A: { jetstream: { max_consumers: 1 }, users: [ { user: a, password: b } ] } }\nno_auth_user: a\n"
)


@pytest.mark.parametrize(
    ("version", "limits", "config"),
    [
        (V2_15, FEW_AT_ONCE, {}),
        (V2_11, ONE_CONSUMER, {}),
        (V2_11, "", {"consumer_limits": {"inactive_threshold": 1_000_000_000}}),
    ],
    ids=["few at a time", "no place for a consumer", "none may be idle for long"],
)
async def test_within_the_limits_of_server_and_account_all_is_read(
    start_server: StartServer, stream_name: str, version: str, limits: str, config: dict[str, Any]
) -> None:
    server = await start_server(version, config=limits)
    async with server_side(server.url, stream_name, config) as side:
        if limits == ONE_CONSUMER:
            await side.add_consumer("theirs")
        requests = await store_burst(side)
        assert len(await read(side, requests)) == BURST

        async def has_left_none() -> bool:
            return await side.consumers() == (limits == ONE_CONSUMER)

        await eventually(has_left_none, describe="the consumer of the read is removed")


# -- what is read together -------------------------------------------------------------------------------------------


def asked(*sequences: int) -> list[FetchContent]:
    return [FetchContent(f"s.{sequence}", sequence, None, by_sequence=True) for sequence in sequences]


def test_runs_are_of_neighbours_and_the_others_are_single() -> None:
    burst = asked(*range(1_000, 1_000 + MAX_RUN_GAP * BURST, MAX_RUN_GAP))
    far = asked(1, 2, 3, 5_000, 9_000)
    runs, single = runs_of([*reversed(burst), *far, burst[7], burst[7]])
    assert runs == [burst]
    assert sorted(single) == sorted([*far, burst[7], burst[7]]), "a second request for a sequence is single too"
    assert runs_of([]) == ([], [])


def test_a_run_of_contents_ends_at_a_gap_and_at_a_length() -> None:
    behind = 1_001 + MAX_RUN_GAP * BURST + MAX_RUN_OTHERS
    near, far = asked(*range(1_000, 1_000 + BURST)), asked(*range(behind, behind + BURST))
    assert runs_of([*near, *far]) == ([near, far], [])
    runs, single = runs_of(asked(*range(2 * MAX_RUN_SCHEDULES + 1)))
    assert [len(run) for run in runs] == [MAX_RUN_SCHEDULES, MAX_RUN_SCHEDULES]
    assert [request.sequence for request in single] == [2 * MAX_RUN_SCHEDULES]


# -- where servers answer or count wrongly ---------------------------------------------------------------------------


@pytest.fixture(params=[V2_10, V2_15])
async def account(request: pytest.FixtureRequest, shared_server: SharedServer) -> AsyncIterator[Account]:
    async with account_on((await shared_server(request.param)).url) as account:
        yield account


async def test_the_last_message_on_a_subject_is_found_under_deleted_ones(account: Account, stream_name: str) -> None:
    """A server up to 2.11 answers that there is none."""
    await account.create(stream_name, storage="file", allow_msg_schedules=False)
    cases: list[tuple[int, ...]] = [(5,), (5, 4), (3, 5), (1, 5), (3, 4, 5), (5, 1), (1, 2, 3, 4, 5)]
    for case, deleted in enumerate(cases):
        subject = f"{stream_name}.{case}"
        sequences = []
        for number in range(1, 6):
            sequences.append(await account.publish(subject, body=b"%d" % number))
            await account.publish(f"{stream_name}.others")
        for number in deleted:
            assert await account.api.delete_message(stream_name, sequences[number - 1])
        left = max({1, 2, 3, 4, 5} - set(deleted), default=0)
        found = await last_on(account.api, stream_name, subject)
        assert (found and (found.sequence, found.body)) == ((sequences[left - 1], b"%d" % left) if left else None), case
        if left and not account.connection.server.version.startswith("2.10."):  # which has no guard
            guard = "Nats-Expected-Last-Subject-Sequence"
            await account.publish(f"{subject}.out", {guard: str(sequences[left - 1]), f"{guard}-Subject": subject})
        again = await account.publish(subject, body=b"again")
        found = await last_on(account.api, stream_name, subject)
        assert (found and (found.sequence, found.body)) == (again, b"again")
    assert await last_on(account.api, stream_name, f"{stream_name}.never") is None


async def test_messages_that_no_consumer_delivers_are_read(account: Account, stream_name: str) -> None:
    """Servers do not count messages on subjects with a DEL from a sequence on, and deliver none if no other follows."""
    await account.create(stream_name, allow_msg_schedules=False)
    for rest in ("a", "\x7f", "b", "\x7f", "\x7f.c"):
        await account.publish(f"{stream_name}.{rest}")
    info = await account.api.stream(stream_name)
    assert info is not None
    reader = StretchReader(account.connection, account.api, info["config"])
    for after in range(6):
        found = [one.sequence async for chunk in reader.forwards(after, 5, lambda _subject: True) for one in chunk]
        assert found == [*range(after + 1, 6)]
