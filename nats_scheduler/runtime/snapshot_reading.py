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
import hashlib
import json
import zlib
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

from nats_scheduler.engine.snapshots.chunks import SnapshotError, read_rest
from nats_scheduler.engine.snapshots.snapshots import Restoring
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.task_group import TaskGroup
from nats_scheduler.message.foreign_json import read_object
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.continuity import EngineBasis, reaches
from nats_scheduler.runtime.driver import Load
from nats_scheduler.runtime.port import SnapshotBucket, StreamContents
from nats_scheduler.settings.sidecar import SidecarSettings
from nats_scheduler.version import VERSION

# The manifest of a snapshot, and its witnesses, as they are kept in the bucket of snapshots.
#
# The rule: a value that no sidecar can have written is `None` here, and counts as no snapshot.

DIGEST_BYTES = 16


class Witness(NamedTuple):
    """A message that was stored when a snapshot was taken, or later: if it still is, the stream did not go back."""

    sequence: int
    stored_at: int
    """Nanoseconds since the Unix epoch."""
    digest: str
    """Of its subject, headers and body."""


class Manifest(BaseModel):
    """What a snapshot is of, and what its chunks are."""

    model_config = ConfigDict(strict=True, frozen=True)

    basis: str
    """The digest of all that its engine depended on."""
    generation: str
    """The chunks have it in their keys."""
    through: PositiveInt
    """Up to this sequence everything was read; what follows is to be read again."""
    end: int
    """The stream has to have everything up to this sequence."""
    schedules: NonNegativeInt
    witness: Witness
    chunks: PositiveInt
    """How many there are: the first one is `engine.snapshots.chunks`, the others have the schedules."""
    digest: str
    """That of the digests of all chunks: those of ten million schedules would not fit into one value."""


class LaterWitnesses(BaseModel):
    """The witnesses that were written after a manifest."""

    model_config = ConfigDict(strict=True)

    generation: str = ""
    """That of the manifest."""
    witnesses: list[Witness] = []


def read_manifest(document: Mapping[str, Any]) -> Manifest | None:
    """Read a manifest; None if it is something else."""
    try:
        manifest = Manifest.model_validate(document)
    except ValidationError:
        return None
    return manifest if manifest.through <= manifest.end else None


def read_witnesses(document: Mapping[str, Any] | None) -> LaterWitnesses:
    """Read the witnesses that were written after the manifest; none from what is something else."""
    try:
        return LaterWitnesses.model_validate(document or {})
    except ValidationError:
        return LaterWitnesses()


def witness_of(message: StoredMessage) -> Witness:
    """Return a message, as it is stored, as a witness."""
    parts = message.subject.encode("utf-8", "surrogateescape"), message.block, message.body or b""
    return Witness(message.sequence, message.stored_at, digest_of(b"\0".join(parts)))


def digest_of(data: bytes) -> str:
    """Return the digest of bytes."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def digest_of_all(digests: Iterable[str]) -> str:
    """Return the digest of the digests of chunks, in the order of the chunks."""
    return digest_of("".join(digests).encode())


def basis_digest(basis: EngineBasis, settings: SidecarSettings) -> str:
    """Return the digest of all that the engine of a stream depends on, but for the data of time zones.

    Another version of the program may find other fire times. Each chunk has the digests of the zones that it names.
    """
    rules = basis.rules
    limits = rules.max_age, rules.evicts, rules.duplicate_window
    told = VERSION, basis, limits, settings.look_ahead, settings.restrictions_on(basis.name)
    return digest_of(repr(told).encode())


def snapshot_key(kind: str, stream: str, mode: str, *more: object) -> str:
    """Return the key of a manifest, a witness or a chunk of a stream."""
    return ".".join(map(str, (kind, stream, mode, *more)))


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
    document, _revision = await _soon(bucket.revised(snapshot_key("witness", stream, mode)))
    later = read_witnesses(document)
    known = [*(later.witnesses if later.generation == manifest.generation else ()), manifest.witness]
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
