"""Read messages fast if others like them were read before.

A fleet's schedules come from few programs. The header blocks of one program differ only in the values of a few headers
(`message.block_shapes`), or are equal.

The rules:

- The readings are the same as those of `read_message`, which is called in every case of doubt; only definitions are
  cached. The subject and the stored time of each message are checked.
- Equal terms are one object (`message.shared_terms`), so a fleet with one target has only a few; equal blocks share
  their pattern too.
"""

from collections.abc import Sequence
from operator import eq

from nats_scheduler.message.block_shapes import (
    MAX_SHAPES,
    READINGS_PER_SHAPE,
    SHAPES_AT_ONCE,
    Shape,
    UsualAts,
    shape_of,
)
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.misnamed import Misnamed, misnamed_headers
from nats_scheduler.message.paused import Paused
from nats_scheduler.message.policies import NO_POLICIES
from nats_scheduler.message.reading import SCHEDULE_SUBSTRING, Reading, read_message, read_published
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.runs import MessageRun
from nats_scheduler.message.shared_terms import SharedTerms
from nats_scheduler.message.stored import NAME_PART_LOWER, NAME_PART_UPPER, StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import is_literal_subject, is_usual_subject
from nats_scheduler.message.timetable import never_fires

MAX_CACHED_BLOCKS = 4_096
"""The largest number of equal blocks that are known at a time. If there are more, all are discarded."""

MAX_CACHED_BLOCK_BYTES = 1_024
"""Longer blocks are not cached: a header may hold 64 KB."""

MAX_CACHED_BYTES = 1024 * 1024
"""The most bytes of blocks that are known at a time. If there are more, all are discarded."""


class MessageReader:
    """Reads the messages of one stream."""

    def __init__(self, rules: StreamRules, dialects: Sequence[Dialect]) -> None:
        self._rules = rules
        self.dialects = tuple(dialects)
        self._whole: dict[bytes, Definition] = {}
        self._whole_bytes = 0
        self._terms = SharedTerms(rules)
        self._shapes: list[Shape] = []
        self._unread = SHAPES_AT_ONCE * READINGS_PER_SHAPE
        """The number of blocks that were read without a shape; to make one takes `READINGS_PER_SHAPE` of them."""
        self.misnamed: Sequence[Misnamed] = ()
        """The misnamed headers of the last message that `read_uncached` read; a cached block has none."""

    def read(self, message: StoredMessage) -> Reading | None:
        """Do what `read_message` does."""
        definition = self.cached(message)
        return self.read_uncached(message) if definition is None else Reading(definition)

    def cached(self, message: StoredMessage) -> Definition | None:
        """Return the definition if it is the whole reading of a message and is cached; None otherwise."""
        subject, _sequence, stored_at, block, _body = message
        if len(block) > MAX_CACHED_BLOCK_BYTES or block.find(SCHEDULE_SUBSTRING) < 0:
            return None
        definition = self._whole.get(block)
        if definition is None:
            for shape in self._shapes:
                if (definition := shape.read(block)) is not None:
                    break
            else:
                return None
        pattern, terms = definition
        if subject == terms.target or subject == terms.source:
            return None  # the cached definition is valid only on other subjects
        if not (is_usual_subject(subject) or is_literal_subject(subject)):
            return None
        return None if never_fires(pattern, stored_at) else definition

    def usual_ats(self, run: MessageRun) -> UsualAts | None:
        """Return what messages define of which `cached` reads each as a usual `@at`; None if one may be something else.

        A program that stores many sends nothing else, so many of them are read in one go.
        """
        if max(map(len, run.blocks)) > MAX_CACHED_BLOCK_BYTES:
            return None
        all_read = (read for shape in self._shapes if (read := shape.read_all(run.blocks)) is not None)
        read = next(all_read, None)
        if read is None or not all(map(is_usual_subject, run.subjects)) or any(map(eq, run.subjects, read.targets)):
            return None
        return read

    def definition_of(self, message: StoredMessage) -> Definition | None:
        """Return what a message defines that was read before, as a row of the table has it; None if it is no schedule.

        What `misnamed` says of the last message that was read stays.
        """
        definition = self.cached(message)
        if definition is not None:
            return definition
        subject, _sequence, stored_at, block, _body = message
        reading = read_message(block, subject, stored_at, self._rules, self.dialects)
        if reading is None or reading.definition is None:
            return None
        pattern, terms = reading.definition
        definition = Definition(pattern, self._terms.shared(terms))
        is_whole = reading.cancels is None and not misnamed_headers(block, self.dialects, is_schedule=True)
        if is_whole and len(block) <= MAX_CACHED_BLOCK_BYTES:
            self._learn(block, definition)
        return definition

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
        definition = Definition(pattern, self._terms.shared(terms))
        if reading.cancels is None and not self.misnamed:
            self._learn(block, definition)
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
        return paused._replace(resumed=Definition(resumed.pattern, self._terms.shared(resumed.terms)))

    def _learn(self, block: bytes, definition: Definition) -> None:
        """Remember a block without policies: these may depend on the pattern, and change when it fires."""
        terms = definition.terms
        if terms.policies is not NO_POLICIES:
            return
        self._whole_bytes += len(block)
        if len(self._whole) >= MAX_CACHED_BLOCKS or self._whole_bytes > MAX_CACHED_BYTES:
            self._whole.clear()
            self._whole_bytes = len(block)
        self._whole[block] = definition
        self._unread = min(self._unread + 1, SHAPES_AT_ONCE * READINGS_PER_SHAPE)
        if self._unread >= READINGS_PER_SHAPE:
            self._unread -= READINGS_PER_SHAPE
            if (shape := shape_of(block, terms.dialect, self._terms.kind_of(terms))) is not None:
                self._shapes = [*self._shapes, shape][-MAX_SHAPES:]
