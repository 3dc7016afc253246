"""The promises of `engine.actions`, one by one, tested on the stream in memory and on real servers."""

import asyncio
from collections import Counter

import pytest

from nats_scheduler.engine.actions import PurgeSchedule, RemoveExpired
from nats_scheduler.engine.fire import ReadContent, ReadDuplicate
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContentRead,
    DuplicateRead,
    ExpiryConcluded,
    MessagesRead,
    PublishConcluded,
    PurgeConcluded,
    Refused,
    Stored,
    Unanswered,
    Unknown,
)
from nats_scheduler.message.headers import EMPTY_BLOCK, with_header
from nats_scheduler.schedule.instants import HOUR
from tests.contract.conftest import OpenSide
from tests.harness.blocks import block_to_send

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


async def a_turn() -> None:
    """Let the event loop turn once."""
    turned = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(turned.set_result, None)
    await turned


class TestPublishing:
    async def test_fires_are_stored_in_the_order_given_and_each_is_answered_once(self, open_side: OpenSide) -> None:
        async with open_side() as side:
            fires = [side.fire() for _ in range(1_000)]
            side.contact.publish(fires[:600])
            side.contact.publish(fires[600:])
            concluded = await side.hears(PublishConcluded, 1_000)
            assert [answer.fire for answer in concluded] == fires
            assert [answer.outcome for answer in concluded] == [Stored(number) for number in range(1, 1_001)]

    async def test_a_repeated_fire_is_a_duplicate_and_stores_nothing(self, open_side: OpenSide) -> None:
        async with open_side() as side:
            fire = side.fire(body=b"once")
            assert await side.outcome(fire) == Stored(1)
            assert await side.outcome(fire) == Stored(1, duplicate=True)
            assert await side.stored() == [(1, "out")]

    async def test_a_fire_whose_schedule_is_the_last_on_its_subject_passes_the_guard(self, open_side: OpenSide) -> None:
        async with open_side() as side:
            sequence = await side.store("schedule")
            await side.store("another")
            if side.has_guard:
                assert await side.outcome(side.fire(guarded_by=sequence)) == Stored(3)

    async def test_the_guard_refuses_a_fire_whose_schedule_was_replaced(self, open_side: OpenSide) -> None:
        async with open_side() as side:
            sequence = await side.store("schedule")
            await side.store("schedule")
            if side.has_guard:
                refused = Refused(400, 10071, "wrong last sequence: 2")
                assert await side.outcome(side.fire(guarded_by=sequence)) == refused
                assert len(await side.stored()) == 2

    async def test_the_guard_refuses_a_fire_whose_schedule_was_removed(self, open_side: OpenSide) -> None:
        async with open_side() as side:
            sequence = await side.store("schedule")
            await side.delete(sequence)
            if side.has_guard:
                refused = Refused(400, 10071, "wrong last sequence: 0")
                assert await side.outcome(side.fire(guarded_by=sequence)) == refused
                assert await side.stored() == []

    async def test_a_repeated_fire_of_a_replaced_schedule_stores_nothing(self, open_side: OpenSide) -> None:
        async with open_side() as side:
            sequence = await side.store("schedule")
            fire = side.fire(guarded_by=sequence)
            if side.has_guard:
                assert await side.outcome(fire) == Stored(2)
                await side.store("schedule")
                # Up to 2.11 the server checks for duplicates first, later ones check the guard first.
                known, refused = Stored(2, duplicate=True), Refused(400, 10071, "wrong last sequence: 3")
                assert await side.outcome(fire) in (known, refused)
                assert len(await side.stored()) == 3

    async def test_a_refusal_holds_nobody_up(self, open_side: OpenSide) -> None:
        async with open_side(allow_rollup_hdrs=False) as side:
            refused = side.fire(with_header(EMPTY_BLOCK, b"Nats-Rollup", b"sub"))
            side.contact.publish([side.fire(), refused, side.fire()])
            outcomes = [answer.outcome for answer in await side.hears(PublishConcluded, 3)]
            assert [type(outcome) for outcome in outcomes] == [Stored, Refused, Stored]

    async def test_where_no_stream_listens_the_outcome_is_unknown(self, open_side: OpenSide) -> None:
        async with open_side(subjects=["else.where"]) as side:
            assert isinstance(await side.outcome(side.fire()), Unknown)


class TestLookingAtADuplicate:
    async def test_what_lies_there_is_told_with_its_body_and_its_time(self, open_side: OpenSide) -> None:
        async with open_side() as side:
            sequence = await side.store("out", ODD_BLOCK, b"body")
            fire = side.fire()
            side.contact.ask(ReadDuplicate(fire, sequence))
            [read] = await side.hears(DuplicateRead)
            assert read.message is not None
            assert (read.fire, read.sequence, read.stored_by) == (fire, sequence, read.message.stored_at)
            assert (read.message.subject, read.message.block, read.message.body) == (
                side.subject("out"),
                ODD_BLOCK,
                b"body",
            )

    async def test_where_it_is_gone_the_next_message_tells_by_when_it_was_there(self, open_side: OpenSide) -> None:
        async with open_side() as side:
            sequence = await side.store("out")
            behind = await side.store("another")
            side.contact.ask(ReadDuplicate(side.fire(), behind))
            [there] = await side.hears(DuplicateRead)
            await side.delete(sequence)
            side.contact.ask(ReadDuplicate(side.fire(), sequence))
            gone = (await side.hears(DuplicateRead, 2))[1]
            assert (gone.message, gone.stored_by) == (None, there.stored_by)

    async def test_where_it_was_the_last_nothing_later_is_told(self, open_side: OpenSide) -> None:
        async with open_side() as side:
            sequence = await side.store("out")
            side.contact.ask(ReadDuplicate(side.fire(), sequence))
            [there] = await side.hears(DuplicateRead)
            await side.delete(sequence)
            side.contact.ask(ReadDuplicate(side.fire(), sequence))
            gone = (await side.hears(DuplicateRead, 2))[1]
            assert gone.message is None
            assert gone.stored_by in (None, there.stored_by)

    async def test_a_look_that_contact_ends_over_is_answered(self, open_side: OpenSide) -> None:
        async with open_side() as side:
            fires = [side.fire(), side.fire()]
            side.contact.ask(ReadDuplicate(fires[0], 1))
            side.contact.end("enough")
            side.contact.ask(ReadDuplicate(fires[1], 1))
            unread = await side.hears(Unanswered, 2)
            assert unread == [Unanswered(ReadDuplicate(fire, 1), "enough") for fire in fires]


class TestReading:
    async def test_the_last_message_of_the_subject_and_of_the_source_is_read(self, open_side: OpenSide) -> None:
        async with open_side() as side:
            await side.store("schedule", ODD_BLOCK, b"old")
            sequence = await side.store("schedule", ODD_BLOCK, b"\x00\xff")
            await side.store("source", b"", b"sampled")
            side.contact.ask(ReadContent(side.subject("schedule"), sequence, side.subject("source")))
            (read,) = await side.hears(ContentRead)
            assert read.message is not None
            assert read.source is not None
            assert (read.message.sequence, read.message.block, read.message.body) == (sequence, ODD_BLOCK, b"\x00\xff")
            assert (read.source.subject, read.source.block, read.source.body) == (
                side.subject("source"),
                b"",
                b"sampled",
            )

    async def test_a_missing_subject_is_no_message(self, open_side: OpenSide) -> None:
        async with open_side() as side:
            request = ReadContent(side.subject("schedule"), 1, side.subject("source"))
            side.contact.ask(request)
            assert await side.hears(ContentRead) == [ContentRead(request.schedule, 1, None, None)]

    async def test_a_replacement_is_read_in_place_of_what_was_asked_for(self, open_side: OpenSide) -> None:
        async with open_side() as side:
            first = await side.store("schedule")
            second = await side.store("schedule")
            side.contact.ask(ReadContent(side.subject("schedule"), first, None))
            (read,) = await side.hears(ContentRead)
            assert read.message is not None
            assert (read.sequence, read.message.sequence) == (first, second)

    @pytest.mark.parametrize("by_sequence", [False, True])
    async def test_each_of_many_reads_is_answered_once_also_where_two_are_equal(
        self, open_side: OpenSide, by_sequence: bool
    ) -> None:
        async with open_side() as side:
            await side.store("schedule")
            for number in [*range(800), 7, 7]:
                side.contact.ask(ReadContent(side.subject("schedule"), number, None, by_sequence))
            answers = await side.hears(ContentRead, 802)
            assert Counter(answer.sequence for answer in answers) == Counter([*range(800), 7, 7])


class TestPurging:
    async def test_it_removes_up_to_the_sequence_and_keeps_a_later_replacement(self, open_side: OpenSide) -> None:
        async with open_side() as side:
            await side.store("schedule")
            await side.store("another")
            second = await side.store("schedule")
            await side.store("schedule")
            side.contact.purge(PurgeSchedule(side.subject("schedule"), second))
            assert await side.hears(PurgeConcluded) == [PurgeConcluded(side.subject("schedule"), second)]
            assert await side.stored() == [(2, "another"), (4, "schedule")]

    async def test_to_remove_what_is_gone_is_no_failure(self, open_side: OpenSide) -> None:
        async with open_side() as side:
            side.contact.purge(PurgeSchedule(side.subject("schedule"), 7))
            assert await side.hears(PurgeConcluded) == [PurgeConcluded(side.subject("schedule"), 7)]


class TestRemoving:
    @pytest.mark.parametrize("headers", [A_SCHEDULE, GENERATED], ids=["schedule", "generated"])
    async def test_it_removes_one_message_and_nothing_else_on_its_subject(
        self, open_side: OpenSide, headers: dict[str, str]
    ) -> None:
        async with open_side(allow_msg_ttl=True) as side:
            await side.store("s")
            sequence = await side.store("s", block_to_send(headers))
            await side.store("s")
            side.contact.remove(RemoveExpired(sequence, LATER))
            assert await side.hears(ExpiryConcluded) == [ExpiryConcluded(sequence, side.subject("s"))]
            assert await side.stored() == [(1, "s"), (3, "s")]

    async def test_to_remove_what_is_gone_is_no_failure(self, open_side: OpenSide) -> None:
        async with open_side(allow_msg_ttl=True) as side:
            sequence = await side.store("s", block_to_send(A_SCHEDULE))
            await side.delete(sequence)
            for number in (sequence, 77):
                side.contact.remove(RemoveExpired(number, LATER))
            concluded = await side.hears(ExpiryConcluded, 2)
            assert {given.sequence for given in concluded} == {sequence, 77}
            assert all(given == ExpiryConcluded(given.sequence) for given in concluded)

    async def test_what_is_neither_a_schedule_nor_generated_stays_whatever_was_asked(self, open_side: OpenSide) -> None:
        async with open_side(allow_msg_ttl=True) as side:
            forged = {**GENERATED, "X-Nats-Scheduler": "another"}
            for headers in (AN_HOUR, forged, {"X-Nats-Schedule": "@every 1h"}):
                sequence = await side.store("s", block_to_send(headers))
                side.contact.remove(RemoveExpired(sequence, LATER))
            concluded = await side.hears(ExpiryConcluded, 3)  # a server may answer requests in another order
            assert sorted(concluded, key=lambda given: given.sequence) == [ExpiryConcluded(n) for n in (1, 2, 3)]
            assert len(await side.stored()) == 3

    async def test_what_has_not_expired_yet_stays_and_it_is_told_until_when(self, open_side: OpenSide) -> None:
        async with open_side(allow_msg_ttl=True) as side:
            async with side.following():
                sequence = await side.store("s", block_to_send(A_SCHEDULE))
                (message,) = await side.reads(1)
            expires = message.stored_at + HOUR
            side.contact.remove(RemoveExpired(sequence, expires - 1))
            assert await side.hears(ExpiryConcluded) == [ExpiryConcluded(sequence, expires=expires)]
            side.contact.remove(RemoveExpired(sequence, expires))
            assert (await side.hears(ExpiryConcluded, 2))[1] == ExpiryConcluded(sequence, side.subject("s"))

    async def test_a_stream_that_denies_deletes_refuses_for_good(self, open_side: OpenSide) -> None:
        async with open_side(allow_msg_ttl=True) as side:
            sequence = await side.store("s", block_to_send(A_SCHEDULE))
            await side.deny_delete()
            side.contact.remove(RemoveExpired(sequence, LATER))
            (concluded,) = await side.hears(ExpiryConcluded)
            assert (concluded.refused, concluded.subject) == (True, None)
            assert "message delete not permitted" in (concluded.failure or "")
            assert await side.stored() == [(sequence, "s")]

    async def test_each_of_many_is_answered_once_also_where_two_are_equal(self, open_side: OpenSide) -> None:
        async with open_side(allow_msg_ttl=True) as side:
            for _ in range(100):
                await side.store("s", block_to_send(A_SCHEDULE))
            asked = sorted([*range(1, 151), *range(1, 151)])
            for number in asked:
                side.contact.remove(RemoveExpired(number, LATER))
            answers = await side.hears(ExpiryConcluded, 300)
            assert Counter(answer.sequence for answer in answers) == Counter(asked)
            assert [answer for answer in answers if answer.failure is not None] == []
            assert sum(answer.subject is not None for answer in answers) == 100
            assert await side.stored() == []


class TestFollowing:
    async def test_history_then_caught_up_once_then_what_comes_all_in_order(self, open_side: OpenSide) -> None:
        async with open_side() as side:
            for number in range(300):
                await side.store(f"s.{number % 7}", b"", b"body")
            async with side.following():
                assert [message.sequence for message in side.read] == list(range(1, 301))
                for number in range(300):
                    await side.store(f"s.{number % 7}")
                assert [message.sequence for message in await side.reads(600)] == list(range(1, 601))
                assert len(side.received(CaughtUp)) == 1

    async def test_an_empty_stream_is_caught_up_with_at_once(self, open_side: OpenSide) -> None:
        async with open_side() as side, side.following():
            assert side.read == []
            await side.store("s")
            assert [message.sequence for message in await side.reads(1)] == [1]

    async def test_only_what_lies_behind_the_sequence_is_told(self, open_side: OpenSide) -> None:
        async with open_side() as side:
            for _ in range(5):
                await side.store("s")
            await side.delete(4)
            async with side.following(after=3):
                assert [message.sequence for message in side.read] == [5]

    async def test_messages_are_told_with_their_headers_byte_for_byte_and_without_body(
        self, open_side: OpenSide
    ) -> None:
        async with open_side() as side:
            await side.store("größe.ф", ODD_BLOCK, b"body")
            await side.store("s", b"", b"body")
            async with side.following():
                first, second = side.read
                assert (first.subject, first.body) == (side.subject("größe.ф"), None)
                assert first.block == with_size(ODD_BLOCK, 4)
                assert second.block == with_size(b"", 4)
                assert 0 < first.stored_at <= second.stored_at

    async def test_a_fire_is_told_as_it_was_sent(self, open_side: OpenSide) -> None:
        async with open_side() as side, side.following():
            fire = side.fire(ODD_BLOCK, b"body")
            await side.outcome(fire)
            (message,) = await side.reads(1)
            assert (message.subject, message.block) == (fire.target, with_size(fire.block, 4))

    async def test_it_goes_on_until_it_is_cancelled(self, open_side: OpenSide) -> None:
        async with open_side() as side:
            async with side.following():
                pass
            received = len(side.inputs)
            await side.store("s")
            assert await side.outcome(side.fire()) == Stored(2)
            assert [given for given in side.inputs[received:] if isinstance(given, MessagesRead)] == []


class TestTheEnd:
    @pytest.mark.parametrize("by_sequence", [False, True])
    @pytest.mark.parametrize("turns", [0, 1, 3])
    async def test_it_answers_everything_that_is_open_exactly_once(
        self, open_side: OpenSide, turns: int, by_sequence: bool
    ) -> None:
        async with open_side() as side:
            await side.store("schedule")
            fires = [side.fire() for _ in range(500)]
            side.contact.publish(fires)
            for number in range(600):
                side.contact.ask(ReadContent(side.subject("schedule"), number, None, by_sequence))
            for number in range(300):
                side.contact.purge(PurgeSchedule(side.subject("purged"), number))
                side.contact.remove(RemoveExpired(number, LATER))
            for _ in range(turns):
                await a_turn()
            side.contact.end("enough")
            side.contact.end("enough")
            assert Counter(answer.fire.fire_time for answer in side.received(PublishConcluded)) == Counter(
                range(1, 501)
            )
            reads = [read.sequence for read in side.received(ContentRead)]
            questions = [unread.question for unread in side.received(Unanswered)]
            reads += [question.sequence for question in questions if isinstance(question, ReadContent)]
            assert sorted(reads) == list(range(600))
            assert sorted(answer.through for answer in side.received(PurgeConcluded)) == list(range(300))
            assert sorted(answer.sequence for answer in side.received(ExpiryConcluded)) == list(range(300))
            received = len(side.inputs)
            await side.stored()
            assert len(side.inputs) == received, "a later answer of the server is not delivered"

    async def test_what_is_asked_afterwards_is_answered_too(self, open_side: OpenSide) -> None:
        async with open_side() as side:
            side.contact.end("enough")
            side.contact.publish([side.fire()])
            side.contact.ask(ReadContent(side.subject("schedule"), 1, None))
            side.contact.purge(PurgeSchedule(side.subject("schedule"), 1))
            side.contact.remove(RemoveExpired(1, LATER))
            outcomes = [answer.outcome for answer in side.received(PublishConcluded)]
            assert [type(outcome) for outcome in outcomes] == [Unknown]
            assert [answer.reason for answer in side.received(Unanswered)] == ["enough"]
            assert [(answer.failure, answer.refused) for answer in side.received(PurgeConcluded)] == [("enough", False)]
            assert side.received(ExpiryConcluded) == [ExpiryConcluded(1, failure="enough")]
