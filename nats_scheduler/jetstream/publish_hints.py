"""Publishes that were received and have to be looked up: a limited number, each until it is found stored or not stored.

A hint is a subject, and a fingerprint of what was published there last; bodies are not kept.
Waiting hints on one subject become one: only the last message on a subject counts.

The rule: no hint is lost silently. If there are too many, all of them are dropped and `overflowed` is set; then
everything that was stored meanwhile has to be read.
A hint whose look-up failed is kept, and looked up again when `look_up` is called again.
`task_group.in_turn` cannot look them up, because hints come and are combined while they wait.

Cost: an object a subject. Limit: `MAX_WAITING_HINTS` of them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nats_scheduler.jetstream.task_group import TaskGroup

MAX_WAITING_HINTS = 4_096
"""Subjects that may wait for their look-up, besides those that are looked up; 0.1 s of work."""

MAX_HINT_LOOKUPS_IN_FLIGHT = 256
"""Look-ups in flight at once."""


@dataclass(slots=True, eq=False)
class Hint:
    """One subject on which something was published."""

    subject: str
    fingerprint: int
    """Of the last publish that was received; see `fingerprint_of`."""
    number: int
    """Of the first publish that it stands for, in the order of their arrival."""
    covers_others: bool = False
    """True if it stands for earlier publishes too, which may be stored before the last one."""


ADDED_TO_SCHEDULES = b"Nats-Rollup: sub\r\n\r\n"
"""The end of the headers of a schedule, if a server that fires by itself has stored it."""


def fingerprint_of(block: bytes, body: bytes | None) -> int:
    """Return a number by which a publish is recognised when it is found stored."""
    return hash((block.replace(ADDED_TO_SCHEDULES, b"\r\n"), body or b""))


class Hints:
    """The hints of one stream."""

    def __init__(self, resolve: Callable[[Hint], Awaitable[None]]) -> None:
        """Begin with none; `resolve` looks one up, and raises `SchedulerError` if that cannot be done."""
        self._resolve = resolve
        self._waiting: dict[str, Hint] = {}
        self._in_progress: set[Hint] = set()
        self._changed = asyncio.Event()
        self._one_resolved = asyncio.Event()
        self._number = 0
        self.overflowed = asyncio.Event()
        """Set when hints were dropped; the owner clears it when it begins to read what is stored."""

    def add(self, subject: str, fingerprint: int) -> None:
        """Note that something was published on a subject."""
        self._number += 1
        known = self._waiting.get(subject)
        if known is not None:
            known.fingerprint, known.covers_others = fingerprint, True
            return
        if len(self._waiting) >= MAX_WAITING_HINTS:
            self._waiting.clear()
            self.overflowed.set()
            self._one_resolved.set()
            return
        self._waiting[subject] = Hint(subject, fingerprint, self._number)
        self._changed.set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in_progress)

    async def look_up(self) -> None:
        """Look up all hints, the later ones too; ends by cancellation, or with the error of a failed look-up."""
        async with TaskGroup() as tasks:
            while True:
                while self._waiting and len(self._in_progress) < MAX_HINT_LOOKUPS_IN_FLIGHT:
                    hint = self._waiting.pop(next(iter(self._waiting)))
                    self._in_progress.add(hint)
                    tasks.create_task(self._look_up(hint))
                self._changed.clear()
                await self._changed.wait()

    async def resolved(self) -> None:
        """Wait until every hint up to now is resolved; what is dropped meanwhile counts as resolved."""
        number = self._number
        while any(hint.number <= number for hint in (*self._in_progress, *self._waiting.values())):
            self._one_resolved.clear()
            await self._one_resolved.wait()

    async def _look_up(self, hint: Hint) -> None:
        is_resolved = False
        try:
            await self._resolve(hint)
            is_resolved = True
        finally:
            self._in_progress.discard(hint)
            self._changed.set()
            self._one_resolved.set()
            if not is_resolved:
                self._keep(hint)

    def _keep(self, hint: Hint) -> None:
        """Put a hint back, combined with what was published on its subject since."""
        later = self._waiting.pop(hint.subject, None)
        if later is not None:
            hint.fingerprint, hint.covers_others = later.fingerprint, True
        self._waiting[hint.subject] = hint
