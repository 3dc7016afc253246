"""The schedules that a query names, as a condition of SQL: by subject, target, owner and kind.

The rule: a subject or a target is covered by a pattern with wildcards exactly if `message.subjects.is_covered` says so,
whatever bytes both have.

A pattern of ASCII letters is compared by SQLite alone: a token that is a wildcard is `[^.]*` for GLOB, and as GLOB's
`*` passes dots too, the number of dots has to be that of the pattern. A `>` stands for as many tokens as the text has
left; if a literal token is between it and a wildcard, that number is counted in each text. SQLite reads other letters
as code points, and bytes that are no UTF-8 as one and the same; it reads no text behind a zero byte. So other patterns
and texts are compared in Python, and so are texts with empty tokens, which are no subjects.

A text that a subject or a target contains is compared byte for byte. An owner is found among the headers by SQLite, and
read by Python only where its name is somewhere among them.

Cost: 0.1 to 0.3 µs for each row, 1 if dots are counted; 2 µs of the interpreter where Python compares.
"""

from collections.abc import Mapping
from itertools import takewhile
from typing import NamedTuple

from nats_scheduler.engine.holding.table import COVERED, OWNED, text_of

MAX_GLOB_CHARS = 1_000
"""Longer patterns and texts are compared in Python: SQLite compares GLOBs up to 50,000 bytes."""

_SPECIAL = "*?["


class Condition(NamedTuple):
    """An expression of SQL, and the values of its names."""

    text: str = "1"
    values: Mapping[str, object] = {}
    subjects: str = "1"
    """The part of it that an index of subjects can find."""
    is_slow: bool = False
    """True if the interpreter is needed for each row."""

    def both(self, other: "Condition") -> "Condition":
        """Return what is true if both are."""
        subjects = other.subjects if self.subjects == "1" else self.subjects
        is_slow = self.is_slow or other.is_slow
        return Condition(f"{self.text} AND {other.text}", {**self.values, **other.values}, subjects, is_slow)


def covered(column: str, pattern: str) -> Condition:
    """Return the condition that the text in a column is a literal subject that a pattern covers."""
    tokens = pattern.split(".")
    if not ("*" in tokens or ">" in tokens):
        text = f"{column} = CAST(:{column} AS TEXT)"
        return Condition(text, {column: text_of(pattern)}, text)
    between, values = _between(column, "".join(f"{token}." for token in takewhile(_is_literal, tokens)))
    if ">" in tokens:
        tokens = tokens[: tokens.index(">") + 1]
    if all(map(_is_literal, tokens[:-1])) and tokens[-1] == ">":
        return Condition(between, values, between)
    if not pattern.isascii() or "\0" in pattern or len(pattern) > MAX_GLOB_CHARS:
        values[column] = pattern.encode("utf-8", "surrogateescape")
        return Condition(f"{between} AND {COVERED}(CAST({column} AS BLOB), :{column})", values, between, is_slow=True)
    values[column] = pattern.encode()
    by_glob = _by_glob(column, tokens, values)
    is_other = f"instr({column}, char(0)) OR length({column}) > {MAX_GLOB_CHARS} OR instr({column}, '..')"
    in_python = f"{COVERED}(CAST({column} AS BLOB), :{column})"
    return Condition(f"{between} AND CASE WHEN {is_other} THEN {in_python} ELSE {by_glob} END", values, between)


def containing(column: str, text: str) -> Condition:
    """Return the condition that the text in a column contains another."""
    name = f"{column}_part"
    return Condition(f"instr(CAST({column} AS BLOB), :{name}) > 0", {name: text.encode("utf-8", "surrogateescape")})


def owned(owner: str) -> Condition:
    """Return the condition that the headers of a schedule name an owner."""
    text = f"CASE WHEN instr(headers, :owner) > 0 THEN {OWNED}(headers, :owner) ELSE 0 END"
    return Condition(text, {"owner": owner.encode("utf-8", "surrogateescape")}, is_slow=True)


def _is_literal(part: str) -> bool:
    """Return whether a token of a pattern with wildcards is none: one that begins with a star is one, as is `*`."""
    return part != ">" and not part.startswith("*")


def _between(column: str, begin: str) -> tuple[str, dict[str, object]]:
    """Return the condition for texts that begin so and are longer, and its values."""
    if not begin:
        return f"{column} <> ''", {}
    first, last = f"{column}_above", f"{column}_below"
    text = f"({column} > CAST(:{first} AS TEXT) AND {column} < CAST(:{last} AS TEXT))"
    return text, {first: text_of(begin), last: text_of(begin[:-1] + chr(ord(".") + 1))}


def _by_glob(column: str, tokens: list[str], values: dict[str, object]) -> str:
    """Return the condition for a text that GLOB can compare, and add its values."""
    glob, more = f"{column}_glob", f"{column}_more"
    is_open = tokens[-1] == ">"
    parts = [_escaped(token) if _is_literal(token) else "[^.]*" for token in tokens[: len(tokens) - is_open]]
    compared = values[glob] = ".".join(parts)
    if is_open and parts[-1] == "[^.]*" and parts == sorted(parts, key=lambda part: part == "[^.]*"):
        values[glob] = f"{compared}.?*"  # nothing is behind the wildcards: there are tokens enough
        return f"{column} GLOB :{glob}"
    if not is_open:
        values[more] = ".".join("*" for _ in range(len(tokens) + 1))
        return f"({column} GLOB :{glob} AND NOT {column} GLOB :{more})"
    dots = f"length(CAST({column} AS BLOB)) - length(CAST(replace({column}, '.', '') AS BLOB))"
    left = f"({dots} - {len(parts) - 1})"
    exact = f"{column} GLOB :{glob} || replace(hex(zeroblob({left})), '00', '.*')"
    return f"({column} GLOB :{glob} || '.?*' AND {exact} AND NOT ({left} = 1 AND {column} GLOB '*.'))"


def _escaped(token: str) -> str:
    return "".join(f"[{char}]" if char in _SPECIAL else char for char in token)
