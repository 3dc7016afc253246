"""Shards: how the schedules of one stream are divided among instances.

The rule: the shard of a message follows from its subject alone, and is the same in every instance and every version.
The number of shards never changes either, because instances of two versions share one stream during an upgrade.
All work on a schedule goes by the shard of its subject: its fires, its purge, its place in the checkpoint.

Cost: a fraction of a microsecond. Limit: no more than 64 instances have work on one stream.
"""

import zlib

SHARDS = 64
"""The number of shards of a stream."""

ALL_SHARDS = frozenset(range(SHARDS))
"""The shards that a single instance holds."""

subject_hash = zlib.crc32
"""The hash of a subject, as UTF-8: its last bits are its shard."""


def shard_of(subject: str) -> int:
    """Return the shard of a subject."""
    return subject_hash(subject.encode("utf-8", "surrogateescape")) % SHARDS
