"""The message that a fire stores is, byte for byte, the one that the native scheduler stores.

But for our identity and guard, which stand behind the ADR's own headers and are checked to be right: what is stored is
freed of them, but only where they stand in their place. Everything is published in one order on one connection, so that
sequences are equal on all sides.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import pytest

from nats_scheduler.engine.events import FireRefused
from nats_scheduler.jetstream.streams import METADATA_TTL_FLAG
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339
from tests.conftest import SharedServer
from tests.differential.differences import Allowance, Differences
from tests.differential.generated_cases import FIXED, STREAMS, Case, Stream
from tests.differential.sides import REFERENCE, ComparedSide, fresh_name, on_each, sides_of
from tests.harness.account import CLOCK, Account, account_on, in_seconds, sidecar_on
from tests.harness.blocks import block_to_send
from tests.harness.servers import V2_10, V2_11, V2_14, V2_15
from tests.harness.waiting import PATIENCE_SECONDS, eventually, instant_reached

AHEAD = 5 * SECOND
"""The time (ns) before the instant at which all is due, at which the cases are published."""

PORTABLE_VERSIONS = (V2_10, V2_11, V2_15)
"""A server without the guard, one without a scheduler, and the newest; no fire depends on more of its server."""

ROOM = 256
"""Bytes less than the server's largest payload in which a fire of ours on such a short subject fits for sure."""

PLAIN = {
    "allow_msg_schedules": False,
    "allow_rollup_hdrs": True,
    "metadata": {METADATA_TTL_FLAG: "true"},
}
"""A stream that only the settings name; 2.10 does not know `allow_msg_ttl`, so its metadata stand for that."""

pytestmark = [
    pytest.mark.clause("generated-headers", "generated-strip", "generated-body", "generated-next", "generated-ttl"),
    pytest.mark.clause("generated-rollup", "sampling", "sampling-fallback", "identity", "at-past"),
]


LONG_BODY = 2_000
"""A body of more bytes is compared by its digest, so that a difference can be read."""

RAISED_TTL = rb"(?:Nats-TTL: \d+s?\r\n)?\r\n"
"""The text that may stand behind our own headers: a server moves the TTL to the end where it raises it."""

Told = tuple[bytes, bytes | str]
"""A header block and a body."""


@dataclass
class Scene:
    """One server, the streams of one comparison on it, and how schedules are spelled there."""

    account: Account
    base: str
    kinds: tuple[Stream, ...] = tuple(STREAMS)
    portable: bool = False
    ours: bool = False
    """True if the sidecar fires, and not the server."""
    guarded: bool = True
    """True if the server knows the guard."""
    schedules: list[tuple[Case, int, int]] = field(default_factory=list)
    """The schedules that were said: the case, the sequence it was stored at, and the fire time."""

    def stream(self, kind: Stream) -> str:
        """Return the name of a kind's stream."""
        return f"{self.base}-{kind}"

    def subject(self, kind: Stream, rest: str) -> str:
        """Return a subject of a kind's stream."""
        return f"{self.stream(kind)}.{rest}"

    async def say(self, cases: Sequence[Case], due: int) -> None:
        """Publish all cases to be due at one instant, and await that all are stored."""
        last: dict[Stream, int] = dict.fromkeys(STREAMS, 0)
        answers = []
        for number, case in enumerate(cases):
            for subject, block, body in self._messages(case, number, due, last):
                last[case.stream] += 1
                answers.append(asyncio.create_task(self.account.publish_block(subject, block, body)))
            answers[-1].set_name(str(number))
        sequences = await asyncio.gather(*answers)
        for task, sequence in zip(answers, sequences, strict=True):
            if task.get_name().isdigit():
                case = cases[int(task.get_name())]
                self.schedules.append((case, sequence, instant_of(case, due)))

    def _messages(self, case: Case, number: int, due: int, last: dict[Stream, int]) -> list[tuple[str, bytes, bytes]]:
        """Return what is published for a case, the schedule last: subjects, blocks and bodies."""
        named = {rest: self.subject(case.stream, f"{rest}.{number}") for rest in "soq"}
        sources, targets = case.source or (), case.target
        named |= {"n": self.stream(case.stream), "last": str(last[case.stream] + len(sources) + len(targets))}
        told = [(named["q"], self._block(lines, named), body) for lines, body in sources]
        told += [(named["o"], b"", body) for body in targets]
        schedule = f"Nats-Schedule: @at {spelled(case, due)}|Nats-Schedule-Target: {{o}}".encode()
        if case.source is not None:
            schedule += b"|Nats-Schedule-Source: {q}"
        lines = case.lines if isinstance(case.lines, bytes) else case.lines.encode()
        whole = lines.replace(b"$", schedule, 1) if b"$" in lines else b"|".join(filter(None, (schedule, lines)))
        told.append((named["s"], self._block(whole, named, case.status), case.body))
        return told

    def _block(self, lines: str | bytes, named: dict[str, str], status: str = "") -> bytes:
        if not lines and not status:
            return b""
        block = lines if isinstance(lines, bytes) else lines.encode()
        for name, value in named.items():
            block = block.replace(b"{%s}" % name.encode(), value.encode())
        if self.portable:
            block = block.replace(b"Nats-Sched", b"X-Nats-Sched")
        return b"NATS/1.0%s\r\n%s\r\n\r\n" % (status.encode(), block.replace(b"|", b"\r\n"))

    async def fired(self, due: int) -> None:
        """Wait until no schedule is left: each has fired, or the comparison fails here."""
        await instant_reached(due, CLOCK.now)

        async def none_left() -> bool:
            waiting = [await self._left(kind) for kind in self.kinds]
            assert not any(waiting), f"on {self.account.connection.server.version}: {waiting}"
            return True

        await eventually(
            none_left, within_seconds=2 * PATIENCE_SECONDS, describe=f"every case on {self.base} has fired"
        )

    async def _left(self, kind: Stream) -> list[str]:
        """Return the names of the cases whose schedules are still there."""
        name = self.stream(kind)
        left = [subject async for subject in self.account.api.subjects(name, f"{name}.s.*")]
        return [self.schedules[int(subject.rsplit(".", 1)[1])][0].name for subject in left]

    async def targets(self) -> list[list[Told]]:
        """Return what lies on each target."""
        return await asyncio.gather(*(self._target(number) for number in range(len(self.schedules))))

    async def _target(self, number: int) -> list[Told]:
        case, sequence, fire_time = self.schedules[number]
        schedule = self.subject(case.stream, f"s.{number}")
        messages = await self.account.messages(self.stream(case.stream), self.subject(case.stream, f"o.{number}"))
        ours = self._ours(schedule, sequence, fire_time)
        return [(self._comparable(freed(message.block, ours)), body_of(message)) for message in messages]

    def _ours(self, schedule: str, sequence: int, fire_time: int) -> bytes:
        """Return the lines that a fire of ours has behind those of the ADR."""
        if not self.ours:
            return b""
        lines = f"Nats-Msg-Id: {fire_identity(schedule, sequence, fire_time)}\r\n"
        if self.guarded:
            lines += f"Nats-Expected-Last-Subject-Sequence: {sequence}\r\n"
            lines += f"Nats-Expected-Last-Subject-Sequence-Subject: {schedule}\r\n"
        return lines.encode()

    def _comparable(self, block: bytes) -> bytes:
        """Return a block as it would be in the headers of ADR-51, and on any base."""
        block = block.replace(b"X-Nats-Sched", b"Nats-Sched") if self.portable else block
        return block.replace(self.base.encode(), b"BASE")


OBEYED = rb"(?:Nats-TTL: [^\r]*\r\n|Nats-Rollup: sub\r\n)"
LOOK_ALIKE = rb"Nats-Msg-Id|Nats-Expected-Last-Subject-Sequence|Nats-TTL|Nats-Rollup"


def freed(block: bytes, ours: bytes) -> bytes:
    """Remove our own lines where they are the last of the block; else it stays, and differs.

    They may come first, and the server's own of ADR-51 before them, where the rest holds such a name.
    """
    first = re.fullmatch(rb"(NATS/1\.0\r\n)(%b*)%b(.*)\r\n" % (OBEYED, re.escape(ours)), block, re.DOTALL)
    if ours and first and re.search(LOOK_ALIKE, first[3]):
        return first[1] + first[3] + first[2] + b"\r\n"
    return re.sub(b"(?<=\r\n)" + re.escape(ours) + b"(?=" + RAISED_TTL + rb"\Z)", b"", block) if ours else block


def body_of(message: StoredMessage) -> bytes | str:
    """Return the body, or its length and digest where it is long."""
    body = message.body or b""
    return body if len(body) <= LONG_BODY else f"{len(body)} bytes {hashlib.sha256(body).hexdigest()}"


def spelled(case: Case, due: int) -> str:
    """Write the instant of a case as `@at` takes it."""
    text = format_rfc3339(due)[: len("2026-11-20T15:04:05")]
    if case.spelling == "+02:00":
        return format_rfc3339(due, 7200)
    return {
        "Z": f"{text}.5Z",
        "-00:00": f"{text}.500-00:00",
        "comma": f"{text},5Z",
        "long": f"{text}.500000000999Z",
        "past": "2009-11-10T23:00:00Z",
        "first": "1970-01-01T00:00:00Z",
    }[case.spelling]


def instant_of(case: Case, due: int) -> int:
    """Return the fire time of a case."""
    assert due % SECOND == SECOND // 2, "the spellings hold half a second"
    instant = parse_rfc3339(spelled(case, due))
    assert not isinstance(instant, Invalid)
    return instant


def due_soon() -> int:
    """Return an instant that is near enough to wait for, at half a second."""
    return (CLOCK.now() + AHEAD) // SECOND * SECOND + SECOND // 2


async def scene_on(side: ComparedSide, base: str, cases: list[Case], due: int) -> Scene:
    """Play the cases on one side, to the end."""
    scene = Scene(side.account, base, ours=not side.is_native, guarded=side.version != V2_10)
    for kind, config in STREAMS.items():
        await side.create(scene.stream(kind), **config)
    await scene.say(cases, due)
    await scene.fired(due)
    return scene


async def play(scene: Scene, cases: list[Case], due: int) -> Scene:
    """Say the cases, and wait until all have fired."""
    await scene.say(cases, due)
    await scene.fired(due)
    return scene


def all_of(stored: dict[str, list[list[Told]]], number: int) -> dict[str, list[Told]]:
    """Return what each side stored for one case."""
    return {version: targets[number] for version, targets in stored.items()}


def is_not_raised(wanted: list[Told], value: list[Told]) -> bool:
    """Return whether the only difference is that the server raised the TTL to that of its markers, and moved it."""
    bare = [re.sub(rb"Nats-TTL: \d[^\r]*\r\n", b"", blocks[-1][0]) for blocks in (wanted, value) if blocks]
    return len(bare) == 2 and bare[0] == bare[1] and b"Nats-TTL: 3600\r\n" in wanted[-1][0]


def is_not_lent(wanted: list[Told], value: list[Told]) -> bool:
    """Return whether the only difference is what a message that is published may not carry."""
    bare = [[(LENT.sub(b"", block), *rest) for block, *rest in blocks] for blocks in (wanted, value)]
    return bare[0] == bare[1]


LENT = re.compile(rb"Nats-(?:Trace|Batch)-[^\r]*\r\n")
NOT_LENT = Allowance("generated-strip", (V2_10, V2_11), is_not_lent)
NOT_LENT_PORTABLE = Allowance(
    "generated-strip", tuple(f"portable on {version}" for version in PORTABLE_VERSIONS), is_not_lent
)

# Only a server that knows the stream's `subject_delete_marker_ttl` raises a TTL to it.
NOT_RAISED = Allowance("delete-marker-ttl", (V2_10, f"portable on {V2_10}"), is_not_raised)


@pytest.mark.clause("delete-marker-ttl")
async def test_a_fire_stores_the_same_bytes(sides: list[ComparedSide]) -> None:
    base, due = fresh_name(), due_soon()
    scenes = await on_each(sides, lambda side: scene_on(side, base, FIXED, due))
    stored = {version: await scene.targets() for version, scene in scenes.items()}
    differences = Differences((NOT_RAISED, NOT_LENT))
    for number, case in enumerate(FIXED):
        differences.compare(case.name, all_of(stored, number))
    differences.check(at_least=len(FIXED))


@asynccontextmanager
async def portable_on(share: SharedServer, version: str, base: str) -> AsyncIterator[Scene]:
    """Serve plain streams for portable headers, on a server of any version."""
    server = await share(version)
    kinds = {kind: config for kind, config in STREAMS.items() if kind != "batched"}
    async with account_on(server.url) as account:
        scene = Scene(account, base, tuple(kinds), portable=True, ours=True, guarded=version != V2_10)
        names = tuple(map(scene.stream, kinds))
        async with sidecar_on(server.url, portable_streams=names) as running:
            for name, config in zip(names, kinds.values(), strict=True):
                await account.create(name, **PLAIN, **config)
                await running.ready(name)
            yield scene


@pytest.mark.clause("portable-headers")
async def test_a_portable_fire_stores_the_same_bytes_but_for_the_prefix(shared_server: SharedServer) -> None:
    cases = [case for case in FIXED if case.is_portable]
    base = fresh_name()
    async with AsyncExitStack() as stack:
        [side] = await stack.enter_async_context(sides_of(shared_server, (REFERENCE,)))
        scenes = {
            v: await stack.enter_async_context(portable_on(shared_server, v, f"{base}p")) for v in PORTABLE_VERSIONS
        }
        due = due_soon()
        native, *_ = await asyncio.gather(
            scene_on(side, f"{base}n", cases, due), *(play(scene, cases, due) for scene in scenes.values())
        )
        stored = {f"portable on {version}": await scene.targets() for version, scene in scenes.items()}
        stored[REFERENCE] = await native.targets()
    differences = Differences((NOT_RAISED, NOT_LENT_PORTABLE))
    for number, case in enumerate(cases):
        differences.compare(case.name, all_of(stored, number))
    differences.check(at_least=len(cases))


@pytest.mark.clause("payload-limit", "fire-refused")
async def test_a_fire_of_ours_needs_room_for_its_identity_and_guard(sides: list[ComparedSide]) -> None:
    name = fresh_name()

    async def fired(side: ComparedSide) -> str:
        await side.create(name)
        block = block_to_send({"Nats-Schedule": f"@at {in_seconds(0.5)}", "Nats-Schedule-Target": f"{name}.o"})
        largest = side.account.connection.server.max_payload - len(block)
        await side.account.publish_block(f"{name}.full", block, bytes(largest))
        await side.account.publish_block(f"{name}.roomy", block, bytes(largest - ROOM))
        stored = await side.account.wait_for(name, f"{name}.o", 2 if side.sidecar is None else 1)
        if side.sidecar is not None:
            refused = partial(side.sidecar.of, name, FireRefused)
            [report, *_] = await eventually(refused, describe="a refusal")
            return f"{len(stored)} stored, one refused with {report.code}"
        return f"{len(stored)} stored"

    told = await on_each(sides, fired)
    ours = "1 stored, one refused with 10054"
    assert told == {V2_15: "2 stored", V2_14: "2 stored", V2_11: ours, V2_10: ours}
