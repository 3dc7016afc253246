"""The shapes of header blocks: read the next block of a program by one regular expression.

The blocks of one program have the same headers in the same order. They differ in the values of a few: of the pattern,
the target, the source, the time zone, `Nats-Msg-Id`, `Nats-Msg-Size`, and of headers that mean nothing here. A shape is
made from one block that was read, and reads all blocks that differ in nothing else.

The rule: the definition is the one that `read_message` reads, or the shape reads nothing. That is correct for three
reasons:

- A block has a shape only if each of its lines is a header and nothing else.
- A value that differs contains neither `Nats-`, and so no name of a header that means something, nor what the identity
  of a fire begins with. So no search in the block finds or misses a header because of it.
- All other bytes are those of the block from which the shape was made, and each value that matters is checked again.

To make a shape takes 0.3 ms, so it is done once for `READINGS_PER_SHAPE` readings without one.
"""

import re
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from nats_scheduler.message.definition import Definition
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.headers import HEADER_LINE, decoded
from nats_scheduler.message.identity import IDENTITY_PREFIX
from nats_scheduler.message.shared_terms import TermsOfKind
from nats_scheduler.schedule.instants import ZERO_TIME_NS
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.patterns import USUAL_AT, Pattern, parse_pattern, usual_at
from nats_scheduler.schedule.rfc3339 import usual_instant

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
_SIZE = rb" ([0-9]{1,10}+)"
"""What the server says of a body (`message.stored.size_named`)."""
_is_size = re.compile(_SIZE).fullmatch

_ANY_VALUE = rb"[^\r\n]*+"
_VALUE = rb" *+([^\r\n]*+)"
_USUAL_AT = rb" *+" + USUAL_AT
_OTHER_PATTERN = rb" *+(?!%b\r\n)([^\r\n]*+)" % re.sub(rb"\((?!\?)", b"(?:", USUAL_AT)


_groups = re.Match[bytes].groups


class UsualAts(NamedTuple):
    """What the blocks of many `@at` schedules say that have a target and nothing else that counts."""

    fire_times: Sequence[int]
    """Instants (ns)."""
    targets: Sequence[str]
    body_sizes: Sequence[int]
    """Bytes; 0 if the server did not say."""


class Shape:
    """Blocks that differ in some values."""

    def __init__(self, expression: bytes, groups: list[str], names: int, terms: TermsOfKind) -> None:
        """Read what the expression matches: `groups` are its groups in their order, `names` the `Nats-` in a block."""
        self._match = re.compile(expression).fullmatch
        self._names = names
        self._terms = terms
        self._numbers = {group: number for number, group in enumerate(groups, 1)}
        self._is_plain = groups[:4] == ["minute", "second", "digits", "target"] and groups[4:] in ([], ["size"])
        """True if it reads what most programs publish: a usual `@at`, and behind it a target."""

    def read(self, block: bytes) -> Definition | None:
        """Return the definition of a block; None if it has another shape, or if it may be rejected."""
        found = self._match(block)
        if found is None or not (block.count(_NAMES_END) == self._names or self._has_no_other_names(block)):
            return None
        if not self._is_plain:
            return self._read_any(found)
        minute, second, digits, target = found.group(1, 2, 3, 4)
        pattern = usual_at(minute, second, digits)
        terms = self._terms.aimed_at(target)
        if pattern is None or terms is None:
            return None
        return tuple.__new__(Definition, (pattern, terms))  # half the time of a call of `Definition`

    def read_all(self, blocks: Sequence[bytes]) -> UsualAts | None:
        """Return what `read` finds in many blocks that say what most programs publish; None if one may say more.

        A step for all of them takes a third of the time of all steps for each.
        """
        if not (self._is_plain and self._match(blocks[0]) and self._match(blocks[-1])):
            return None
        found = list(map(self._match, blocks))
        if not all(found) or set(map(bytes.count, blocks, repeat(_NAMES_END))) != {self._names}:
            return None
        minutes, seconds, digits, targets, *sizes = zip(*map(_groups, found), strict=True)  # type: ignore[arg-type]
        fire_times = list(map(usual_instant, minutes, seconds, digits))
        aims = self._terms.targets(targets)
        if aims is None or None in fire_times or ZERO_TIME_NS in fire_times:
            return None
        body_sizes = list(map(int, sizes[0])) if sizes else [0] * len(blocks)
        return UsualAts(fire_times, aims, body_sizes)  # type: ignore[arg-type]

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
    if name == b"Nats-Msg-Size":
        return (_SIZE, ["size"]) if _is_size(value) else None
    own = {dialect.target: "target", dialect.source: "source", dialect.time_zone: "zone"}
    if name in own:
        return _VALUE, [own[name]]
    return (_ANY_VALUE, []) if _NAMES not in name or name == b"Nats-Msg-Id" else None
