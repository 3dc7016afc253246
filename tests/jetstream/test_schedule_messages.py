"""An edit of a schedule that somebody else has changed does nothing, and no concurrent edit is lost."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from nats_scheduler.engine.inputs import Refused, Stored, Unknown
from nats_scheduler.jetstream.connection import frame
from nats_scheduler.jetstream.schedule_messages import (
    CONDITION_HIDDEN,
    Changed,
    Deleted,
    Missing,
    ScheduleMessages,
)
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from tests.conftest import SharedServer, StartServer
from tests.harness.account import Account, account_on
from tests.harness.blocks import block_to_send
from tests.harness.servers import V2_10, V2_11, V2_15

NEVER = "@at 2200-01-01T00:00:00Z"


def block(pattern: str = NEVER, target: str = "out", **more: str) -> bytes:
    """Make the headers of a schedule that no server of the test fires."""
    headers = {"X-Nats-Schedule": pattern, "X-Nats-Schedule-Target": target}
    return block_to_send(headers | {name.replace("_", "-"): value for name, value in more.items()})


@dataclass
class Edited:
    """A stream with schedules that nobody fires, and its editor."""

    account: Account
    name: str
    messages: ScheduleMessages

    @property
    def subject(self) -> str:
        return f"{self.name}.s"

    async def publish(self, pattern: str = NEVER, *, expected: int | None) -> int:
        """Publish a schedule and return its sequence; the server must take it."""
        stored = await self.messages.publish(self.subject, block(pattern), b"body", expected=expected)
        assert isinstance(stored, Stored), stored
        return stored.sequence

    async def at(self, sequence: int) -> StoredMessage:
        message = await self.account.api.message(self.name, seq=sequence)
        assert message is not None
        return message

    async def delete(self, sequence: int) -> Any:
        return await self.messages.delete(self.subject, sequence, (await self.at(sequence)).stored_at)

    async def last(self) -> StoredMessage | None:
        return await self.account.api.message(self.name, last_by_subj=self.subject)

    async def versions(self) -> list[int]:
        return [one.sequence for one in await self.account.messages(self.name, self.subject)]


async def edited(account: Account, name: str, **config: Any) -> Edited:
    await account.create(name, allow_msg_schedules=False, **config)
    wanted = {"name": name, **config}
    return Edited(account, name, ScheduleMessages(account.connection, account.api, wanted))


@pytest.fixture(params=[V2_10, V2_11, V2_15])
async def account(request: pytest.FixtureRequest, shared_server: SharedServer) -> AsyncIterator[Account]:
    async with account_on((await shared_server(request.param)).url) as connected:
        yield connected


@pytest.fixture
async def stream(account: Account, stream_name: str) -> Edited:
    return await edited(account, stream_name)


async def test_a_publish_replaces_only_what_it_expects(stream: Edited) -> None:
    first = await stream.publish(expected=0)
    assert await stream.messages.publish(stream.subject, block(), b"", expected=0) == Changed()
    second = await stream.publish("@every 1h", expected=first)
    assert await stream.messages.publish(stream.subject, block(), b"", expected=first) == Changed()
    third = await stream.publish("@every 2h", expected=None)
    last = await stream.last()
    assert last is not None
    assert (last.sequence, header_value(last.block, b"X-Nats-Schedule")) == (third, b"@every 2h")
    assert first < second < third


async def test_what_was_deleted_meanwhile_is_not_replaced(stream: Edited) -> None:
    first = await stream.publish(expected=0)
    assert await stream.delete(first) == Deleted()
    assert await stream.messages.publish(stream.subject, block(), b"", expected=first) == Changed()
    assert await stream.last() is None


def refusal(code: int) -> bytes:
    error = {"code": 400, "err_code": code, "description": "not now"}
    return json.dumps({"error": error, "stream": "ELSEWHERE", "seq": 0}).encode()


@pytest.mark.parametrize(
    ("codes", "outcome"),
    [
        ([10164, 10163, 10063], Stored(7)),
        ([10164, 10071], Changed()),
        ([10164] * 9, Unknown("not now (server code 10164)", may_be_stored=False)),
        ([10008], Unknown("not now (server code 10008)")),
        ([10077], Refused(400, 10077, "not now")),
    ],
)
async def test_what_the_server_cannot_say_yet_is_no_change_of_another_client(
    account: Account, stream_name: str, codes: list[int], outcome: object
) -> None:
    answers = [*map(refusal, codes), b'{"stream": "ELSEWHERE", "seq": 7}']

    def answer(_subject: bytes, reply: bytes, _block: bytes, _body: bytes) -> None:
        account.connection.write(frame(reply.decode(), "", b"", answers.pop(0)))

    account.connection.subscribe(f"{stream_name}.s", answer)
    messages = ScheduleMessages(account.connection, account.api, {"name": "ELSEWHERE"})
    assert await messages.publish(f"{stream_name}.s", block(), b"", expected=3) == outcome


async def test_conditions_of_an_earlier_publish_do_not_count(stream: Edited) -> None:
    first = await stream.publish(expected=0)
    again = (await stream.at(first)).block
    assert header_value(again, b"Nats-Expected-Last-Subject-Sequence") == b"0"
    stored = await stream.messages.publish(stream.subject, again, b"", expected=first)
    assert isinstance(stored, Stored)
    assert (await stream.at(stored.sequence)).block.count(b"Nats-Expected-Last-Subject-Sequence") == 1


async def test_a_condition_that_the_server_would_not_find_is_refused_before(stream: Edited) -> None:
    hiding = block(Note="Nats-Expected-Last-Subject-Sequence: 7 Nats-Expected-Stream: x")
    outcome = await stream.messages.publish(stream.subject, hiding, b"", expected=5)
    assert outcome in (CONDITION_HIDDEN, Changed())
    assert await stream.last() is None


async def test_a_publish_into_another_stream_is_refused(stream: Edited) -> None:
    await stream.account.create(f"{stream.name}-2", allow_msg_schedules=False)
    outcome = await stream.messages.publish(f"{stream.name}-2.s", block(), b"", expected=0)
    assert not isinstance(outcome, Stored), outcome
    assert await stream.account.api.message(f"{stream.name}-2", last_by_subj=f"{stream.name}-2.s") is None


async def test_a_subject_of_no_stream_and_a_known_identity_are_outcomes(stream: Edited) -> None:
    nobody = await stream.messages.publish("nobody.listens", block(), b"", expected=0)
    assert isinstance(nobody, Unknown)
    assert not nobody.may_be_stored
    known = block(Nats_Msg_Id=f"{stream.name}-1")
    first = await stream.messages.publish(stream.subject, known, b"", expected=None)
    assert isinstance(first, Stored)
    assert await stream.messages.publish(stream.subject, known, b"", expected=None) == Stored(first.sequence, True)


async def test_a_message_that_the_stream_refuses_says_why(account: Account, stream_name: str) -> None:
    stream = await edited(account, stream_name, max_msg_size=300)
    outcome = await stream.messages.publish(stream.subject, block(), bytes(1_000), expected=0)
    assert isinstance(outcome, Refused)
    assert outcome.code == 10054


async def test_a_delete_leaves_no_older_version(stream: Edited) -> None:
    sequence = 0
    for hours in (1, 2, 3):
        sequence = await stream.publish(f"@every {hours}h", expected=sequence)
    assert await stream.delete(sequence) == Deleted()
    assert await stream.versions() == []


async def test_a_delete_where_purges_are_denied_leaves_no_older_version_either(
    account: Account, stream_name: str
) -> None:
    stream = await edited(account, stream_name, deny_purge=True)
    sequence = 0
    for hours in (1, 2, 3):
        sequence = await stream.publish(f"@every {hours}h", expected=sequence)
    assert await stream.delete(sequence) == Deleted()
    assert await stream.versions() == []


async def test_a_delete_where_everything_is_denied_is_refused(account: Account, stream_name: str) -> None:
    stream = await edited(account, stream_name, deny_purge=True, deny_delete=True)
    sequence = await stream.publish(expected=0)
    assert isinstance(await stream.delete(sequence), Refused)
    assert await stream.versions() == [sequence]


async def test_a_schedule_that_was_replaced_is_not_deleted(stream: Edited) -> None:
    first = await stream.publish(expected=0)
    stored_at = (await stream.at(first)).stored_at
    second = await stream.publish("@every 1h", expected=first)
    assert await stream.messages.delete(stream.subject, first, stored_at) == Changed(second)
    last = await stream.last()
    assert last is not None
    assert last.sequence == second


async def test_a_schedule_that_is_gone_is_missing(stream: Edited) -> None:
    first = await stream.publish(expected=0)
    stored_at = (await stream.at(first)).stored_at
    assert await stream.messages.delete(stream.subject, first, stored_at) == Deleted()
    assert await stream.messages.delete(stream.subject, first, stored_at) == Missing()


async def test_another_message_under_the_same_sequence_is_not_deleted(stream: Edited) -> None:
    """As after a restore, or if the stream was created anew: the sequences begin again."""
    sequence = await stream.publish(expected=0)
    stored_at = (await stream.at(sequence)).stored_at
    assert await stream.messages.delete(stream.subject, sequence, stored_at - 1) == Changed(sequence)
    assert await stream.messages.delete(f"{stream.name}.other", sequence, stored_at) == Missing()
    assert await stream.versions() == [sequence]


async def test_what_landed_on_a_schedule_stays(stream: Edited) -> None:
    sequence = await stream.publish(expected=0)
    stored_at = (await stream.at(sequence)).stored_at
    stamps = {"X-Nats-Scheduler": "other", "X-Nats-Schedule-Next": "purge"}
    landed = await stream.account.publish(stream.subject, stamps)
    assert await stream.messages.delete(stream.subject, sequence, stored_at, last=landed) == Deleted()
    assert await stream.versions() == [landed]


async def test_a_sequence_that_the_leader_has_not_reached_proves_nothing(stream: Edited) -> None:
    outcome = await stream.messages.delete(stream.subject, 1_000, 1)
    assert isinstance(outcome, Unknown)


async def test_one_message_is_deleted_and_what_was_stored_later_stays(account: Account, stream_name: str) -> None:
    for config, kept in (({}, [0, 2]), ({"deny_delete": True}, [2])):
        stream = await edited(account, f"{stream_name}{len(kept)}", **config)
        sequences = [await stream.publish(expected=None) for _ in range(3)]
        await stream.messages.delete_one(stream.subject, sequences[1])
        assert await stream.versions() == [sequences[n] for n in kept]


async def test_no_concurrent_edit_is_lost(stream: Edited) -> None:
    """Each client reads a number, and writes the next one: the last number says how many edits were stored."""
    clients, edits = 6, 15
    await stream.publish("@every 0h1m0s", expected=0)

    async def edit(client: int) -> int:
        random, changed = Random(client), 0
        for _ in range(edits):
            while True:
                last = await stream.last()
                assert last is not None
                if random.random() < 0.5:  # a client that takes longer
                    await stream.last()
                counted = int(last.body or b"0") if (last.body or b"").isdigit() else 0
                body = b"%d" % (counted + 1)
                outcome = await stream.messages.publish(stream.subject, block(), body, expected=last.sequence)
                if isinstance(outcome, Stored):
                    break
                assert outcome == Changed(), outcome
                changed += 1
        return changed

    changed = await asyncio.gather(*map(edit, range(clients)))
    last = await stream.last()
    assert last is not None
    assert (last.body, sum(changed) > 0) == (b"%d" % (clients * edits), True)


async def test_of_a_delete_and_an_edit_at_the_same_time_neither_undoes_the_other(stream: Edited) -> None:
    """Either the edit is stored and stays, or the delete came first and the edit finds its schedule changed."""
    seen = set()
    for _ in range(60):
        sequence = await stream.publish(expected=(await stream.versions() or [0])[-1])
        stored_at = (await stream.at(sequence)).stored_at
        removed, written = await asyncio.gather(
            stream.messages.delete(stream.subject, sequence, stored_at),
            stream.messages.publish(stream.subject, block("@every 1h"), b"edited", expected=sequence),
        )
        last = await stream.last()
        if isinstance(written, Stored):
            assert last is not None
            assert (last.sequence, last.body, removed) == (written.sequence, b"edited", Changed(written.sequence))
        else:
            assert (last, written, removed) == (None, Changed(), Deleted())
        seen.add(type(written))
    assert Stored in seen


async def test_schedules_of_a_native_server_are_edited_in_the_same_way(
    shared_server: SharedServer, stream_name: str
) -> None:
    async with account_on((await shared_server(V2_15)).url) as account:
        await account.create(stream_name)
        stream = Edited(account, stream_name, ScheduleMessages(account.connection, account.api, {"name": stream_name}))
        headers = block_to_send({"Nats-Schedule": NEVER, "Nats-Schedule-Target": f"{stream_name}.out"})
        first = await stream.messages.publish(stream.subject, headers, b"", expected=0)
        assert isinstance(first, Stored)
        assert await stream.messages.publish(stream.subject, headers, b"", expected=0) == Changed()
        second = await stream.messages.publish(stream.subject, headers, b"", expected=first.sequence)
        assert isinstance(second, Stored)
        wrong = block_to_send({"Nats-Schedule": "@often", "Nats-Schedule-Target": f"{stream_name}.out"})
        refused = await stream.messages.publish(stream.subject, wrong, b"", expected=second.sequence)
        assert isinstance(refused, Refused)
        assert refused.code == 10189
        assert await stream.delete(second.sequence) == Deleted()
        assert await stream.versions() == []


@pytest.mark.server
async def test_a_user_without_permission_is_refused(start_server: StartServer) -> None:
    config = """
    accounts { A { jetstream: enabled, users [
        { user: all, password: p }
        { user: reader, password: p, permissions { publish { deny: ["S.s", "$JS.API.STREAM.PURGE.>"] } } }
    ] } }"""
    server = await start_server(V2_11, config=config)
    async with account_on(server.url, user="all", password="p") as owner:  # noqa: S106
        stream = await edited(owner, "S")
        sequence = await stream.publish(expected=0)
        stored_at = (await stream.at(sequence)).stored_at
        async with account_on(server.url, user="reader", password="p") as reader:  # noqa: S106
            messages = ScheduleMessages(reader.connection, reader.api, {"name": "S"})
            for outcome in (
                await messages.publish("S.s", block(), b"", expected=sequence),
                await messages.delete("S.s", sequence, stored_at),
            ):
                assert isinstance(outcome, Refused)
                assert outcome.code == 403
