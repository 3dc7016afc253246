"""The promises of `engine.stream_port`, one by one, tested on the stream in memory and on real servers.

It tests `jetstream/single_reads.py`, `jetstream/expired_messages.py` and `jetstream/bounded_requests.py` too.
"""

from collections import Counter

import pytest

from nats_scheduler.engine.actions import PurgeSchedule, RemoveExpired
from nats_scheduler.engine.fire import FetchContent, FetchDuplicate
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContentFetched,
    DuplicateFetched,
    ExpiryConcluded,
    MessagesRead,
    PublishConcluded,
    PurgeConcluded,
    Refused,
    Stored,
    Unanswered,
)
from nats_scheduler.message.headers import EMPTY_BLOCK, with_header
from nats_scheduler.schedule.instants import HOUR
from tests.contract.conftest import OpenSide
from tests.contract.sides import PortSide
from tests.harness.blocks import block_to_send
from tests.harness.waiting import one_turn

ODD_BLOCK = b"NATS/1.0\r\nX:\t\xff \r\nX: a\r\nX:a\r\nEmpty:\r\nno colon\r\n\r\n"
"""Duplicates, a tab, a trailing blank, a byte that is not UTF-8, a header without a value, a line without a colon."""


def with_size(block: bytes, size: int) -> bytes:
    """Add the header that a server adds when it sends a message without its body."""
    return with_header(block, b"Nats-Msg-Size", b"%d" % size)


AN_HOUR = {"Nats-TTL": "1h"}
A_SCHEDULE = {"X-Nats-Schedule": "@every 1h", **AN_HOUR}
GENERATED = {"X-Nats-Scheduler": "gone", "Nats-Msg-Id": "nats-scheduler:1:5:gone", **AN_HOUR}
LATER = 1 << 62
"""An instant (ns) at which every TTL of these tests has run out; for no server that is so during the tests."""


# -- publishing ------------------------------------------------------------------------------------------------------


async def test_fires_are_stored_in_order_and_answered_once(side: PortSide) -> None:
    fires = [side.fire() for _ in range(600)]
    side.contact.publish(fires[:400])
    side.contact.publish(fires[400:])
    concluded = await side.hears(PublishConcluded, len(fires))
    assert [answer.fire for answer in concluded] == fires
    assert [answer.outcome for answer in concluded] == [Stored(number) for number in range(1, 601)]


async def test_a_repeated_fire_is_a_duplicate_and_stores_nothing(side: PortSide) -> None:
    fire = side.fire(body=b"once")
    assert await side.outcome(fire) == Stored(1)
    assert await side.outcome(fire) == Stored(1, duplicate=True)
    assert await side.stored() == [(1, "out")]


async def test_the_guard_refuses_the_fire_of_a_schedule_that_is_gone(side: PortSide) -> None:
    first = await side.store("schedule")
    await side.store("another")
    if not side.has_guard:
        return
    fire = side.fire(guarded_by=first)
    assert await side.outcome(fire) == Stored(3)
    second = await side.store("schedule")
    refused = Refused(400, 10071, "wrong last sequence: 4")
    assert await side.outcome(side.fire(guarded_by=first)) == refused
    # Up to 2.11 the server checks for duplicates first, later ones check the guard first.
    assert await side.outcome(fire) in (Stored(3, duplicate=True), refused)
    for sequence in (first, second):
        await side.delete(sequence)
    assert await side.outcome(side.fire(guarded_by=second)) == Refused(400, 10071, "wrong last sequence: 0")
    assert await side.stored() == [(2, "another"), (3, "out")]


async def test_a_refusal_holds_nobody_up(open_side: OpenSide) -> None:
    async with open_side(allow_rollup_hdrs=False) as side:
        refused = side.fire(with_header(EMPTY_BLOCK, b"Nats-Rollup", b"sub"))
        side.contact.publish([side.fire(), refused, side.fire()])
        outcomes = [answer.outcome for answer in await side.hears(PublishConcluded, 3)]
        assert [type(outcome) for outcome in outcomes] == [Stored, Refused, Stored]


async def test_the_answer_names_the_message_that_a_duplicate_is_of(side: PortSide) -> None:
    fire = side.fire()

    async def read(sequence: int) -> DuplicateFetched:
        before = len(side.received(DuplicateFetched))
        side.contact.ask(FetchDuplicate(fire, sequence))
        return (await side.hears(DuplicateFetched, before + 1))[before]

    sequence = await side.store("out", ODD_BLOCK, b"body")
    behind = await side.store("another")
    there, next_one = await read(sequence), await read(behind)
    assert there.message is not None
    assert (there.fire, there.sequence, there.stored_by) == (fire, sequence, there.message.stored_at)
    assert (there.message.subject, there.message.block, there.message.body) == (
        side.subject("out"),
        ODD_BLOCK,
        b"body",
    )
    await side.delete(sequence)
    gone = await read(sequence)
    assert (gone.message, gone.stored_by) == (None, next_one.stored_by)
    await side.delete(behind)
    last = await read(behind)
    assert last.message is None
    assert last.stored_by in (None, next_one.stored_by), "nothing later is told"


# -- reading what a fire copies --------------------------------------------------------------------------------------


async def test_schedule_and_source_are_read_byte_for_byte(
    side: PortSide,
) -> None:
    request = FetchContent(side.subject("schedule"), 1, side.subject("source"))
    side.contact.ask(request)
    assert await side.hears(ContentFetched) == [ContentFetched(request.schedule, 1, None, None)]
    first = await side.store("schedule")
    second = await side.store("schedule", ODD_BLOCK, b"\x00\xff")
    await side.store("source", b"", b"sampled")
    for asked in (first, second):
        side.contact.ask(request._replace(sequence=asked))
        read = (await side.hears(ContentFetched, asked + 1))[-1]
        assert read.sequence == asked
        assert read.message is not None
        assert read.source is not None
        assert (read.message.sequence, read.message.block, read.message.body) == (second, ODD_BLOCK, b"\x00\xff")
        assert (read.source.subject, read.source.block, read.source.body) == (request.source, b"", b"sampled")


# -- purging and removing --------------------------------------------------------------------------------------------


async def test_a_purge_keeps_a_later_replacement(side: PortSide) -> None:
    await side.store("schedule")
    await side.store("another")
    second = await side.store("schedule")
    await side.store("schedule")
    done = PurgeConcluded(side.subject("schedule"), second)
    for times in (1, 2):  # the second time what is to be removed is gone
        side.contact.purge(PurgeSchedule(side.subject("schedule"), second))
        assert await side.hears(PurgeConcluded, times) == [done] * times
        assert await side.stored() == [(2, "another"), (4, "schedule")]


async def test_what_expired_is_removed_and_nothing_else_on_its_subject(open_side: OpenSide) -> None:
    async with open_side(allow_msg_ttl=True) as side:
        async with side.following():
            await side.store("s")
            schedule, generated = [await side.store("s", block_to_send(one)) for one in (A_SCHEDULE, GENERATED)]
            await side.store("s")
            expires = (await side.reads(4))[1].stored_at + HOUR
        side.contact.remove(RemoveExpired(schedule, expires - 1))
        assert await side.hears(ExpiryConcluded) == [ExpiryConcluded(schedule, expires=expires)], "not yet"
        for number, (sequence, at) in enumerate(((schedule, expires), (generated, LATER))):
            side.contact.remove(RemoveExpired(sequence, at))
            concluded = (await side.hears(ExpiryConcluded, number + 2))[-1]
            assert concluded == ExpiryConcluded(sequence, side.subject("s"))
        assert await side.stored() == [(1, "s"), (4, "s")]


async def test_ordinary_messages_stay_whatever_is_to_be_removed(open_side: OpenSide) -> None:
    async with open_side(allow_msg_ttl=True) as side:
        forged = {**GENERATED, "X-Nats-Scheduler": "another"}
        for headers in (AN_HOUR, forged, {"X-Nats-Schedule": "@every 1h"}):
            sequence = await side.store("s", block_to_send(headers))
            side.contact.remove(RemoveExpired(sequence, LATER))
        concluded = await side.hears(ExpiryConcluded, 3)  # a server may answer requests in another order
        assert sorted(concluded, key=lambda given: given.sequence) == [ExpiryConcluded(n) for n in (1, 2, 3)]
        assert len(await side.stored()) == 3


async def test_a_stream_that_denies_deletes_refuses_for_good(open_side: OpenSide) -> None:
    async with open_side(allow_msg_ttl=True) as side:
        sequence = await side.store("s", block_to_send(A_SCHEDULE))
        await side.deny_delete()
        side.contact.remove(RemoveExpired(sequence, LATER))
        (concluded,) = await side.hears(ExpiryConcluded)
        assert (concluded.refused, concluded.subject) == (True, None)
        assert "message delete not permitted" in (concluded.failure or "")
        assert await side.stored() == [(sequence, "s")]


# -- following -------------------------------------------------------------------------------------------------------


async def test_history_comes_first_then_caught_up_then_what_is_new(side: PortSide) -> None:
    for number in range(300):
        await side.store(f"s.{number % 7}", b"", b"body")
    async with side.following():
        assert [message.sequence for message in side.read] == list(range(1, 301))
        for number in range(300):
            await side.store(f"s.{number % 7}")
        assert [message.sequence for message in await side.reads(600)] == list(range(1, 601))
        assert len(side.received(CaughtUp)) == 1


async def test_following_begins_behind_a_sequence_until_it_is_cancelled(side: PortSide) -> None:
    for _ in range(5):
        await side.store("s")
    await side.delete(4)
    async with side.following(after=3):
        assert [message.sequence for message in side.read] == [5]
    received = len(side.inputs)
    await side.store("s")
    assert await side.outcome(side.fire()) == Stored(7)
    assert [given for given in side.inputs[received:] if isinstance(given, MessagesRead)] == []


async def test_followed_messages_have_their_headers_and_no_body(side: PortSide) -> None:
    await side.store("größe.ф", ODD_BLOCK, b"body")
    await side.store("s", b"", b"body")
    async with side.following():
        first, second = side.read
        assert (first.subject, first.body) == (side.subject("größe.ф"), None)
        assert first.block == with_size(ODD_BLOCK, 4)
        assert second.block == with_size(b"", 4)
        assert 0 < first.stored_at <= second.stored_at
        fire = side.fire(ODD_BLOCK, b"body")
        await side.outcome(fire)
        message = (await side.reads(3))[-1]
        assert (message.subject, message.block) == (fire.target, with_size(fire.block, 4))


# -- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_the_end_answers_everything_that_is_open_exactly_once(side: PortSide, turns: int) -> None:
    await side.store("schedule")
    side.contact.publish([side.fire() for _ in range(300)])
    for number in range(300):
        side.contact.ask(FetchContent(side.subject("schedule"), number, None))
        side.contact.ask(FetchContent(side.subject("schedule"), 300 + number, None, by_sequence=True))
        side.contact.purge(PurgeSchedule(side.subject("purged"), number, 1 if number % 2 else None))
        side.contact.remove(RemoveExpired(number, LATER))
    for _ in range(turns):
        await one_turn()
    side.contact.end("enough")
    side.contact.end("enough")
    assert Counter(answer.fire.fire_time for answer in side.received(PublishConcluded)) == Counter(range(1, 301))
    reads = [read.sequence for read in side.received(ContentFetched)]
    questions = [unread.question for unread in side.received(Unanswered)]
    reads += [question.sequence for question in questions if isinstance(question, FetchContent)]
    assert sorted(reads) == list(range(600))
    assert sorted(answer.through for answer in side.received(PurgeConcluded)) == list(range(300))
    assert sorted(answer.sequence for answer in side.received(ExpiryConcluded)) == list(range(300))
    received = len(side.inputs)
    await side.stored()
    assert len(side.inputs) == received, "a later answer of the server is not delivered"
