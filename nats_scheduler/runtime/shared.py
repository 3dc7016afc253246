"""The values that instances share with tools that read the bucket: which fires the server refuses, and settings.

`nats-scheduler ls` reads the streams itself, and no stream shows that a fire was refused, or which of its schedules a
sidecar's settings reject. So each instance has an entry of its own in two values of the registry's bucket: `failing`,
with the sequence of each schedule that fails, the server's code and description, and since when; and `settings`, with
those that decide what is served and rejected.

The rules:

- An instance writes its own entry and no other, by compare-and-set, and removes it when it ends. Entries of instances
  that are gone are removed by the next instance that writes; a reader uses those of alive instances only.
- The size of an entry is limited by what the others leave. Of each stream those schedules that fail longest are listed,
  the streams share the room, and the number of all others is given. Settings that do not fit are replaced by a note.
- Each entry has the number of its own format (`jetstream.value_formats`): those of a newer version stay as they are.
- Nothing is requested or written while nothing fails. No secrets are shared, and nothing waits for a write; one that
  failed is tried again.

Cost: two requests a minute for each entry that does not change, three to write one; some microseconds a second for each
schedule that is listed as failing.
Limit: what is shared is as old as `SHARE_INTERVAL_SECONDS` and the requests that write it.
"""

import asyncio
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.registry import MAX_VALUE_BYTES, Registry
from nats_scheduler.jetstream.value_formats import ENTRY_FORMATS, known_entries, marked
from nats_scheduler.message.foreign_json import Object, count_of, inner, integer
from nats_scheduler.message.rejection import MAX_KEPT_CHARS, Failing
from nats_scheduler.settings.sidecar_settings import SidecarSettings

MAX_ENTRY_WRITE_ATTEMPTS = 8
"""The most attempts at a change while others change the value."""

MAX_SHARED_HEADER_BYTES = 1_024
"""Room for the headers of the message."""

MAX_SHARED_BYTES = MAX_VALUE_BYTES - MAX_SHARED_HEADER_BYTES

ENTRY_FRAME_BYTES = 22
"""The bytes that JSON adds to an entry and its name: two quotes, a colon, a comma, their blanks, and the number of its
format."""


async def write_entry(bucket: Registry, key: str, instance: str, entry_within: Callable[[int], Object | None]) -> bool:
    """Write the entry of an instance, and return whether the value holds it now.

    `entry_within` returns the entry for a number of bytes of room, None to have none.
    Raises `SchedulerError` if the bucket does not answer, or refuses.
    """
    for _ in range(MAX_ENTRY_WRITE_ATTEMPTS):
        value, revision = await bucket.revised(key)
        before = value or {}
        alive = {instance, *await bucket.keys("instance")}
        after = {name: entry for name, entry in before.items() if name in alive and name != instance}
        room = MAX_SHARED_BYTES - len(json.dumps(after)) - len(instance) - ENTRY_FRAME_BYTES
        if (entry := entry_within(room)) is not None:
            after[instance] = marked(key, entry, ENTRY_FORMATS)
        if after == before or await bucket.swap(key, after, revision) is not None:
            return True
    return False


SHARE_INTERVAL_SECONDS = 1.0
"""The time between two collections of what fails."""

ENTRY_CHECK_INTERVAL_SECONDS = 60.0
"""The interval at which it is checked whether an unchanged entry is still there: the bucket may have been deleted."""

ENTRY_REMOVAL_LIMIT_SECONDS = 1.5
"""Longest wait at the end for our entry to be removed."""

UNKNOWN: Object = {}
"""Stands for an entry of which it is not known whether it is stored; no entry is empty."""


class SharedEntry:
    """The entry of this instance in one value of the bucket, over all connections."""

    def __init__(
        self, key: str, instance: str, entry_within: Callable[[int], Object | None], interval_seconds: float
    ) -> None:
        """Share nothing yet; `entry_within` returns the entry for a number of bytes of room, None to have none.

        After the entry was written, it is compared every `interval_seconds` while there is one; see `changed`.
        """
        self._key = key
        self._instance = instance
        self._entry_within = entry_within
        self._interval = interval_seconds
        self._changed = asyncio.Event()
        """Set while there may be something to write."""
        self._stored: Object | None = None
        self._is_leaving = False

    def changed(self, *_what: object) -> None:
        """Note that there may be an entry from now on."""
        self._changed.set()

    async def keep(self, bucket: Registry) -> None:
        """Keep the entry in the bucket, until cancelled."""
        now, checked_at = asyncio.get_running_loop().time, -math.inf
        self._changed.set()  # the connection before may have been lost during a write
        while True:
            await self._changed.wait()
            self._changed.clear()
            entry = self._entry(MAX_SHARED_BYTES)
            if entry != self._stored or (entry is not None and now() - checked_at >= ENTRY_CHECK_INTERVAL_SECONDS):
                await self._write(bucket, entry)
                checked_at = now()
            if entry is not None or self._stored is not None:
                self._changed.set()
            await asyncio.sleep(self._interval)

    async def remove(self, bucket: Registry) -> None:
        """Remove the entry, at the end."""
        self._is_leaving = True
        with suppress(TimeoutError):
            async with asyncio.timeout(ENTRY_REMOVAL_LIMIT_SECONDS):
                if self._stored is not None:
                    await self._write(bucket, None)

    async def _write(self, bucket: Registry, entry: Object | None) -> None:
        def within(room: int) -> Object | None:
            if entry is None or self._is_leaving:
                return None
            return entry if len(json.dumps(entry)) <= room else self._entry(room)

        self._stored = UNKNOWN
        with suppress(SchedulerError):
            if await write_entry(bucket, self._key, self._instance, within):
                self._stored = entry

    def _entry(self, room: int) -> Object | None:
        return None if self._is_leaving else self._entry_within(room)


# -- the schedules whose fires the server refuses at the moment -----------------------------------------------------

FAILING = "failing"
"""The key."""

MAX_ENTRY_BYTES = 15 * 1024
"""Room of one entry: four full ones fit into the value."""

FRAME_BYTES = 64
"""Bytes of an entry besides its streams: two names, and a number."""

STREAM_BYTES = 64
"""Bytes of a stream besides its name and reasons: two names, a number, brackets."""

REASON_BYTES = 96
"""Bytes of a reason besides its description: three names, the code, brackets."""

ROW_BYTES = 48
"""Bytes of a schedule: two numbers of 20 digits at most, a bracket on each side, commas and blanks."""


@dataclass(frozen=True, slots=True)
class Failures:
    """The shared failures: schedules that fail, by stream (`<mode>.<name>`) and sequence, and the number of others."""

    schedules: Mapping[str, Mapping[int, Failing]] = field(default_factory=dict)
    more: Mapping[str, int] = field(default_factory=dict)
    """Schedules that fail and are not listed, by stream."""
    elsewhere: int = 0
    """Schedules that fail on streams that are not listed."""


def shared_failures(instance: str, streams: Callable[[], Mapping[str, StreamEngine]]) -> SharedEntry:
    """Return what shares what fails on `streams`, which returns them by `<mode>.<name>`."""
    return SharedEntry(FAILING, instance, lambda room: failing_entry(streams(), room), SHARE_INTERVAL_SECONDS)


def failing_entry(streams: Mapping[str, StreamEngine], room: int) -> Object | None:
    """Return what is shared of the streams: up to `room` or `MAX_ENTRY_BYTES` bytes of JSON; None if nothing fails."""
    failing = sorted(
        ((stream.failing_count, key, stream) for key, stream in streams.items() if stream.failing_count),
        key=lambda each: each[:2],
    )
    if not failing:
        return None
    room = min(room, MAX_ENTRY_BYTES) - FRAME_BYTES
    listed: Object = {}
    elsewhere = 0
    for number, (count, key, stream) in enumerate(failing):
        share = room // (len(failing) - number) - STREAM_BYTES - len(json.dumps(key))
        reasons = _reasons(stream, share)
        if not reasons:
            elsewhere += count
            continue
        more = count - sum(len(reason["schedules"]) for reason in reasons)
        listed[key] = {"reasons": reasons, "more": more}
        room -= len(json.dumps({key: listed[key]}))
    return {"streams": listed, "more": elsewhere}


def _reasons(stream: StreamEngine, room: int) -> list[dict[str, Any]]:
    """Return the schedules of a stream by why they fail, as many as fit."""
    found: dict[tuple[int, str], list[list[int]]] = {}
    for sequence, why in stream.failing(max(room, 0) // ROW_BYTES):
        reason = why.code, why.description[:MAX_KEPT_CHARS]
        size = ROW_BYTES if reason in found else ROW_BYTES + REASON_BYTES + len(json.dumps(reason[1]))
        if size > room:
            break
        room -= size
        found.setdefault(reason, []).append([sequence, why.since])
    return [
        {"code": code, "description": description, "schedules": schedules}
        for (code, description), schedules in found.items()
    ]


def read_failures(value: Object | None, alive: Collection[str]) -> Failures:
    """Read the entries of alive instances from the value; what none of this version can have written is ignored.

    If two share the same schedule, the earlier time counts.
    """
    schedules: dict[str, dict[int, Failing]] = {}
    more: dict[str, int] = {}
    elsewhere = 0
    entries, _unknown = known_entries(FAILING, value or {})
    for entry in (inner(one) for name, one in entries.items() if name in alive):
        elsewhere += count_of(entry.get("more"))
        for key, stream in inner(entry.get("streams")).items():
            more[key] = more.get(key, 0) + count_of(inner(stream).get("more"))
            known = schedules.setdefault(key, {})
            for sequence, why in _rows(inner(stream).get("reasons")):
                if sequence not in known or why.since < known[sequence].since:
                    known[sequence] = why
    return Failures(schedules, more, elsewhere)


def _rows(reasons: object) -> Iterator[tuple[int, Failing]]:
    for reason in map(inner, reasons if isinstance(reasons, list) else ()):
        code, said, listed = integer(reason.get("code")), reason.get("description"), reason.get("schedules")
        description = said[:MAX_KEPT_CHARS] if isinstance(said, str) else ""
        for row in listed if isinstance(listed, list) else ():
            if isinstance(row, list) and len(row) == 2 and integer(row[0]) > 0 and integer(row[1]) > 0:
                yield row[0], Failing(code, description, row[1])


# -- the settings that decide what is served and rejected ------------------------------------------------------------

SETTINGS = "settings"
"""The key."""

SHARED_SETTINGS = (
    "portable_streams",
    "adopt_streams",
    "allowed_targets",
    "allowed_sources",
    "allowed_targets_elsewhere",
    "max_schedules",
)
"""The settings that are shared."""

TOO_LARGE = "too_large"


def shared_settings(settings: SidecarSettings, room: int = MAX_SHARED_BYTES) -> dict[str, Any]:
    """Return the settings that are shared, as JSON holds them, or a note if `room` bytes are too few."""
    document = settings.model_dump(mode="json", include=set(SHARED_SETTINGS))
    shared = {name: list(document[name]) for name in SHARED_SETTINGS}
    return shared if len(json.dumps(shared)) <= room else {TOO_LARGE: True}


def kept_settings(instance: str, settings: SidecarSettings) -> SharedEntry:
    """Return what shares the settings of an instance."""
    return SharedEntry(SETTINGS, instance, partial(shared_settings, settings), ENTRY_CHECK_INTERVAL_SECONDS)
