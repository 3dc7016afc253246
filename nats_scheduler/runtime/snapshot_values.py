"""The manifest of a snapshot, and its witnesses, as they are kept in the bucket of snapshots.

The rule: a value that no sidecar can have written is `None` here, and counts as no snapshot.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.engine_basis import EngineBasis
from nats_scheduler.settings.sidecar import SidecarSettings
from nats_scheduler.version import VERSION

DIGEST_BYTES = 16


class Witness(NamedTuple):
    """A message that was stored when a snapshot was taken, or later: if it still is, the stream did not go back."""

    sequence: int
    stored_at: int
    """Nanoseconds since the Unix epoch."""
    digest: str
    """Of its subject, headers and body."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a snapshot is of, and what its chunks are."""

    basis: str
    """The digest of all that its engine depended on."""
    generation: str
    """The chunks have it in their keys."""
    through: int
    """Up to this sequence everything was read; what follows is to be read again."""
    end: int
    """The stream has to have everything up to this sequence."""
    schedules: int
    witness: Witness
    chunks: int
    """How many there are: the first one is `engine.snapshot_rest`, the others have the schedules."""
    digest: str
    """That of the digests of all chunks: those of ten million schedules would not fit into one value."""

    def document(self) -> dict[str, Any]:
        """Return it as the values of JSON."""
        return {
            "basis": self.basis,
            "generation": self.generation,
            "through": self.through,
            "end": self.end,
            "schedules": self.schedules,
            "witness": list(self.witness),
            "chunks": self.chunks,
            "digest": self.digest,
        }


def read_manifest(document: Mapping[str, Any]) -> Manifest | None:
    """Read what `Manifest.document` returned; None if it is something else."""
    texts = document.get("basis"), document.get("generation"), document.get("digest")
    numbers = document.get("through"), document.get("end"), document.get("schedules"), document.get("chunks")
    witness = read_witness(document.get("witness"))
    if witness is None:
        return None
    if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
        return None
    through, end, schedules, chunks = (int(number or 0) for number in numbers)
    if not 0 < through <= end or schedules < 0 or chunks <= 0:
        return None
    return Manifest(str(texts[0]), str(texts[1]), through, end, schedules, witness, chunks, str(texts[2]))


def read_witnesses(document: Mapping[str, Any] | None) -> list[Witness]:
    """Read the witnesses that were written after the manifest; none from what is something else."""
    told = (document or {}).get("witnesses")
    found = [read_witness(one) for one in told] if isinstance(told, list) else []
    return [witness for witness in found if witness is not None]


def read_witness(value: object) -> Witness | None:
    """Read a witness; None if it is none."""
    if not isinstance(value, list) or tuple(map(type, value)) != (int, int, str):
        return None
    return Witness(*value)


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
