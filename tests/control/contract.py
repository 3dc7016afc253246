"""The promises of every `ScheduleStore`: one suite, which each adapter runs as a class of tests of its own.

The rule: a test needs nothing but the fixture `side`. A module of tests provides it for an adapter, and inherits:

    class TestMemorySchedules(StoreContract): ...

Schedules are written with the portable headers and a time that never comes: no server of the suite fires them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import pytest

from nats_scheduler.control.changes import Author, Kind
from nats_scheduler.control.edits import add, edit, remove
from nats_scheduler.control.errors import (
    AlreadyExistsError,
    ConflictError,
    NotFoundError,
    NotServedError,
    RejectedError,
    StreamNotFoundError,
)
from nats_scheduler.control.fire_requests import backfill, fire
from nats_scheduler.control.pausing import pause, resume
from nats_scheduler.control.standing import current
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.control.store_port import EVER
from nats_scheduler.control.words import is_same
from nats_scheduler.message.identity import beside_identity, fire_identity
from nats_scheduler.message.publish_answers import Published
from nats_scheduler.message.schedule_form import Edit
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import HOUR, SECOND, round_to_second
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.harness.blocks import block_to_send

NEVER = "@at 2200-01-01T00:00:00Z"
BODY = b"\x00binary\xff\r\n"
AUTHOR = Author("jane", "for the test")


class Side(ABC):
    """One store, and another client of the same streams."""

    store: ScheduleStore
    stream: str
    """A stream with schedules, on `<stream>.>`."""
    unserved: str
    """A stream without schedules."""

    def subject(self, rest: str = "s") -> str:
        """Return a subject of the stream."""
        return f"{self.stream}.{rest}"

    def block(self, pattern: str = NEVER, **more: str) -> bytes:
        """Return the headers of a schedule."""
        headers = {"X-Nats-Schedule": pattern, "X-Nats-Schedule-Target": self.subject("out")}
        return block_to_send(headers | {name.replace("_", "-"): value for name, value in more.items()})

    @abstractmethod
    async def publish(self, subject: str, block: bytes, body: bytes = b"") -> int:
        """Store a message as another client does, and return its sequence."""

    @abstractmethod
    async def messages(self, subject: str) -> Sequence[StoredMessage]:
        """Return everything that is stored on a subject, in order."""


class StoreContract:
    """The tests."""

    # -- the port ------------------------------------------------------------------------------------------------

    async def test_a_stream_is_served_if_it_has_schedules(self, side: Side) -> None:
        served = await side.store.served(side.stream)
        assert (served.name, served.rules.subjects) == (side.stream, (f"{side.stream}.>",))
        assert "portable" in {dialect.name for dialect in served.dialects}
        with pytest.raises(StreamNotFoundError):
            await side.store.served("NONE")
        with pytest.raises(NotServedError):
            await side.store.served(side.unserved)
        assert await side.store.stream_of(side.subject("any")) == side.stream
        assert await side.store.stream_of(f"{side.unserved}.any") == side.unserved
        with pytest.raises(StreamNotFoundError):
            await side.store.stream_of("no.stream.has.it")

    async def test_the_last_message_is_read_byte_for_byte(self, side: Side) -> None:
        assert await side.store.last(side.stream, side.subject()) is None
        await side.publish(side.subject(), side.block(), b"old")
        for body in (BODY, b""):
            sequence = await side.publish(side.subject(), side.block(Note=" x\t"), body)
            last = await self._last(side)
            assert last[:2] == (side.subject(), sequence)
            assert (last.block, last.body) == (side.block(Note=" x\t"), body)
            assert abs(side.store.now() - last.stored_at) < 60 * SECOND

    async def test_a_publish_replaces_only_what_it_expects(self, side: Side) -> None:
        store, subject = side.store, side.subject()
        first = await store.publish(side.stream, subject, side.block(), BODY, expected=0)
        for wrong in (0, first.sequence + 1):
            with pytest.raises(ConflictError):
                await store.publish(side.stream, subject, side.block("@every 1h"), b"", expected=wrong)
        second = await store.publish(side.stream, subject, side.block("@every 1h"), b"", expected=first.sequence)
        assert second.sequence > first.sequence
        last = await store.last(side.stream, subject)
        assert last is not None
        assert is_same(last, side.block("@every 1h"), b"")

    async def test_conditions_in_the_block_count_if_none_is_given(self, side: Side) -> None:
        wrong = side.block(Nats_Expected_Last_Subject_Sequence="7")
        with pytest.raises(ConflictError):
            await side.store.publish(side.stream, side.subject(), wrong, BODY, expected=None)
        right = side.block(Nats_Expected_Last_Subject_Sequence="0")
        first = await side.store.publish(side.stream, side.subject(), right, BODY, expected=None)
        await side.store.publish(side.stream, side.subject(), right, BODY, expected=first.sequence)
        stored = await self._last(side)
        assert stored.block.count(b"Nats-Expected-Last-Subject-Sequence:") == 1, "those of an earlier publish do not"

    async def test_a_message_id_that_the_server_knows_is_a_duplicate(self, side: Side) -> None:
        block = side.block(Nats_Msg_Id="once")
        first = await side.store.publish(side.stream, side.subject(), block, BODY, expected=None)
        again = await side.store.publish(side.stream, side.subject(), block, BODY, expected=None)
        assert (first.is_duplicate, again) == (False, Published(first.sequence, is_duplicate=True))

    async def test_a_delete_leaves_no_older_version_and_what_was_stored_later(self, side: Side) -> None:
        for pattern in ("@every 1h", "@every 2h"):
            await side.publish(side.subject(), side.block(pattern))
        before = await self._last(side)
        later = await side.publish(side.subject(), side.block())
        with pytest.raises(ConflictError) as raised:
            await side.store.delete(side.stream, before)
        assert raised.value.sequence == later
        last = await self._last(side)
        assert last.sequence == later
        await side.store.delete(side.stream, last)
        assert await side.messages(side.subject()) == []
        with pytest.raises(NotFoundError):
            await side.store.delete(side.stream, last)
        with pytest.raises(ConflictError):
            await side.store.publish(side.stream, side.subject(), side.block(), b"", expected=later)
        assert await side.messages(side.subject()) == []

    async def test_the_schedules_on_subjects_are_the_last_messages_there(self, side: Side) -> None:
        await side.publish(side.subject("a.one"), side.block("@every 1h"))
        await side.publish(side.subject("a.one"), side.block(), b"1")
        await side.publish(side.subject("a.two"), side.block("no pattern"), b"2")
        await side.publish(side.subject("a.three"), block_to_send({"X-Nats-Schedule-X-Paused": NEVER}), b"3")
        await side.publish(side.subject("a.ended"), side.block())
        await side.publish(side.subject("a.ended"), b"", b"a plain message")
        await side.publish(side.subject("b.one"), side.block())
        found = [one async for one in side.store.schedules(side.stream, side.subject("a.*"))]
        bodies = {one.subject: one.body for one in found}
        wanted = {"a.one": b"1", "a.two": b"2", "a.three": b"3"}
        assert bodies == {side.subject(rest): body for rest, body in wanted.items()}
        assert len(found) == 3

    async def test_the_stored_fires_of_a_schedule_are_found(self, side: Side) -> None:
        await side.publish(side.subject(), side.block("@every 4s"))
        schedule = await self._last(side)
        now, name, sequence = schedule.stored_at, side.subject(), schedule.sequence
        first = round_to_second(now) + 4 * SECOND
        for identity in (
            fire_identity(name, sequence, first),  # a little early: clocks may differ
            fire_identity(name, sequence, first + 1),  # no fire time
            fire_identity(name, sequence - 1, now - 2),  # of an earlier version
            beside_identity(name, sequence, now - 3),
            "of no fire",
        ):
            await side.publish(side.subject("out"), fire_block(name, identity))
        found = await side.store.fires(side.stream, schedule, now - 10, first)
        assert (found.fire_times, found.known_from) == (frozenset({now - 3, now - 2, first}), EVER)
        assert found.latest is not None
        assert (found.latest - first) % (4 * SECOND) == 0, "a sidecar may have fired since then"
        assert (await side.store.fires(side.stream, schedule, now - 2, now)).fire_times == {now - 2}

    # -- the operations on it ------------------------------------------------------------------------------------

    async def test_the_life_of_a_schedule_from_its_addition_to_its_removal(self, side: Side) -> None:
        operated = side.store, side.stream, side.subject()
        first = side.block(A="1", B="2", C="3", X_Note="é")
        with pytest.raises(RejectedError) as raised:
            await add(*operated, side.block("@every 1x"), BODY)
        assert raised.value.code == 10189
        assert await side.messages(side.subject()) == []
        change = await add(*operated, first, BODY, author=AUTHOR)
        (stored,) = await side.messages(side.subject())
        assert (change.kind, change.before, change.after, change.author) == (Kind.ADDED, None, stored.sequence, AUTHOR)
        assert is_same(stored, first, BODY)
        assert stored.block.startswith(first[:-2])

        again = await add(*operated, side.block(C="3", B="2", A="1", X_Note="é"), BODY)
        assert (again.kind, again.before, again.after) == (Kind.UNCHANGED, change.after, change.after)
        for other in ((side.block(A="1"), BODY), (first, b"")):
            with pytest.raises(AlreadyExistsError):
                await add(*operated, *other)
        assert len(await side.messages(side.subject())) == 1

        await edit(*operated, Edit(set=[(b"B", b"two"), (b"D", b"4")], unset=[b"C"]))
        edited = await self._last(side)
        assert is_same(edited, side.block(A="1", B="two", D="4", X_Note="é"), BODY)
        assert edited.block.index(b"B: two") > edited.block.index(b"A: 1")

        await pause(*operated, author=AUTHOR)
        paused = await current(side.store, await side.store.served(side.stream), side.subject())
        assert (paused.is_paused, paused.pattern, paused.message.body) == (True, NEVER, BODY)
        await resume(*operated)
        resumed = await self._last(side)
        assert is_same(resumed, edited.block, BODY)

        at = side.store.now()
        fired = await fire(*operated, at=at)
        repeated = await fire(*operated, at=at)
        assert (fired.kind, fired.fires, repeated.kind) == (Kind.FIRED, (at,), Kind.UNCHANGED)
        (stored,) = await side.messages(side.subject("out"))
        assert (stored.body, fired.after) == (BODY, resumed.sequence)
        assert (await self._last(side)).sequence == resumed.sequence, "it is stored beside its schedule"
        assert (await side.store.fires(side.stream, resumed, at, side.store.now())).fire_times == {at}

        removed = await remove(*operated)
        assert (removed.kind, removed.after) == (Kind.REMOVED, None)
        assert await side.messages(side.subject()) == []
        with pytest.raises(NotFoundError):
            await remove(*operated)

    async def test_missing_fires_are_stored_once(self, side: Side) -> None:
        at = side.store.now() - 5 * HOUR - HOUR // 2
        anchor = format_rfc3339(round_to_second(at))
        policies = {"X-Nats-Schedule-X-Anchor": anchor, "X-Nats-Schedule-X-Missed": "skip"}
        await add(side.store, side.stream, side.subject(), side.block("@every 1h", **policies), BODY)
        until = round_to_second(at) + 3 * HOUR
        change = await backfill(side.store, side.stream, side.subject(), round_to_second(at), until)
        assert (change.kind, len(change.fires)) == (Kind.BACKFILLED, 4)
        assert len(await side.messages(side.subject("out"))) == 4
        again = await backfill(side.store, side.stream, side.subject(), round_to_second(at), until)
        assert again.kind is Kind.UNCHANGED

    async def _last(self, side: Side) -> StoredMessage:
        last = await side.store.last(side.stream, side.subject())
        assert last is not None
        return last


def fire_block(schedule: str, identity: str) -> bytes:
    """Return the headers of a fire."""
    following = format_rfc3339(4_000_000_000 * SECOND)
    names = {"X-Nats-Scheduler": schedule, "X-Nats-Schedule-Next": following, "Nats-Msg-Id": identity}
    return block_to_send(names)
