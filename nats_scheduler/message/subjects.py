"""Decide what a subject is and what it matches, as nats-server's sublist.go does.

Rule: every answer is the server's, for any text; none of these functions raises. The functions work on text
as it comes (`str`, invalid UTF-8 as surrogate escapes) and split it anew at each call: a parsed subject type
would have to be built for each message, and costs more than it saves.
Cost: linear in the number of tokens, about a microsecond for a usual subject.
Limit: mapping functions such as `{{partition(3,1)}}` are not subjects and are not known here.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

_ANY = "*"
_REST = ">"
_ORDERS = ("$JS.", "$SYS.")
_BLANKS = frozenset("\t\n\f\r ")
# Nearly all subjects look like this, and need no splitting to be known as valid and literal.
_usual = re.compile(r"[\w$:/=-]+(?:\.[\w$:/=-]+)*").fullmatch


def is_valid_subject(subject: str) -> bool:
    """Return whether `subject` has no empty token, no blank, and `>` only at its end."""
    return _usual(subject) is not None or _is_valid(subject)


def is_literal_subject(subject: str) -> bool:
    """Return whether `subject` is valid and names exactly one subject, so that one may publish to it.

    As the server does: only a token that *is* `*` or `>` is a wildcard, `foo.a*` names one subject
    (`test_a_star_inside_a_token_is_literal`).
    """
    if _usual(subject) is not None:
        return True
    return _is_valid(subject) and not _has_wildcard(subject.split("."))


def is_order(subject: str) -> bool:
    """Return whether a message on `subject` is an order to the server, whichever streams keep it as well.

    A stream may record `$JS.API.>`; the native scheduler stores a generated message there without its being carried
    out, and whoever publishes one gives the order with his own permissions.
    """
    return subject.startswith(_ORDERS)


def subject_matches(subject: str, filter: str) -> bool:  # noqa: A002 - the client's and the server's word
    """Return whether every message on `subject` passes `filter`; `subject` may hold wildcards too.

    As the server does: a filter token that only starts with `*` lets any token pass
    (`test_a_filter_token_that_starts_with_a_star_passes_anything`).
    """
    return _is_subset(subject.split("."), filter.split("."))


def is_covered(subject: str, stream_subjects: Sequence[str]) -> bool:
    """Return whether the stream owns `subject`, which is literal: one of its subjects collides with it."""
    return _owned_by(tuple(stream_subjects))(subject) is not None


@lru_cache(maxsize=256)
def _owned_by(stream_subjects: tuple[str, ...]) -> Callable[[str], re.Match[str] | None]:
    """Turn the subjects of a stream into one expression; cached because each schedule asks the same few."""
    return re.compile("|".join(map(_expression, stream_subjects)) or r"(?!)", re.DOTALL).fullmatch


def _expression(covering: str) -> str:
    """Write the expression of the literal subjects that collide with `covering`."""
    tokens = covering.split(".")
    if not _has_wildcard(tokens):
        return re.escape(covering)
    end = tokens.index(_REST) if _REST in tokens else len(tokens)
    parts = ["[^.]+" if token.startswith(_ANY) else re.escape(token) for token in tokens[:end]]
    if end < len(tokens):
        parts.append(".+")
    return r"\.".join(parts)


def _is_valid(subject: str) -> bool:
    if not _BLANKS.isdisjoint(subject):
        return False
    tokens = subject.split(".")
    return "" not in tokens and _REST not in tokens[:-1]


def _has_wildcard(tokens: Sequence[str]) -> bool:
    return _ANY in tokens or _REST in tokens


def _is_subset(tokens: Sequence[str], tests: Sequence[str]) -> bool:
    """Walk both subjects token by token; the first pair that cannot match decides."""
    for token, test in zip(tokens, tests, strict=False):
        if test == _REST:
            return True
        if not _token_passes(token, test):
            return False
    return len(tokens) == len(tests)


def _token_passes(token: str, test: str) -> bool:
    if token == test:
        return token not in ("", _REST)
    return test.startswith(_ANY) and token not in ("", _REST, _ANY)
