"""Read messages fast if others like them were read before.

A fleet's schedules come from few programs. The header blocks of one program differ only in the values of a few headers
(`message.reader`), or are equal.

The rule: the readings are the same as those of `read_message`, which is called in every case of doubt; only definitions
are cached. The subject and the stored time of each message are checked.
Equal terms are one object, so a fleet with one target has only a few; equal blocks share their pattern too.

Cost: 3 µs for an `@at` schedule with a target of its own; 1 µs if the whole block is cached.
Limit: a block that has no shape costs 12 µs and more.
"""

import re
from collections.abc import Hashable, Sequence
from typing import Any

from nats_scheduler.message.definition import Definition, Terms
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.headers import HEADER_LINE, decoded
from nats_scheduler.message.identity import IDENTITY_PREFIX
from nats_scheduler.message.policies import NO_POLICIES
from nats_scheduler.message.reading import (
    SCHEDULE_SUBSTRING,
    Misnamed,
    Paused,
    Reading,
    misnamed_headers,
    read_message,
    read_published,
)
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.stored import NAME_PART_LOWER, NAME_PART_UPPER, StoredMessage
from nats_scheduler.message.stream_rules import UNRESTRICTED, StreamRules
from nats_scheduler.message.subjects import covering, covering_usual, is_literal_subject, is_usual_subject
from nats_scheduler.message.timetable import never_fires
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.patterns import USUAL_AT, Pattern, parse_pattern, usual_at

# One object for equal terms: the schedules of a fleet have few different ones, or differ in the target alone.
#
# The rule: terms that are made here from a target and a source are those that `read_message` reads from a block with
# them, and none are made if it would reject one of the two.
# The subject of the schedule itself is not known here: that it is neither target nor source is left to the caller.
#
# Cost: 0.1 µs for a target that is known, 1 µs for another one. At most `MAX_KINDS` times `MAX_TERMS` are kept.

MAX_KINDS = 8
"""The largest number of kinds of terms, which differ in more than target and source. A further one discards them."""

MAX_TERMS = 4_096
"""The largest number of terms of one kind. A further one discards them."""

MAX_TERMS_BYTES = 512 * 1024
"""The most bytes of targets and sources of one kind. Further ones discard them, so that long ones cost no more."""

MAX_TERMS_WITH_POLICIES = 1_024
"""The largest number of terms with policies, some KB each. A further one discards them."""


class TermsOfKind:
    """Terms without policies that differ in target and source only."""

    def __init__(self, like: Terms, rules: StreamRules) -> None:
        """Make terms like these for a stream with these rules."""
        self.like = like
        """One of them."""
        self._restrictions = rules.restrictions
        self._covers = covering(rules.subjects)
        self._covers_usual = covering_usual(rules.subjects)
        self._kept: dict[bytes, Terms] = {}
        self._kept_bytes = 0

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._kept)

    def aimed_at(self, target: bytes, source: bytes = b"") -> Terms | None:
        """Return the terms with this target and source (b"" for none); None if one of them may be invalid."""
        key = b"%b\n%b" % (target, source) if source else target  # no valid subject contains a line end
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        aim, sampled = self._aim(target), decoded(source) or None
        if aim is None or (sampled is not None and (sampled == aim or not self._is_possible(sampled))):
            return None
        dialect, _target, _source, ttl, rollup, policies = self.like
        if self._restrictions.source_fault(dialect.source, sampled or ""):
            return None
        self._kept_bytes += len(key)
        if len(self._kept) >= MAX_TERMS or self._kept_bytes > MAX_TERMS_BYTES:
            self._kept.clear()
            self._kept_bytes = len(key)
        # Half the time of a call of `Terms`; one is made for each schedule with a target of its own.
        terms = self._kept[key] = tuple.__new__(Terms, (dialect, aim, sampled, ttl, rollup, policies))
        return terms

    def _aim(self, target: bytes) -> str | None:
        """Return a target as text; None if it may be invalid."""
        aim = target.decode("utf-8", "surrogateescape")
        if self._covers_usual(aim) is None and not self._is_possible(aim):
            return None
        is_free = self._restrictions is UNRESTRICTED
        return aim if is_free or not self._restrictions.target_fault(self.like.dialect.target, aim) else None

    def _is_possible(self, subject: str) -> bool:
        return is_literal_subject(subject) and self._covers(subject) is not None


class SharedTerms:
    """The terms of one stream's schedules."""

    def __init__(self, rules: StreamRules) -> None:
        """Share nothing yet."""
        self._rules = rules
        self._kinds: dict[Hashable, TermsOfKind] = {}
        self._with_policies: dict[Terms, Terms] = {}

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._with_policies) + sum(map(len, self._kinds.values()))

    def kind_of(self, terms: Terms) -> TermsOfKind:
        """Return the kind of terms that have no policies."""
        dialect, _target, _source, ttl, rollup, _policies = terms
        key = dialect.name, ttl, rollup
        if key not in self._kinds:
            _make_room(self._kinds, MAX_KINDS)
            self._kinds[key] = TermsOfKind(terms, self._rules)
        return self._kinds[key]

    def shared(self, terms: Terms) -> Terms:
        """Return the one object for terms that were read."""
        if terms.policies is not NO_POLICIES:
            _make_room(self._with_policies, MAX_TERMS_WITH_POLICIES)
            return self._with_policies.setdefault(terms, terms)
        target, source = (text.encode("utf-8", "surrogateescape") for text in (terms.target, terms.source or ""))
        return self.kind_of(terms).aimed_at(target, source) or terms


def _make_room(kept: dict[Any, Any], most: int) -> None:
    if len(kept) >= most:
        kept.clear()


# The shapes of header blocks: read the next block of a program by one regular expression.
#
# The blocks of one program have the same headers in the same order. They differ in the values of a few: of the
# pattern, the target, the source, the time zone, `Nats-Msg-Id`, `Nats-Msg-Size`, and of headers that mean nothing
# here. A shape is made from one block that was read, and reads all blocks that differ in nothing else.
#
# The rule: the definition is the one that `read_message` reads, or the shape reads nothing. That is correct for three
# reasons. A block has a shape only if each of its lines is a header and nothing else: `Name: value\r\n`. A value that
# differs contains neither `Nats-`, and so no name of a header that means something, nor what the identity of a fire
# begins with. So no search in the block finds or misses a header because of it. All other bytes are those of the
# block from which the shape was made, and each value that matters is checked again.
#
# Cost: 2 µs for an `@at` schedule with a target of its own. 0.3 ms to make a shape, which is done once for
# `READINGS_PER_SHAPE` readings without one, so that blocks that have nothing in common cost little more.
# Limit: a block with a value of its own in another header of the server, such as `Nats-TTL`, has a shape of its own.

MAX_SHAPES = 8
"""The largest number of shapes that are kept for a stream; a further one takes the place of the oldest."""

READINGS_PER_SHAPE = 32
"""The number of readings without a shape for each one that is made, after the first `SHAPES_AT_ONCE`."""

SHAPES_AT_ONCE = 4
"""The number of shapes that are made without waiting for that."""

_NAMES = b"Nats-"
"""Every name of a header that means something contains this."""

_IDENTITY_PREFIX = IDENTITY_PREFIX.encode()

_NAMES_END = b"ats-"
"""A part of both: most blocks contain it in names of headers only, and one search finds that out."""

_is_regular = re.compile(rb"NATS/1\.0\r\n(?:[!-9;-~]++:[^\r\n]*+\r\n)++\r\n").fullmatch
_lines = re.compile(rb"([!-9;-~]++):([^\r\n]*+)\r\n").findall
_is_usual_at = re.compile(rb" *+" + USUAL_AT).fullmatch
_MEANINGLESS = (b"Nats-Msg-Id", b"Nats-Msg-Size")
"""Headers of the server whose values mean nothing in a schedule."""

_ANY_VALUE = rb"[^\r\n]*+"
_VALUE = rb" *+([^\r\n]*+)"
_USUAL_AT = rb" *+" + USUAL_AT
_OTHER_PATTERN = rb" *+(?!%b\r\n)([^\r\n]*+)" % re.sub(rb"\((?!\?)", b"(?:", USUAL_AT)


class Shape:
    """Blocks that differ in some values."""

    def __init__(self, expression: bytes, groups: list[str], names: int, terms: TermsOfKind) -> None:
        """Read what the expression matches: `groups` are its groups in their order, `names` the `Nats-` in a block."""
        self._match = re.compile(expression).fullmatch
        self._names = names
        self._terms = terms
        self._numbers = {group: number for number, group in enumerate(groups, 1)}
        self._is_plain = groups == ["minute", "second", "digits", "target"]
        """True if it reads what most programs publish: a usual `@at`, and behind it a target."""

    def read(self, block: bytes) -> Definition | None:
        """Return the definition of a block; None if it has another shape, or if it may be rejected."""
        found = self._match(block)
        if found is None or not (block.count(_NAMES_END) == self._names or self._has_no_other_names(block)):
            return None
        if not self._is_plain:
            return self._read_any(found)
        minute, second, digits, target = found.groups()
        pattern = usual_at(minute, second, digits)
        terms = self._terms.aimed_at(target)
        if pattern is None or terms is None:
            return None
        return tuple.__new__(Definition, (pattern, terms))  # half the time of a call of `Definition`

    def _has_no_other_names(self, block: bytes) -> bool:
        """Return whether the values that differ contain neither the name of a header nor an identity."""
        return block.count(_NAMES) == self._names and block.find(_IDENTITY_PREFIX) < 0

    def _read_any(self, found: re.Match[bytes]) -> Definition | None:
        """Read a pattern that is no usual `@at`, or is beside a source."""
        named = {name: found[number] for name, number in self._numbers.items()}
        if "minute" in named:
            pattern: Pattern | None = usual_at(named["minute"], named["second"], named["digits"])
        else:
            zone = named.get("zone")
            read = parse_pattern(decoded(named["pattern"]), None if zone is None else decoded(zone))
            pattern = None if isinstance(read, Invalid) else read
        terms = self._terms.aimed_at(named["target"], named.get("source", b""))
        return None if pattern is None or terms is None else Definition(pattern, terms)


def shape_of(block: bytes, dialect: Dialect, terms: TermsOfKind) -> Shape | None:
    """Return the shape of a block that was read in a dialect and has terms of this kind; None if it has none."""
    if not _is_regular(block):
        return None
    lines = _lines(block, len(HEADER_LINE))
    has_zone = any(name == dialect.time_zone for name, _value in lines)
    is_doubled = sum(name == dialect.schedule for name, _value in lines) > 1
    expression, groups, names = re.escape(HEADER_LINE), list[str](), 0
    for name, value in lines:
        own = _own_value(name, value, dialect, has_zone=has_zone)
        expression += re.escape(name) + b":" + (re.escape(value) if own is None else own[0]) + rb"\r\n"
        groups += [] if own is None else own[1]
        names += name.count(_NAMES) + (value.count(_NAMES) if own is None else 0)
    if "target" not in groups or is_doubled or len(set(groups)) < len(groups) or block.count(_NAMES) != names:
        return None
    return Shape(expression + rb"\r\n", groups, names, terms)


def _own_value(name: bytes, value: bytes, dialect: Dialect, *, has_zone: bool) -> tuple[bytes, list[str]] | None:
    """Return the expression of a value that may differ, and the names of its groups; None: it may not differ."""
    if name == dialect.schedule:
        if not has_zone and _is_usual_at(value):
            return _USUAL_AT, ["minute", "second", "digits"]
        return _VALUE if has_zone else _OTHER_PATTERN, ["pattern"]
    own = {dialect.target: "target", dialect.source: "source", dialect.time_zone: "zone"}
    if name in own:
        return _VALUE, [own[name]]
    return (_ANY_VALUE, []) if _NAMES not in name or name in _MEANINGLESS else None


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
        if len(block) <= MAX_CACHED_BLOCK_BYTES and reading.cancels is None and reading.generated is None:
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
