"""What all consumers of ours have in common, whatever they are for.

Ephemeral, in memory, without acknowledgements, under a name that tells whose they are.
"""

import uuid

from nats_scheduler.jetstream.api import Config

INACTIVE_SECONDS = 30
"""The server removes a consumer after this long without a request."""

NANOSECONDS = 1_000_000_000

CLUSTER_SECONDS = 0.5
"""Wait for a consumer that a cluster may have placed on a node that has just died; a healthy one takes milliseconds."""


def consumer_name() -> str:
    """Return a name that no other consumer has."""
    return f"nats-scheduler-{uuid.uuid4().hex[:16]}"


def consumer_from(first: int, stream: Config) -> Config:
    """Return the configuration of a consumer that reads `stream`, whose configuration is given, from a sequence on."""
    return {
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": first,
        "ack_policy": "none",
        "replay_policy": "instant",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": _inactive_threshold(stream),
    }


def _inactive_threshold(stream: Config) -> int:
    """Return after how long (ns) without a request a consumer may go: the stream's own limit may be lower."""
    allowed = (stream.get("consumer_limits") or {}).get("inactive_threshold") or 0
    ours = INACTIVE_SECONDS * NANOSECONDS
    return min(ours, allowed) if allowed > 0 else ours
