"""The one-shots that the server itself fires, and where it stores its fires.

They are not held here, and of each some numbers are kept: the server removes what is replaced at once, so only what was
received before shows that something is lost. What may have been removed, or may end by itself before it fires, is not
watched.

Cost: some 300 bytes for each that is pending, and for each target.
Limits: `MAX_WATCHED` and `MAX_TARGETS`; beyond that, those that were noted first are not known any more.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from nats_scheduler.engine.holding.held import NO_EXPIRY
from nats_scheduler.engine.inputs import RemovalRequested
from nats_scheduler.engine.receiving.replaced import Replacements
from nats_scheduler.message.dialect import ADR51, DIALECTS
from nats_scheduler.message.fires import following_fire, scheduler_of
from nats_scheduler.message.headers import MARKER_REASON, MSG_TTL, decoded, header_value
from nats_scheduler.message.paused import paused_name
from nats_scheduler.message.policies import policy_header
from nats_scheduler.message.reading import has_schedule_header
from nats_scheduler.message.stored import NAME_PART_LOWER, StoredMessage, body_mark, is_other_body
from nats_scheduler.schedule.patterns import At, parse_pattern

MAX_WATCHED = 50_000
"""One-shots of one stream that are watched and that the server itself fires."""

PAUSED, DEBOUNCE = paused_name(ADR51), policy_header("X-Debounce", ADR51)

MAX_TARGETS = 1_000
"""Targets, and sources, of schedules of one stream that the server itself fires."""


class _Watched(NamedTuple):
    sequence: int
    stored_at: int
    due: int
    mark: int
    is_meant: bool


class OfServer:
    """What is known of the schedules of one stream that the server itself fires."""

    def __init__(self, replacements: Replacements, max_age: int) -> None:
        """Report what is replaced; a message is stored for `max_age` (ns), 0 for ever."""
        self._replacements = replacements
        self._max_age = max_age
        self._watched: dict[str, _Watched] = {}
        self._fired: dict[str, tuple[str, int]] = {}
        self.sampled: dict[str, None] = {}
        """The sources of schedules that were read."""

    def fired_since(self, instant: int) -> dict[str, str]:
        """Return the targets on which a fire was read that was stored since then (ns), and the schedule of the last."""
        return {target: schedule for target, (schedule, stored_at) in self._fired.items() if stored_at >= instant}

    def are_on_none_of(self, subjects: Iterable[str]) -> bool:
        """Return whether none is on one of these subjects."""
        return self._watched.keys().isdisjoint(subjects)

    def take(self, message: StoredMessage) -> None:
        """Take a message of any kind: it replaces what is on its subject."""
        block = message.block
        if NAME_PART_LOWER in block and (schedule := scheduler_of(block)):
            ended = self._watched.pop(schedule, None)
            if following_fire(block, ADR51) is not None or (ended is not None and ended.due <= message.stored_at):
                _note(self._fired, message.subject, (schedule, message.stored_at), MAX_TARGETS)  # else it is a cancel
            return  # what lands on the subject of another schedule does not concern it
        before = self._watched.pop(message.subject, None)
        value = header_value(block, ADR51.schedule) if NAME_PART_LOWER in block else None
        if before is None and value is None:
            return  # nearly all messages
        mark = body_mark(message)
        is_meant = value is not None and header_value(block, DEBOUNCE) == b"true"
        if before is not None and before.sequence < message.sequence and message.stored_at < before.due:
            is_removal = value is None and (header_value(block, PAUSED) or MARKER_REASON in block)
            is_other = is_other_body(before.mark, mark) or not has_schedule_header(block, DIALECTS)
            if is_other and not (is_removal or is_meant or before.is_meant):
                self._replacements.of_server(message, before.sequence, before.stored_at, before.due)
        pattern = parse_pattern(decoded(value), None) if value is not None and value.startswith(b"@at ") else None
        ends = message.stored_at + self._max_age if self._max_age else NO_EXPIRY
        if isinstance(pattern, At) and message.stored_at < pattern.instant < ends and MSG_TTL not in block:
            watched = _Watched(message.sequence, message.stored_at, pattern.instant, mark, is_meant)
            _note(self._watched, message.subject, watched, MAX_WATCHED)
        if value is not None and (source := header_value(block, ADR51.source)):
            _note(self.sampled, decoded(source), None, MAX_TARGETS)

    def removal_requested(self, request: RemovalRequested) -> None:
        """Watch nothing any more on the one subject that a request names; other requests are noted with all others."""
        self._watched.pop(request.filter or "", None)


def _note(noted: dict[str, Any], name: str, value: object, most: int) -> None:
    """Note a value as the newest of at most so many."""
    noted.pop(name, None)
    noted[name] = value
    if len(noted) > most:
        del noted[next(iter(noted))]
