"""Begin the engine of a stream with a snapshot, and keep the next, so that a start need not read what was read.

The rules:

- It is written in the background, rarely, and in moments in which nothing is due. One instance writes it: the owner of
  the stream.
- Its manifest is written last, in place of the one that was there when it was begun. So a reader finds all of a
  snapshot or none of it, and of two writers one.
- An engine begins with a snapshot at its first contact or never; what happens then is as without one.
- A witness that shows that the stream did not go back is renewed while the engine goes on, since messages do not stay
  for ever.
- A manifest of a format that we do not know is not replaced. Nothing depends on snapshots: a refusal is reported once.
- After a start with a snapshot it is looked up once which schedules of it are not stored any more.

Cost: 1.5 µs for each far schedule and 8 for each of the others, spread over some seconds; one request for each chunk.
"""

import asyncio
import hashlib
import json
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

from nats_scheduler.engine.inputs import MessagesRead
from nats_scheduler.engine.snapshots.chunks import SnapshotError, UnkeepableError, read_rest
from nats_scheduler.engine.snapshots.snapshots import Restoring, Taking
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.errors import ConnectionLostError, JetStreamError, NotPermittedError
from nats_scheduler.jetstream.task_group import TaskGroup
from nats_scheduler.message.foreign_json import inner, integer, read_object
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.continuity import DIGEST_BYTES, reaches
from nats_scheduler.runtime.driver import Load, StreamDriver
from nats_scheduler.runtime.port import SnapshotBucket, StreamContents
from nats_scheduler.schedule.instants import SECOND

# Begin to serve a stream with a snapshot, if there is one that fits.
#
# The rules:
#
# - Nothing is believed that does not fit: it has to be of this stream, of this creation of it, and of an engine that
#   was built as ours is. The stream has to have what the snapshot is of, and a message that shows that it did not go
#   back.
# - All of it is read and checked before the engine gets any of it. Whatever is wrong, the stream is read from its
#   beginning, as without a snapshot.
# - Nothing waits long for it: without an answer for `STEP_LIMIT_SECONDS` it is given up.
#
# Cost: a request for each chunk, some of them at a time; the schedules are taken in units of a fraction of a
# millisecond, between which the event loop goes on.

# The manifest of a snapshot, and its witnesses, as they are kept in the bucket of snapshots.
#
# The rule: a value that no sidecar can have written is `None` here, and counts as no snapshot.


class Witness(NamedTuple):
    """A message that was stored when a snapshot was taken, or later: if it still is, the stream did not go back."""

    sequence: int
    stored_at: int
    """Nanoseconds since the Unix epoch."""
    digest: str
    """Of its subject, headers and body."""


class Manifest(BaseModel):
    """The manifest of a snapshot: what it is of, and what its chunks are."""

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
    """The number of chunks: the first one is `engine.snapshots.chunks`, the others have the schedules."""
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
    first, witness = await _witness(bucket, api, stream, mode, manifest)
    prefix = snapshot_key("chunk", stream, mode, manifest.generation)
    async with aclosing(_chunks(bucket, prefix, manifest)) as chunks:
        rest = read_rest(read_object(await anext(chunks)) or {})
        if rest.through != manifest.through:
            raise SnapshotError("its parts are known through different sequences")
        restoring = engine.snapshots.begin_restoring(rest, manifest.schedules, now, first)
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
) -> tuple[int, StoredMessage]:
    """Return the first sequence of a stream, and the message that shows that it has what a snapshot is of.

    Raises `SnapshotError` if none does.
    """
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
        return state.first_sequence, found
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


SNAPSHOT_CHECK_INTERVAL_SECONDS = 5.0
"""The interval at which it is checked whether a snapshot, or a witness, is to be written."""

FIRST_CHECK_SECONDS = 3.0
"""Wait after a stream is live before that is checked for the first time."""

LOAD_CHECK_SECONDS = 1.0
"""The arrivals of this time before the first check show whether the stream is being loaded."""

MIN_MESSAGES_AFTER = 20_000
"""A start reads this number of messages in a fraction of a second: a snapshot would save no more."""

MAX_SHARE_ARRIVING = 0.1
"""While more than this part of what a start would read has come since the last check, a snapshot waits."""

MANY_ARRIVING = 50_000
"""If more messages have come since the last check, 10,000 a second, the stream is being loaded.

A snapshot that was taken now would soon be of a part of it.
"""

MAX_SHARE_LOADING = 0.007
"""Then it waits while this part has come: what never ends delays it by a quarter of an hour."""

MAX_SHARE_AFTER = 0.1
"""A snapshot is written anew if the messages after it are more than this part of the schedules."""

MIN_PAUSE_NS = 15 * SECOND
"""Shortest time (ns) from one snapshot, or from the attempt to write one, to the next."""

PAUSE_FACTOR = 50
"""And so many times what the last one took of a core, some 75 s for 1,000,000: 2 % of it at most.

The first one waits for nothing: it takes a tenth of what a start without it takes.
"""

WITNESS_INTERVAL_NS = 30 * SECOND
"""Shortest time (ns) between two witnesses."""

MAX_WITNESSES = 8
"""The most messages that show that the stream did not go back: any of them that is still stored."""

UNIT_PAUSE_SECONDS = 0.001
"""Pause after each unit of work, which takes some 0.2 ms."""

QUIET_WAITS = 600
"""The most pauses in which a moment is awaited at which nothing is in flight."""

QUIET_WAIT_SECONDS = 0.05


def may_have_snapshot(last_sequence: int) -> bool:
    """Return whether there may be a snapshot of a stream that ended with a sequence a moment ago."""
    return last_sequence >= MIN_MESSAGES_AFTER // 2


def is_loading(arrived: int, tail: int) -> bool:
    """Return whether a snapshot waits because `arrived` of the `tail` messages came since the last check."""
    return arrived > (MAX_SHARE_LOADING if arrived > MANY_ARRIVING else MAX_SHARE_ARRIVING) * tail


@dataclass(frozen=True, slots=True)
class KeptSnapshots:
    """Where the snapshots of an account are kept, through one connection."""

    bucket: SnapshotBucket
    reports: Reporter
    are_used: bool = True
    """True if an engine may begin with one; new ones are kept in any case."""


class StreamSnapshots:
    """The snapshots of one served stream: its engine begins with one, if one fits, and keeps the next."""

    def __init__(
        self,
        driver: StreamDriver,
        stream: str,
        mode: str,
        basis: Callable[[], str],
        clock: Clock,
        is_ours: Callable[[], bool],
    ) -> None:
        """Use and keep none yet.

        `basis` returns the digest of what the engine depends on, `is_ours` whether this instance is the one that writes
        what it knows.
        """
        self._driver = driver
        self._engine = driver.engine
        self._stream, self._mode = stream, mode
        self._basis = basis
        self._clock = clock
        self._is_ours = is_ours
        self._is_first = True
        self._generation = ""
        """That of the snapshot that is there, if we wrote it or began with it."""
        self._through = 0
        """Up to which sequence that snapshot, or the last attempt at one, knew everything."""
        self._seen = 0
        """The sequence that was read last at the last check."""
        self._witnesses: list[Witness] = []
        """The last ones, the newest first."""
        self._cost = 0
        """How long (ns) the last attempt to write one worked."""
        self._not_before = self._witness_not_before = 0
        self._reported = ""

    # -- the beginning -------------------------------------------------------------------------------------------

    async def begin_with(self, kept: KeptSnapshots | None, api: StreamContents, last_sequence: int) -> bool:
        """Have the engine begin with a snapshot, if it has read nothing and one fits; returns whether it does.

        `last_sequence` is that of the stream: of a thousand streams most are too short to have one.
        """
        if not may_have_snapshot(last_sequence):
            return False
        engine, is_first, self._is_first = self._engine, self._is_first, False
        if kept is None or not kept.are_used or not is_first or engine.last_read or not engine.snapshots.is_possible:
            return False
        try:
            found = await self._read(kept.bucket, api)
        except NotPermittedError:
            return False  # the missing permission is reported, and the bucket may not even exist
        except (SnapshotError, JetStreamError, TimeoutError) as error:
            kept.reports.snapshot_ignored(self._stream, str(error) or "it is not answered for")
            return False
        if found is None:
            return False
        engine.snapshots.begin_with(found.restoring, self._clock.now())
        self._driver.receive(MessagesRead(found.messages))
        self._driver.witness = found.witness
        self._driver.step_if_due()
        self._generation, self._through = found.generation, found.restoring.rest.through
        kept.reports.snapshot_used(self._stream, len(engine.held), self._through)
        return True

    async def _read(self, bucket: SnapshotBucket, api: StreamContents) -> Snapshot | None:
        """Read a snapshot, and once more if another instance may have replaced it meanwhile."""
        engine, basis = self._engine, self._basis()
        try:
            return await read_snapshot(bucket, api, engine, self._stream, self._mode, basis, self._clock.now())
        except ChunkGoneError:
            return await read_snapshot(bucket, api, engine, self._stream, self._mode, basis, self._clock.now())

    # -- when one is kept ----------------------------------------------------------------------------------------

    async def keep(self, kept: KeptSnapshots | None, api: StreamContents) -> None:
        """Keep a snapshot, until cancelled."""
        if kept is None or not self._engine.snapshots.is_possible:
            return
        await asyncio.sleep(FIRST_CHECK_SECONDS)
        self._seen = self._engine.last_read
        await asyncio.sleep(LOAD_CHECK_SECONDS)
        while True:
            if self._engine.is_live:
                try:
                    await self._check(kept.bucket, api, kept.reports)
                except ConnectionLostError:
                    return
                except (JetStreamError, UnkeepableError) as error:
                    self._failed(error, kept.reports)
            await asyncio.sleep(SNAPSHOT_CHECK_INTERVAL_SECONDS)

    def _failed(self, error: Exception, reports: Reporter) -> None:
        """Report why no snapshot was written, unless that was reported; each attempt uses keys of its own."""
        reason = known = str(error)
        if isinstance(error, NotPermittedError):
            known = error.permission.subject
        if known != self._reported:
            self._reported = known
            reports.snapshot_not_kept(self._stream, reason)

    async def _check(self, bucket: SnapshotBucket, api: StreamContents, reports: Reporter) -> None:
        now = self._clock.monotonic()
        if not self._is_ours() or now < self._not_before:
            return
        if await self._is_due(api):
            self._cost = 0
            try:
                await self._write(bucket, api, reports)
            finally:
                self._not_before = self._clock.monotonic() + max(MIN_PAUSE_NS, PAUSE_FACTOR * self._cost)
        elif self._generation and now >= self._witness_not_before and self._engine.last_read > self._last_witness:
            await self._renew_witness(bucket, api)

    # -- writing -------------------------------------------------------------------------------------------------

    async def _is_due(self, api: StreamContents) -> bool:
        """Return whether a start would read much that a new snapshot has; the server is asked if that may be."""
        enough = max(MIN_MESSAGES_AFTER, int(MAX_SHARE_AFTER * len(self._engine.held)))
        seen, self._seen = self._seen, self._engine.last_read
        tail = self._engine.last_read - self._through
        if tail < enough or is_loading(self._engine.last_read - seen, tail) or not self._engine.snapshots.is_possible:
            return False
        info = await api.stream(self._stream)
        is_due = integer(inner(inner(info).get("state")).get("messages"), enough) >= enough
        if not is_due:
            self._through = self._engine.last_read  # of these sequences only few messages are stored
        return is_due

    async def _write(self, bucket: SnapshotBucket, api: StreamContents, reports: Reporter) -> None:
        await bucket.open()
        key = snapshot_key("manifest", self._stream, self._mode)
        _manifest, revision = await bucket.revised(key)
        if not await self._is_quiet(lambda: self._engine.snapshots.may_begin):
            return
        taking = self._engine.snapshots.begin()
        generation = f"{taking.through:x}-{self._clock.now():x}"
        prefix = snapshot_key("chunk", self._stream, self._mode, generation)
        digests, first = await self._write_chunks(bucket, prefix, taking)
        if not await self._is_quiet(lambda: self._engine.snapshots.may_end):
            return
        rest, end = taking.rest(), self._engine.last_read
        packed = packed_chunk(json.dumps(rest.document()).encode())
        first = min(await bucket.write_chunk(f"{prefix}.0", packed), first)
        witness = await self._last_message(api, end)
        if witness is None:
            return
        manifest = Manifest(
            basis=self._basis(),
            generation=generation,
            through=taking.through,
            end=end,
            schedules=taking.count,
            witness=witness,
            chunks=1 + len(digests),
            digest=digest_of_all([digest_of(packed), *digests]),
        )
        if await bucket.swap(key, manifest.model_dump(mode="json"), revision) is None:
            return  # another instance wrote one meanwhile
        self._generation, self._through, self._witnesses = generation, taking.through, [witness]
        self._reported = ""
        reports.snapshot_written(self._stream, taking.count, taking.through)
        await bucket.purge_below(f"{snapshot_key('chunk', self._stream, self._mode)}.>", first)

    async def _write_chunks(self, bucket: SnapshotBucket, prefix: str, taking: Taking) -> tuple[list[str], int]:
        """Write the chunks of all schedules; returns their digests, and the lowest sequence under which one is."""
        digests: list[str] = []
        first = 1 << 62
        began = self._clock.monotonic()
        for chunk in taking.chunks():
            packed = None if chunk is None else packed_chunk(chunk)
            self._cost += self._clock.monotonic() - began
            if packed is not None:
                digests.append(digest_of(packed))
                first = min(await bucket.write_chunk(f"{prefix}.{len(digests)}", packed), first)
            await self._pause()
            began = self._clock.monotonic()
        return digests, first

    async def _pause(self) -> None:
        await asyncio.sleep(UNIT_PAUSE_SECONDS)
        await self._is_quiet(lambda: self._driver.has_spare_time)

    async def _is_quiet(self, is_so: Callable[[], bool]) -> bool:
        """Wait until something is so; False if it was not for too long."""
        for _ in range(QUIET_WAITS):
            if is_so():
                return True
            await asyncio.sleep(QUIET_WAIT_SECONDS)
        return False

    # -- witnesses -----------------------------------------------------------------------------------------------

    async def _last_message(self, api: StreamContents, sequence: int) -> Witness | None:
        """Return the message with a sequence as a witness; None if it is not stored any more."""
        message = await api.message(self._stream, seq=sequence)
        return None if message is None else witness_of(message)

    @property
    def _last_witness(self) -> int:
        return self._witnesses[0].sequence if self._witnesses else 0

    async def _renew_witness(self, bucket: SnapshotBucket, api: StreamContents) -> None:
        self._witness_not_before = self._clock.monotonic() + WITNESS_INTERVAL_NS
        witness = await self._last_message(api, self._engine.last_read)
        if witness is None:
            return
        key = snapshot_key("witness", self._stream, self._mode)
        _value, revision = await bucket.revised(key)
        witnesses = [witness, *self._witnesses][:MAX_WITNESSES]
        later = LaterWitnesses(generation=self._generation, witnesses=witnesses)
        if await bucket.swap(key, later.model_dump(mode="json"), revision) is not None:
            self._witnesses = witnesses
