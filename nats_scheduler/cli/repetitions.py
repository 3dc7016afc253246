"""Which advisories repeat another one: the first is shown, the others are counted.

Rule: two advisories report the same if they agree in `KEYS`: the kind, what it is about, and what tells several faults
of one message apart. Times do not count, so a schedule that is refused each second is one fault. `SPAN_NS` after the
first one the number of the others is shown, and the next one is shown again.
Several sidecars publish the same about one schedule, and each publishes it again when it reads the stream again.
Cost: an entry for each advisory of the last minute, `MAX_ENTRIES` at most. Limit: if there are more, those that came
first count as over.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from nats_scheduler.jetstream.foreign_json import Object
from nats_scheduler.schedule.instants import MINUTE

SPAN_NS = MINUTE
"""How long an advisory that repeats another one is counted and not shown."""

MAX_ENTRIES = 10_000

MAX_VALUE_CHARS = 1_024
"""How much is kept of a value: any client that may publish there can send others than a sidecar does."""

KEYS = ("type", "stream", "schedule", "subject", "seq", "header", "code", "instance", "key")
"""The keys of an advisory that say what it reports."""


@dataclass(slots=True)
class Repeated:
    """An advisory that was shown, and how many others reported the same."""

    about: Object
    """Its `KEYS`, shortened."""
    first_at: int
    times: int = 0


class Repetitions:
    """The advisories of the last minute; times are nanoseconds of a clock that only goes forward."""

    def __init__(self) -> None:
        self._entries: dict[bytes, Repeated] = {}
        """The oldest first."""

    def is_new(self, advisory: Object, now: int) -> bool:
        """Return whether an advisory reports something new; if not, count it. `take_over` ends spans before."""
        about = {key: advisory[key] for key in KEYS if key in advisory}
        name = hashlib.sha256(json.dumps(about).encode()).digest()
        found = self._entries.setdefault(name, Repeated(_shortened(about), now, times=-1))
        found.times += 1
        return found.times == 0

    def take_over(self, now: int | None = None) -> list[Repeated]:
        """Return what was repeated and is over, once; without a time, all that was repeated."""
        over = []
        while self._entries:
            name, oldest = next(iter(self._entries.items()))
            if now is not None and len(self._entries) <= MAX_ENTRIES and now - oldest.first_at < SPAN_NS:
                break
            del self._entries[name]
            over += [oldest] if oldest.times else []
        return over


def _shortened(about: Object) -> Object:
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in about.items()}
    return {key: about[key] if len(text) <= MAX_VALUE_CHARS else text[:MAX_VALUE_CHARS] for key, text in texts.items()}
