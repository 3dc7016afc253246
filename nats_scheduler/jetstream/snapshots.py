"""The bucket of snapshots: what sidecars keep of far schedules, so that a start need not read all of a stream.

It is a key-value bucket beside the registry, `<registry bucket>_snapshots`. Each stream has a manifest, a witness, and
chunks of bytes, which belong to one generation:

    manifest.<stream>.<mode>                          what the snapshot is of, and the digests of its chunks
    witness.<stream>.<mode>                           messages that show that the stream did not go back
    chunk.<stream>.<mode>.<generation>.<number>       bytes

The rule: any client of the account may write here, and nothing here is needed. What does not fit is not used
(`runtime.snapshot_reading`).
Cost: one request for each chunk.
"""

from collections.abc import Mapping
from typing import Any

from nats_scheduler.jetstream.api import raise_refusal
from nats_scheduler.jetstream.foreign_json import integer, read_object
from nats_scheduler.jetstream.registry import Registry

MAX_CHUNK_BYTES = 512 * 1024
"""The longest value of the bucket."""

SNAPSHOT_FORMATS: Mapping[str, int] = {"manifest": 1, "witness": 1}
"""The formats of the values that are JSON."""


class SnapshotsBucket(Registry):
    """The bucket; JSON as in the registry, and chunks of bytes."""

    formats: Mapping[str, int] = SNAPSHOT_FORMATS

    async def chunk(self, key: str) -> bytes | None:
        """Return the bytes under a key, None if there are none. Raises `JetStreamError`."""
        message = await self._last(key)
        return None if message is None else message.body

    async def write_chunk(self, key: str, chunk: bytes) -> int:
        """Write bytes under a key and return the sequence under which they are stored. Raises `JetStreamError`."""
        reply = await self._connection.request(f"{self.written_to}.{key}", chunk)
        answer = read_object(reply.body) or {}
        raise_refusal(answer, f"write {key}")
        return integer(answer.get("seq"))

    async def purge_below(self, keys: str, sequence: int) -> None:
        """Purge what is stored under matching keys below a sequence.

        As the server does: a purge below the first sequence has no bound, and would purge all of them
        (`test_the_first_snapshot_of_a_bucket_is_not_purged`).
        """
        if sequence <= 1:
            return
        request = {"filter": f"{self._subject}.{keys}", "seq": sequence}
        await self._api.call(f"STREAM.PURGE.{self.stream}", request)

    def _config(self) -> dict[str, Any]:
        return {
            **super()._config(),
            "description": "nats-scheduler: snapshots of far schedules; they may be deleted at any time",
            "max_msg_size": MAX_CHUNK_BYTES,
        }


def snapshots_bucket_of(registry_bucket: str) -> str:
    """Return the name of the bucket of snapshots beside a registry's bucket."""
    return f"{registry_bucket}_snapshots"
