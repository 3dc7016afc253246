"""What all consumers of the sidecar have in common, whatever they are for.

They are ephemeral, in memory and without acknowledgements, and their name begins with `nats-scheduler-`.
"""

import uuid

from nats_scheduler.jetstream.api import DEFAULT_PREFIX, Config, JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.schedule.instants import SECOND

CONSUMER_INACTIVITY_LIMIT_SECONDS = 30
"""The server removes a consumer after this long without a request."""

CLUSTER_DEADLINE_SECONDS = 0.5
"""Longest wait for a consumer that a cluster may have placed on a node that just died; a healthy one takes ms."""


def consumer_name() -> str:
    """Return a name that no other consumer has."""
    return f"nats-scheduler-{uuid.uuid4().hex[:16]}"


def consumer_from(first: int, stream: Config) -> Config:
    """Return the configuration of a consumer that reads from `first` on; `stream` is the stream's configuration."""
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
    """Return after how long (ns) without a request a consumer is removed: the stream's own limit may be lower."""
    allowed = (stream.get("consumer_limits") or {}).get("inactive_threshold") or 0
    ours = CONSUMER_INACTIVITY_LIMIT_SECONDS * SECOND
    return min(ours, allowed) if allowed > 0 else ours


def reads_all(config: Config) -> bool:
    """Return whether every message of a stream is read: a consumer is harmless, and no consumer removes messages.

    On a stream that limits the number of its consumers, the sidecar's would take the place of a user's.
    """
    return bool(config.get("retention", "limits") == "limits" and config.get("max_consumers", -1) <= 0)


def stands_alone(connection: Connection, api: JetStreamApi) -> bool:
    """Return whether consumers are in the connected server's process: no cluster, no leaf node, no other domain."""
    server = connection.server
    return server.has_jetstream and not server.cluster and api.prefix == DEFAULT_PREFIX


def undelivered(block: bytes, otherwise: int) -> int:
    """Return how many messages of a pull that timed out will not come."""
    marker = b"Nats-Pending-Messages:"
    at = block.find(marker)
    if at < 0:
        return otherwise
    return int(block[at + len(marker) : block.index(b"\r\n", at)])


def delivery_numbers(reply: bytes) -> list[bytes]:
    """Return the numbers of a message that a consumer delivers, from its reply subject.

    Its sequence in the stream and among those of the consumer, when it was stored (ns), and how many are pending.
    """
    fields = reply.split(b".")
    return fields[5:9] if len(fields) == 9 else fields[7:11]  # a domain and the account's hash put two more in front
