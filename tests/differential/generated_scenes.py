"""Say the cases of `generated_cases` to one server and return what was stored in the end.

Its rule: everything is published in one order on one connection, so that sequences are equal on all sides; what is
returned is freed of our identity and guard, but only where they stand in their place and are right.
"""

import asyncio
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from nats_scheduler.jetstream.publish import MIN_LARGE_BYTES
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339
from tests.differential.generated_cases import STREAMS, Case, Stream
from tests.harness.account import CLOCK, WAIT_SECONDS, Account
from tests.harness.waiting import eventually

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
    in_time: bool = True
    """True if all was said before it was due."""
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
        self.in_time = CLOCK.now() < due

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

    async def fired(self) -> None:
        """Wait until no schedule is left: each has fired, or the comparison fails here."""

        async def none_left() -> bool:
            waiting = [await self._left(kind) for kind in self.kinds]
            assert not any(waiting), f"on {self.account.connection.server.version}: {waiting}"
            return True

        await eventually(none_left, within_seconds=2 * WAIT_SECONDS, describe=f"every case on {self.base} has fired")

    async def _left(self, kind: Stream) -> list[str]:
        """Return the names of the cases whose schedules are still there."""
        name = self.stream(kind)
        left = [subject async for subject in self.account.api.subjects(name, f"{name}.s.*")]
        return [self.schedules[int(subject.rsplit(".", 1)[1])][0].name for subject in left]

    async def targets(self) -> list[list[Told]]:
        """Return what lies on each target."""
        return await asyncio.gather(*(self._target(number) for number in range(len(self.schedules))))

    async def order(self, due: int) -> list[int]:
        """Return which cases of the plain stream fired, in this order, of those due at an instant.

        Without those with a source or a large body.
        """
        name = self.stream("plain")
        fires = await self.account.messages(name, f"{name}.o.*")
        fired = [int(fire.subject.rsplit(".", 1)[1]) for fire in fires if b"Nats-Scheduler" in fire.block]
        return [number for number in fired if self._is_plain(number, due)]

    def _is_plain(self, number: int, due: int) -> bool:
        case, _sequence, fire_time = self.schedules[number]
        return case.source is None and len(case.body) <= MIN_LARGE_BYTES and fire_time == due

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
