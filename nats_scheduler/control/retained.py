"""What the stored messages show of the fires of a schedule: for `ScheduleStore.fires`, of every adapter.

The rule: where a message may be gone although it was stored, nothing is known of it. So a stream that removes what was
consumed, and a schedule whose fires roll up their target, show nothing.
Limit: what a client deleted or purged counts as not stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from nats_scheduler.control.port import StoredFires
from nats_scheduler.message.definition import Terms, read_ttl
from nats_scheduler.message.past_fires import PastFire
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import SECOND

EVER = 0
"""`StoredFires.known_from` if everything that was stored is known (ns since the Unix epoch)."""


class Kept(NamedTuple):
    """What a stream still holds; times are those at which a message was stored (ns)."""

    first_sequence: int
    """Of its first message, 1 if none was removed from the beginning."""
    first_stored_at: int
    on_target: int = 0
    """How many messages are on the target of the schedule; of interest if the stream limits them."""
    first_on_target_at: int = 0


def stored_fires(
    fires: Iterable[PastFire], sequence: int, since: int, until: int, known_from: int | None
) -> StoredFires:
    """Return what is stored of the fires of a schedule, whose message has this sequence, in a range of times (ns).

    A fire of the server's whose fire time is not known may be any that came due until it was stored.
    """
    fires = list(fires)
    unknown = max((fire.stored_at for fire in fires if fire.fire_time is None), default=None)
    if known_from is not None and unknown is not None:
        known_from = max(known_from, unknown + 1)
    timed = [(fire.fire_time, fire) for fire in fires if fire.fire_time is not None]
    latest = (time for time, fire in timed if not fire.was_requested and fire.schedule_sequence in (sequence, None))
    times = frozenset(time for time, _fire in timed if since <= time <= until)
    return StoredFires(times, max(latest, default=None), known_from)


def known_from(config: Mapping[str, Any], terms: Terms, kept: Kept, now: int) -> int | None:
    """Return from when on (stored time, ns) a stream shows the fires of a schedule; None if any may be missing.

    `config` is that of the stream that has the target.
    """
    rules = StreamRules.from_config(config)
    if not rules.keeps_acknowledged or terms.rollup:
        return None
    since = [EVER]
    if (rules.max_age or rules.evicts) and kept.first_sequence > 1:
        since.append(kept.first_stored_at)
    if (ttl := read_ttl(terms.ttl) if terms.ttl else 0) and ttl > 0:
        since.append(now - ttl * SECOND)
    per_subject = config.get("max_msgs_per_subject")
    if isinstance(per_subject, int) and 0 < per_subject <= kept.on_target:
        since.append(kept.first_on_target_at)
    return max(since)
