"""Begin to serve a stream with a snapshot, if there is one that fits.

The rules:

- Nothing is believed that does not fit: it has to be of this stream, of this creation of it, and of an engine that was
  built as ours is. The stream has to have what the snapshot is of, and a message that shows that it did not go back.
- All of it is read and checked before the engine gets any of it. Whatever is wrong, the stream is read from its
  beginning, as without a snapshot.
- Nothing waits long for it: without an answer for `STEP_LIMIT_SECONDS` it is given up.

Cost: a request for each chunk, some of them at a time; the schedules are taken in units of a fraction of a millisecond,
between which the event loop goes on.
"""

import asyncio
import json
import zlib
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from nats_scheduler.engine.inputs import MessagesRead, SnapshotRestored
from nats_scheduler.engine.restoring import Restoring
from nats_scheduler.engine.snapshot_chunks import SnapshotError
from nats_scheduler.engine.snapshot_rest import read_rest
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.foreign_json import read_object
from nats_scheduler.jetstream.task_group import TaskGroup
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.continuity import reaches
from nats_scheduler.runtime.garbage import Load
from nats_scheduler.runtime.port import SnapshotBucket, StreamContents
from nats_scheduler.runtime.snapshot_values import (
    Manifest,
    digest_of,
    digest_of_all,
    read_manifest,
    read_witnesses,
    snapshot_key,
    witness_of,
)

STEP_LIMIT_SECONDS = 1.0
"""Longest wait for one answer: *Live* leaves 3 s."""

MAX_REQUESTS_AT_ONCE = 16
"""Chunks and messages that are requested at a time."""

MAX_UNPACKED_BYTES = 1 << 20
"""No chunk has more bytes: what has would only take room."""

T = TypeVar("T")


class ChunkGoneError(SnapshotError):
    """A chunk is not what it has to be: the snapshot is damaged, or another instance has just written a newer one."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that fits."""

    generation: str
    restoring: Restoring
    messages: Sequence[StoredMessage]
    """Messages that are to be taken after it."""
    witness: StoredMessage
    """The message that shows that the stream did not go back."""

    @property
    def inputs(self) -> tuple[SnapshotRestored, MessagesRead]:
        """What the engine is to get."""
        return SnapshotRestored(self.restoring), MessagesRead(self.messages)


async def read_snapshot(
    bucket: SnapshotBucket, api: StreamContents, engine: StreamEngine, stream: str, mode: str, basis: str, now: int
) -> Snapshot | None:
    """Return the snapshot with which an engine that has read nothing may begin, None if there is none.

    `now` is the time in ns. Raises `SnapshotError` if there is one that does not fit, `JetStreamError` or
    `TimeoutError` if it cannot be read.
    """
    document, _revision = await _soon(bucket.revised(snapshot_key("manifest", stream, mode)))
    if document is None:
        return None
    manifest = read_manifest(document)
    if manifest is None:
        raise SnapshotError("its manifest is none")
    if manifest.basis != basis:
        raise SnapshotError(
            "it is of another stream, other settings, another server version or another program version"
        )
    witness = await _witness(bucket, api, stream, mode, manifest)
    prefix = snapshot_key("chunk", stream, mode, manifest.generation)
    async with aclosing(_chunks(bucket, prefix, manifest)) as chunks:
        rest = read_rest(read_object(await anext(chunks)) or {})
        if rest.through != manifest.through:
            raise SnapshotError("its parts are known through different sequences")
        restoring = engine.snapshots.begin_restoring(rest, manifest.schedules, now)
        load = Load()
        async for chunk in chunks:
            await _in_units(restoring.take(chunk))
            load.grew_to(restoring.objects)
    await _in_units(restoring.finish())
    messages: list[StoredMessage] = []
    for first in range(0, len(rest.to_read), MAX_REQUESTS_AT_ONCE):
        sequences = rest.to_read[first : first + MAX_REQUESTS_AT_ONCE]
        found = await _all([api.message(stream, seq=sequence) for sequence in sequences])
        messages += [message._replace(body=None) for message in found if message is not None]
    return Snapshot(manifest.generation, restoring, messages, witness)


async def _witness(
    bucket: SnapshotBucket, api: StreamContents, stream: str, mode: str, manifest: Manifest
) -> StoredMessage:
    """Return the message that shows that the stream has what a snapshot is of; raises `SnapshotError` if none does."""
    state = await _soon(reaches(api, stream, manifest.end))
    if state is None or state.last_sequence < manifest.end:
        raise SnapshotError(f"the stream ends before sequence {manifest.end}")
    later, _revision = await _soon(bucket.revised(snapshot_key("witness", stream, mode)))
    is_of_it = later is not None and later.get("generation") == manifest.generation
    known = [*read_witnesses(later if is_of_it else None), manifest.witness]
    for witness in known:
        if witness.sequence < manifest.end:
            continue
        found = await _soon(api.message(stream, seq=witness.sequence))
        if found is None:
            continue
        if witness_of(found) != witness:
            raise SnapshotError(f"another message than before has sequence {witness.sequence}: the stream went back")
        return found
    raise SnapshotError("none of the messages that would show that the stream did not go back is stored any more")


async def _chunks(bucket: SnapshotBucket, prefix: str, manifest: Manifest) -> AsyncGenerator[bytes, None]:
    """Yield the chunks in their order, and check at the end that they are those of the manifest.

    The server reads the next ones while the last ones are taken. Raises `SnapshotError` if one is not what it has to
    be; what was yielded before is not to be used then.
    """
    digests: list[str] = []

    async def ask(first: int) -> list[bytes | None]:
        wanted = range(first, min(first + MAX_REQUESTS_AT_ONCE, manifest.chunks))
        return await _all([bucket.chunk(f"{prefix}.{number}") for number in wanted])

    coming = asyncio.create_task(ask(0))
    try:
        while len(digests) < manifest.chunks:
            found = await coming
            coming = asyncio.create_task(ask(len(digests) + len(found)))
            for chunk in found:
                if chunk is None:
                    raise ChunkGoneError(f"its chunk {len(digests)} is gone")
                digests.append(digest_of(chunk))
                yield _unpacked(chunk)
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
    if digest_of_all(digests) != manifest.digest:
        raise ChunkGoneError("its chunks are not those that were written with it")


def packed_chunk(chunk: bytes) -> bytes:
    """Return a chunk as it is stored."""
    return zlib.compress(chunk, level=1)


def packed_rest(document: dict[str, object]) -> bytes:
    """Return what belongs to the schedules as it is stored."""
    return packed_chunk(json.dumps(document).encode())


def _unpacked(packed: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        chunk = unpacker.decompress(packed, MAX_UNPACKED_BYTES)
    except zlib.error as error:
        raise SnapshotError(f"a chunk cannot be unpacked: {error}") from None
    if not unpacker.eof:
        raise SnapshotError("a chunk is too long, or ends too early")
    return chunk


async def _in_units(work: Iterator[None]) -> None:
    for _unit in work:
        await asyncio.sleep(0)


async def _all(requests: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the answers to requests that are made at once; raises as the first that fails."""
    async with TaskGroup() as tasks:
        asked = [tasks.create_task(_settled(request)) for request in requests]
    answers = [one.result() for one in asked]
    for answer in answers:
        if isinstance(answer, (JetStreamError, TimeoutError)):
            raise answer
    return [answer for answer in answers if not isinstance(answer, (JetStreamError, TimeoutError))]


async def _settled(request: Awaitable[T]) -> T | JetStreamError | TimeoutError:
    try:
        return await _soon(request)
    except (JetStreamError, TimeoutError) as error:
        return error


async def _soon(answer: Awaitable[T]) -> T:
    async with asyncio.timeout(STEP_LIMIT_SECONDS):
        return await answer
