"""Read the history that a judge takes from stored messages, of any publisher."""

import re

from nats_scheduler.message.headers import header_items
from nats_scheduler.message.identity import parse_identity
from nats_scheduler.message.stored import StoredMessage
from tests.judge.history import FireSeen


def fire_seen(message: StoredMessage) -> FireSeen:
    """Read a generated message; of headers with one name the first counts."""
    headers = tuple((name.decode(), value.decode()) for name, value in header_items(message.block))
    values = dict(reversed(headers))
    identity = parse_identity(values.get("Nats-Msg-Id", ""))
    return FireSeen(
        schedule=values.get("Nats-Scheduler", values.get("X-Nats-Scheduler", "")),
        schedule_sequence=identity and identity[1],
        fire_time=identity and identity[2],
        target=message.subject,
        stored_at=message.stored_at,
        sequence=message.sequence,
        body=message.body or b"",
        headers=headers,
        taken=taken_in(values.get("Nats-Msg-Id", "")),
    )


def taken_in(identity: str) -> int:
    """Return the sequence of the message that has the first identity of a fire, from another one; 0 from the first."""
    match = re.match(r"nats-scheduler:[0-9]+/([0-9]+):", identity)
    return int(match[1]) if match else 0
