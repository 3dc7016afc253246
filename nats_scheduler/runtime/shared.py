"""The schedules whose fires the server refuses at the moment, shared with tools that read the bucket.

`nats-scheduler ls` reads the streams itself, and no stream shows that a fire was refused. So each instance shares, in
one value of the bucket (`runtime.shared`), the sequence of each schedule that fails, the server's code and
description, and since when.

The rules:

- Nothing is requested or written while nothing fails. While a schedule fails, what fails is collected every
  `SHARE_INTERVAL_SECONDS`, and written if it has changed.
- An entry is bounded: of each stream those that fail longest are listed, the streams share the room, and the number of
  all others is given.
- An instance that ends removes its entry; a reader uses the entries of alive instances only.

Cost: some microseconds for each schedule that is listed, once a second while any fails; two requests a minute then.
Limit: what is shared is as old as `SHARE_INTERVAL_SECONDS` and the requests that write it.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from nats_scheduler.engine.events import Event
from nats_scheduler.engine.holding.flight import Failing
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.foreign_json import Object, count_of, inner, integer
from nats_scheduler.jetstream.registry import ENTRY_FORMATS, MAX_VALUE_BYTES, Registry, known_entries, marked
from nats_scheduler.message.rejection import MAX_KEPT_CHARS
from nats_scheduler.settings.sidecar import SidecarSettings

# One value of the registry's bucket in which each instance has an entry of its own, for tools that read it.
#
# The rules: an instance writes its own entry and no other, by compare-and-set. Entries of instances that are gone are
# removed by the next instance that writes. The size of an entry is limited by what the others leave. Each entry has
# the number of its own format (`jetstream.registry`): those of a newer version stay as they are. Cost: two requests if
# nothing has changed, three otherwise. Limit: the entry of a killed instance stays until another one writes; readers
# use those of alive instances only.

MAX_ENTRY_WRITE_ATTEMPTS = 8
"""How often a change is tried while others change the value."""

MAX_SHARED_HEADER_BYTES = 1_024
"""Room for the headers of the message."""

MAX_SHARED_BYTES = MAX_VALUE_BYTES - MAX_SHARED_HEADER_BYTES

ENTRY_FRAME_BYTES = 22
"""What JSON adds to an entry and its name: two quotes, a colon, a comma, their blanks, and the number of its format."""


class SharedBucket(Protocol):
    """What is asked of the bucket; see `jetstream.registry`."""

    async def revised(self, key: str) -> tuple[Object | None, int]:
        """Return the last value and its revision, 0 if there is none."""
        ...

    async def keys(self, under: str) -> list[str]:
        """Return the keys that begin with `under.`, without this prefix."""
        ...

    async def swap(self, key: str, value: Object, revision: int) -> int | None:
        """Write a value in place of the one with this revision; None if another one is there by now."""
        ...


async def write_entry(
    bucket: SharedBucket, key: str, instance: str, entry_within: Callable[[int], Object | None]
) -> bool:
    """Write the entry of an instance, and return whether the value holds it now.

    `entry_within` returns the entry for so many bytes of room, None to have none.
    Raises `JetStreamError` if the bucket does not answer, or refuses.
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


FAILING = "failing"
"""The key."""

SHARE_INTERVAL_SECONDS = 1.0
"""The time between two collections of what fails."""

ENTRY_CHECK_INTERVAL_SECONDS = 60.0
"""How often it is checked whether an unchanged entry is still there: the bucket may have been deleted."""

MAX_ENTRY_BYTES = 15 * 1024
"""Room of one entry: four full ones fit into the value."""

ENTRY_REMOVAL_LIMIT_SECONDS = 1.5
"""Longest wait at the end for our entry to be removed."""

FRAME_BYTES = 64
"""Bytes of an entry besides its streams: two names, and a number."""

STREAM_BYTES = 64
"""Bytes of a stream besides its name and reasons: two names, a number, brackets."""

REASON_BYTES = 96
"""Bytes of a reason besides its description: three names, the code, brackets."""

ROW_BYTES = 48
"""Bytes of a schedule: two numbers of 20 digits at most, a bracket on each side, commas and blanks."""

UNKNOWN: Object = {}
"""Stands for an entry of which it is not known whether it is stored; no entry is empty."""


class FailingStream(Protocol):
    """What a stream's service is asked here; see `runtime.stream_service`."""

    @property
    def failing_count(self) -> int:
        """How many schedules have a fire that the server refuses at the moment."""
        ...

    def failing(self, most: int) -> Sequence[tuple[int, Failing]]:
        """Return at most so many of them by sequence, those that fail longest first, and why."""
        ...


@dataclass(frozen=True, slots=True)
class Failures:
    """What the instances share: the schedules that fail by stream (`<mode>.<name>`) and sequence, and how many more."""

    schedules: Mapping[str, Mapping[int, Failing]] = field(default_factory=dict)
    more: Mapping[str, int] = field(default_factory=dict)
    """Schedules that fail and are not listed, by stream."""
    elsewhere: int = 0
    """Schedules that fail on streams that are not listed."""


class SharedFailures:
    """The entry of this instance."""

    def __init__(self, instance: str, streams: Callable[[], Mapping[str, FailingStream]]) -> None:
        """Share what fails on `streams`, which returns them by `<mode>.<name>`."""
        self._instance = instance
        self._streams = streams
        self._refused = asyncio.Event()
        """Set while there may be something to write."""
        self._stored: Object | None = None
        self._is_leaving = False

    def refused(self, _stream: str, _event: Event) -> None:
        """Receive the refusal of a fire, which may be the first one."""
        self._refused.set()

    async def keep_sharing(self, bucket: SharedBucket) -> None:
        """Keep what fails in the bucket, until cancelled."""
        now, checked_at = asyncio.get_running_loop().time, -math.inf
        self._refused.set()  # the connection before may have been lost during a write
        while True:
            await self._refused.wait()
            self._refused.clear()
            entry = self._entry(MAX_ENTRY_BYTES)
            if entry != self._stored or (entry is not None and now() - checked_at >= ENTRY_CHECK_INTERVAL_SECONDS):
                await self._write(bucket, entry)
                checked_at = now()
            if entry is not None or self._stored is not None:
                self._refused.set()
            await asyncio.sleep(SHARE_INTERVAL_SECONDS)

    async def remove(self, bucket: SharedBucket) -> None:
        """Remove the entry, at the end."""
        self._is_leaving = True
        with suppress(TimeoutError):
            async with asyncio.timeout(ENTRY_REMOVAL_LIMIT_SECONDS):
                if self._stored is not None:
                    await self._write(bucket, None)

    async def _write(self, bucket: SharedBucket, entry: Object | None) -> None:
        def within(room: int) -> Object | None:
            if entry is None or self._is_leaving:
                return None
            return entry if len(json.dumps(entry)) <= room else self._entry(room)

        self._stored = UNKNOWN
        with suppress(JetStreamError):
            if await write_entry(bucket, FAILING, self._instance, within):
                self._stored = entry

    def _entry(self, room: int) -> Object | None:
        return None if self._is_leaving else failing_entry(self._streams(), min(room, MAX_ENTRY_BYTES))


def failing_entry(streams: Mapping[str, FailingStream], room: int) -> Object | None:
    """Return what is shared of the streams, in so many bytes as JSON; None if nothing fails."""
    failing = sorted(
        ((stream.failing_count, key, stream) for key, stream in streams.items() if stream.failing_count),
        key=lambda each: each[:2],
    )
    if not failing:
        return None
    room -= FRAME_BYTES
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


def _reasons(stream: FailingStream, room: int) -> list[dict[str, Any]]:
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


# The settings of this instance that decide what is served and rejected, shared with tools that read the bucket.
#
# `nats-scheduler ls` reads the streams itself. Which of them are served, and which schedules are rejected, depends on
# settings that only the sidecar has, so each instance shares them in one value of the bucket
# (`runtime.shared`).
#
# The rules: only settings with an effect on that are shared, and no secrets. Nothing waits for the write, and a write
# that failed is tried again. An instance that ends removes its own entry.
# Cost: two requests each `SETTINGS_CHECK_INTERVAL_SECONDS`.
# Limit: settings that do not fit into the value are replaced by a note that says so.

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
"""The settings on which it depends what is served, and what is rejected."""

TOO_LARGE = "too_large"

SETTINGS_CHECK_INTERVAL_SECONDS = 60.0
"""How often it is checked whether the entry is still there: the bucket may have been deleted."""


def shared_settings(settings: SidecarSettings, room: int = MAX_SHARED_BYTES) -> dict[str, Any]:
    """Return the settings that are shared, as JSON holds them, or a note if `room` bytes are too few."""
    document = settings.model_dump(mode="json", include=set(SHARED_SETTINGS))
    shared = {name: list(document[name]) for name in SHARED_SETTINGS}
    return shared if len(json.dumps(shared)) <= room else {TOO_LARGE: True}


async def keep_sharing_settings(registry: Registry, instance: str, settings: SidecarSettings) -> None:
    """Keep the settings of this instance in the bucket, until cancelled."""
    while True:
        with suppress(JetStreamError):
            await write_entry(registry, SETTINGS, instance, partial(shared_settings, settings))
        await asyncio.sleep(SETTINGS_CHECK_INTERVAL_SECONDS)


async def remove_settings(registry: Registry, instance: str) -> None:
    """Remove the settings of this instance."""
    with suppress(JetStreamError):
        await write_entry(registry, SETTINGS, instance, _nothing)


def _nothing(_room: int) -> Object | None:
    return None
