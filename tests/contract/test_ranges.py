"""A burst that is read together has the same contents as read one by one, and each read is answered once."""

from collections import Counter

import pytest

from nats_scheduler.engine.fire import ReadContent
from nats_scheduler.engine.inputs import (
    ContentRead,
    Unanswered,
)
from nats_scheduler.jetstream.contents import MAX_RUN_GAP, MAX_RUN_OTHERS, MAX_RUN_SCHEDULES, MIN_RUN_SCHEDULES, runs_of
from nats_scheduler.message.headers import with_headers
from tests.conftest import SharedServer, StartServer
from tests.contract.conftest import OpenSide
from tests.contract.sides import PortSide, server_side
from tests.harness.servers import V2_11, V2_15
from tests.harness.waiting import eventually, one_turn

BURST = 3 * MIN_RUN_SCHEDULES


async def store_burst(side: PortSide) -> list[ReadContent]:
    """Store schedules with a message of another client between each two; return the requests for them."""
    requests = []
    for number in range(BURST):
        block = with_headers(b"", [(b"X-Nats-Schedule", b"@at 2030-01-01T00:00:00Z"), (b"N", b"%d" % number)])
        sequence = await side.store(f"s.{number}", block, b"\x00\xff\r\n" * number)
        requests.append(ReadContent(side.subject(f"s.{number}"), sequence, None, by_sequence=True))
        await side.store("other", b"", b"between")
    return requests


async def read(side: PortSide, requests: list[ReadContent]) -> dict[int, ContentRead]:
    """Read, and return the answers: one for each request."""
    side.inputs.clear()
    for request in requests:
        side.contact.ask(request)
    answers = await side.hears(ContentRead, len(requests))
    assert Counter(answer.sequence for answer in answers) == Counter(request.sequence for request in requests)
    return {answer.sequence: answer for answer in answers}


async def test_it_says_what_it_says_one_by_one(open_side: OpenSide) -> None:
    async with open_side() as side:
        requests = await store_burst(side)
        together = await read(side, requests)
        assert together == await read(side, [request._replace(by_sequence=False) for request in requests])
        assert all(answer.message is not None for answer in together.values())
        await eventually_without_consumers(side)


async def test_what_is_gone_is_no_message_and_the_others_are_told(open_side: OpenSide) -> None:
    async with open_side() as side:
        requests = await store_burst(side)
        gone = {requests[0].sequence, requests[BURST // 2].sequence, requests[-1].sequence}
        for sequence in sorted(gone):
            await side.delete(sequence)
        answers = await read(side, requests)
        assert {sequence for sequence, answer in answers.items() if answer.message is None} == gone


async def test_another_subject_under_a_sequence_is_not_taken_for_the_schedule(open_side: OpenSide) -> None:
    async with open_side() as side:
        requests = await store_burst(side)
        mistaken = requests[3]._replace(schedule=side.subject("nobody"))
        answers = await read(side, [*requests[:3], mistaken, *requests[4:]])
        assert answers[mistaken.sequence].message is None


async def test_those_that_may_wait_are_read_with_others_that_are_asked_for_later(open_side: OpenSide) -> None:
    async with open_side() as side:
        requests = await store_burst(side)
        patient = [request._replace(may_wait=True) for request in requests]
        side.inputs.clear()
        for request in patient:
            side.contact.ask(request)
            await one_turn()
        together = {answer.sequence: answer for answer in await side.hears(ContentRead, len(requests))}
        assert together == await read(side, requests)


async def test_one_that_may_not_wait_takes_with_it_those_that_wait(open_side: OpenSide) -> None:
    async with open_side() as side:
        requests = await store_burst(side)
        mixed = [request._replace(may_wait=number > 0) for number, request in enumerate(reversed(requests))]
        assert len(await read(side, mixed)) == BURST


async def test_those_that_wait_are_answered_when_the_contact_ends(open_side: OpenSide) -> None:
    async with open_side() as side:
        requests = await store_burst(side)
        side.inputs.clear()
        for request in requests:
            side.contact.ask(request._replace(may_wait=True))
        side.contact.end("enough")
        answered = [answer.sequence for answer in side.received(ContentRead)]
        questions = [answer.question for answer in side.received(Unanswered)]
        answered += [question.sequence for question in questions if isinstance(question, ReadContent)]
        assert Counter(answered) == Counter(request.sequence for request in requests)


async def eventually_without_consumers(side: PortSide) -> None:
    """Wait until no consumer is left behind."""
    counts: list[int] = []

    async def none_is_left() -> bool:
        counts.append(await side.consumers())
        return counts[-1] == 0

    await eventually(none_is_left, within_seconds=30)


@pytest.mark.parametrize("version", [V2_11, V2_15])
async def test_a_server_that_allows_less_at_a_time_is_asked_for_less(
    start_server: StartServer, stream_name: str, version: str
) -> None:
    server = await start_server(version, config="jetstream { limits { max_request_batch: 50 } }\n")
    async with server_side(server.url, stream_name, {}) as side:
        requests = await store_burst(side)
        assert len(await read(side, requests)) == BURST


async def test_where_the_account_has_no_place_for_a_consumer_each_is_looked_up(
    start_server: StartServer, stream_name: str
) -> None:
    account = "accounts { A: { jetstream: { max_consumers: 1 }, users: [ { user: a, password: b } ] } }\n"
    server = await start_server(V2_11, config=f"{account}no_auth_user: a\n")
    async with server_side(server.url, stream_name, {}) as side:
        await side.add_consumer("theirs")
        requests = await store_burst(side)
        assert len(await read(side, requests)) == BURST
        assert await side.consumers() == 1


async def test_where_consumers_may_not_be_idle_for_long_they_are_asked_for_accordingly(
    shared_server: SharedServer, stream_name: str
) -> None:
    server = await shared_server(V2_11)
    limits = {"consumer_limits": {"inactive_threshold": 1_000_000_000}}
    async with server_side(server.url, stream_name, limits) as side:
        requests = await store_burst(side)
        assert len(await read(side, requests)) == BURST


def asked(*sequences: int) -> list[ReadContent]:
    return [ReadContent(f"s.{sequence}", sequence, None, by_sequence=True) for sequence in sequences]


def test_runs_are_of_neighbours_and_the_others_are_single() -> None:
    burst = asked(*range(1_000, 1_000 + MAX_RUN_GAP * BURST, MAX_RUN_GAP))
    far = asked(1, 2, 3, 5_000, 9_000)
    runs, single = runs_of([*reversed(burst), *far])
    assert runs == [burst]
    assert sorted(single) == far


def test_schedules_and_fires_that_are_stored_in_groups_are_one_run() -> None:
    groups = [asked(*range(first, first + 10)) for first in range(1_000, 1_000 + 2 * 10 * BURST, 2 * 10)]
    together = [request for group in groups for request in group]
    assert runs_of(together) == ([together], [])


def test_a_run_is_not_read_across_many_messages_of_others() -> None:
    behind = 1_001 + MAX_RUN_GAP * BURST + MAX_RUN_OTHERS
    near, far = asked(*range(1_000, 1_000 + BURST)), asked(*range(behind, behind + BURST))
    assert runs_of([*near, *far]) == ([near, far], [])


def test_a_run_is_not_longer_than_others_should_wait() -> None:
    runs, single = runs_of(asked(*range(2 * MAX_RUN_SCHEDULES + 1)))
    assert [len(run) for run in runs] == [MAX_RUN_SCHEDULES, MAX_RUN_SCHEDULES]
    assert [request.sequence for request in single] == [2 * MAX_RUN_SCHEDULES]


def test_a_second_request_for_a_sequence_is_single() -> None:
    burst = asked(*range(BURST))
    runs, single = runs_of([*burst, burst[7], burst[7]])
    assert (runs, single) == ([burst], [burst[7], burst[7]])


def test_nothing_is_divided_into_nothing() -> None:
    assert runs_of([]) == ([], [])
