"""Read messages fast if all their headers except the pattern were read before.

A fleet's schedules come from few programs: their header blocks differ only in the value of `Nats-Schedule`, or are
equal.
So the terms of a block are cached, with the bytes around that value as the key. For the next message only the pattern
is parsed, and the checks of its own subject are made.

The rule: the readings are the same as those of `read_message`, which is called in every case of doubt; only definitions
are cached.
That is correct because a valid pattern contains neither a line end nor the name of a header. So no search finds or
misses another header because of it. The pattern, the subject and the stored time are checked for each message.
Equal terms are one object, so a fleet has only a few; equal blocks share their pattern too.

Cost: 2.5 µs for an `@at` schedule, half of it to parse the time; 1 µs if the whole block is cached.
Limit: a block with a unique value in another header, such as an identity, is never found and costs 2 µs more.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from nats_scheduler.message.definition import Definition, Terms
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.fields import schedule_fields
from nats_scheduler.message.headers import CRLF, decoded
from nats_scheduler.message.misnamed import NAME_PART_LOWER, NAME_PART_UPPER, Misnamed, misnamed_headers
from nats_scheduler.message.paused import Paused
from nats_scheduler.message.policies import NO_POLICIES
from nats_scheduler.message.reading import SCHEDULE_SUBSTRING, Reading, read_message, read_published
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import is_literal_subject
from nats_scheduler.message.timetable import never_fires
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.patterns import Pattern, parse_pattern, usual_at

MAX_CACHED_ENTRIES = 4_096
"""The limit of each of the three caches: blocks, surroundings of patterns, and terms. A full cache is emptied."""

MAX_CACHED_BLOCK_BYTES = 1_024
"""Longer blocks are not cached: a header may hold 64 KB."""


class _Surroundings(NamedTuple):
    """What a block contains besides its pattern: the terms, and the time zone of the pattern."""

    terms: Terms
    time_zone: str | None


class MessageReader:
    """Reads the messages of one stream."""

    def __init__(self, rules: StreamRules, dialects: Sequence[Dialect]) -> None:
        self._rules = rules
        self.dialects = tuple(dialects)
        self._names = tuple((dialect, CRLF + dialect.schedule + b":") for dialect in self.dialects)
        self._whole: dict[bytes, Definition] = {}
        self._around: dict[bytes, _Surroundings] = {}
        self._terms: dict[Terms, Terms] = {}
        """One object for equal terms: a block with a unique value is never found, but its terms may be the same."""
        self.misnamed: Sequence[Misnamed] = ()
        """The misnamed headers of the last message that `read_uncached` read; a cached block has none."""
        self._last: tuple[bytes, bytes, Terms] | None = None
        """The bytes before and after the last pattern without a zone; the next pattern is usually between the same."""

    def read(self, message: StoredMessage) -> Reading | None:
        """Do what `read_message` does."""
        definition = self.cached(message)
        return self.read_uncached(message) if definition is None else Reading(definition)

    def cached(self, message: StoredMessage) -> Definition | None:
        """Return the definition if it is the whole reading of a message and is cached; None otherwise."""
        subject, _sequence, stored_at, block, _body = message
        if len(block) > MAX_CACHED_BLOCK_BYTES or block.find(SCHEDULE_SUBSTRING) < 0:
            return None
        definition = self._whole.get(block) or self._cached_at(block) or self._from_surroundings(block)
        if definition is None:
            return None
        pattern, terms = definition
        if subject in (terms.target, terms.source) or not is_literal_subject(subject):
            return None  # the cached definition is valid only on other subjects
        return None if never_fires(pattern, stored_at) else definition

    def read_uncached(self, message: StoredMessage) -> Reading | None:
        """Do what `read_message` does, and cache the definition."""
        subject, _sequence, stored_at, block, _body = message
        self.misnamed = ()
        if block.find(NAME_PART_LOWER) < 0 and block.find(NAME_PART_UPPER) < 0:
            return None  # every message that means something contains these letters too
        reading = read_message(block, subject, stored_at, self._rules, self.dialects)
        if reading is None or (reading.generated is None and reading.beside is None):
            is_schedule = reading is not None and reading.definition is not None
            self.misnamed = misnamed_headers(block, self.dialects, is_schedule=is_schedule)
        is_long = len(block) > MAX_CACHED_BLOCK_BYTES
        if reading is not None and reading.paused is not None:
            return reading if is_long else reading._replace(paused=self._paused(reading.paused))
        if reading is None or reading.definition is None or is_long:
            return reading
        pattern, terms = reading.definition
        definition = Definition(pattern, self._shared(terms))
        if reading.cancels is None and not self.misnamed:
            self._cache_terms(block, definition)
        return Reading(definition, cancels=reading.cancels)

    def read_as_published(self, message: StoredMessage) -> Reading:
        """Read a message that is not the fire it claims to be, like any other message."""
        reading = read_published(message.block, message.subject, message.stored_at, self._rules, self.dialects)
        return reading or Reading()

    def _paused(self, paused: Paused) -> Paused:
        """Return the same with shared terms: a stream may keep a million paused schedules."""
        resumed = paused.resumed
        if isinstance(resumed, Rejection):
            return paused
        return paused._replace(resumed=Definition(resumed.pattern, self._shared(resumed.terms)))

    def _shared(self, terms: Terms) -> Terms:
        """Return the one object for equal terms."""
        _make_room(self._terms)
        return self._terms.setdefault(terms, terms)

    def _cached_at(self, block: bytes) -> Definition | None:
        """Read an `@at` pattern between the same bytes as the last pattern."""
        if self._last is None:
            return None
        before, after, terms = self._last
        if not (block.startswith(before) and block.endswith(after)):
            return None
        pattern = usual_at(block, len(before), len(block) - len(after))
        return None if pattern is None else self._keep(block, pattern, terms)

    def _from_surroundings(self, block: bytes) -> Definition | None:
        """Read the pattern of a block whose other bytes are cached."""
        _dialect, start, end = self._pattern_in(block)
        around = self._around.get(block[:start] + block[end:])
        if around is None:
            return None
        text = block[start:end].lstrip(b" ")
        pattern = parse_pattern(decoded(text), around.time_zone)
        if pattern is None or isinstance(pattern, Invalid):
            return None
        if around.time_zone is None:
            self._last = block[: end - len(text)], block[end:], around.terms
        return self._keep(block, pattern, around.terms)

    def _keep(self, block: bytes, pattern: Pattern, terms: Terms) -> Definition:
        definition = Definition(pattern, terms)
        _make_room(self._whole)
        self._whole[block] = definition
        return definition

    def _cache_terms(self, block: bytes, definition: Definition) -> None:
        """Cache the terms of a block, unless another header may have determined when it fires."""
        dialect, start, end = self._pattern_in(block)
        pattern, terms = definition
        if terms.policies is not NO_POLICIES:
            return  # they may depend on the pattern, and change when it fires
        if dialect is not terms.dialect or decoded(block[start:end].lstrip(b" ")) != pattern.text:
            return
        name = dialect.time_zone
        time_zone = schedule_fields(block, dialect).get(name) if block.find(name) >= 0 else None
        _make_room(self._around)
        self._around[block[:start] + block[end:]] = _Surroundings(terms, time_zone)

    def _pattern_in(self, block: bytes) -> tuple[Dialect | None, int, int]:
        """Return the first dialect whose `Nats-Schedule` is in a block, and the bounds of its first value."""
        for dialect, name in self._names:
            at = block.find(name)
            if at >= 0:
                start = at + len(name)
                end = block.find(CRLF, start)
                return dialect, start, len(block) if end < 0 else end
        return None, 0, 0


def _make_room(kept: dict[Any, Any]) -> None:
    if len(kept) >= MAX_CACHED_ENTRIES:
        kept.clear()
