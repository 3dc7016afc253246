"""Decide which texts are subjects and what they match, as nats-server's sublist.go does.

Rule: every answer is the server's, for any text; none of these functions raises.
The functions take plain text (`str`, invalid UTF-8 as surrogate escapes) and split it at each call: a parsed subject
type would have to be built for each message, and would cost more than it saves. Filters, of which there are few, are
kept.
Cost: linear in the number of tokens, about a microsecond for a usual subject.
Limit: mapping functions such as `{{partition(3,1)}}` are not subjects and are not supported here.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

_ANY_ONE = "*"
_ANY_REST = ">"
_OF_SIDECARS = ("nats_scheduler.v1.", "nats_scheduler.control.", "nats_scheduler.advisory.")
REQUEST_BEGINNINGS = ("$JS.", "$SYS.", "$SRV.", *_OF_SIDECARS)
"""In every account a message on a subject that begins so is a request to a server or a service, or a sidecar's record.

The canary's subjects are none of them: it fires there.
"""
_BLANKS = frozenset("\t\n\f\r ")
_USUAL = r"[\w$:/=-]+(?:\.[\w$:/=-]+)*"
is_usual_subject = re.compile(_USUAL).fullmatch
"""Nearly all subjects match this; they are valid and literal, and need not be split to find out."""


def is_valid_subject(subject: str) -> bool:
    """Return whether `subject` has no empty token, no blank, and `>` only at its end."""
    return is_usual_subject(subject) is not None or _is_valid(subject)


def is_literal_subject(subject: str) -> bool:
    """Return whether `subject` is valid and has no wildcards, so that a client can publish to it.

    As the server does: only a token that *is* `*` or `>` is a wildcard; `foo.a*` is one subject
    (`test_a_star_inside_a_token_is_literal`).
    """
    if is_usual_subject(subject) is not None:
        return True
    return _is_valid(subject) and not _has_wildcard(subject.split("."))


def request_beginnings(api_prefix: str, inbox_prefix: str, bucket: str) -> tuple[str, ...]:
    """Return how all subjects begin on which a message is more than stored, as a connection reaches them.

    JetStream may be imported under a prefix of its own, its acknowledgements beside it. In an inbox a message is the
    answer to a question, and sidecars believe what is in their bucket.
    """
    beside = api_prefix.removesuffix(".API")
    imported = (f"{api_prefix}.", f"{beside}.ACK.", f"{beside}.FC.")
    return (*REQUEST_BEGINNINGS, *imported, f"{inbox_prefix}.", f"$KV.{bucket}.")


def subject_matches(subject: str, filter: str) -> bool:  # noqa: A002 - the client's and the server's word
    """Return whether every message on `subject` matches `filter`; `subject` may contain wildcards too.

    As the server does: a filter token that only starts with `*` matches any token
    (`test_a_filter_token_that_starts_with_a_star_passes_anything`).
    """
    return _is_subset(subject.split("."), _tokens(filter))


@lru_cache(maxsize=128)
def _tokens(filter: str) -> tuple[str, ...]:  # noqa: A002 - as above
    """Return the tokens of a filter; cached, because a long one is compared with many subjects."""
    return tuple(filter.split("."))


def is_covered(subject: str, stream_subjects: Sequence[str]) -> bool:
    """Return whether one of the stream's subjects covers `subject`, which is literal."""
    return covering(tuple(stream_subjects))(subject) is not None


@lru_cache(maxsize=256)
def covering(stream_subjects: tuple[str, ...]) -> Callable[[str], re.Match[str] | None]:
    """Return what finds whether the subjects of a stream cover a literal subject: it returns None if none does.

    One regular expression; cached, because all schedules of the stream need the same.
    """
    return re.compile(_any_of(stream_subjects), re.DOTALL).fullmatch


@lru_cache(maxsize=256)
def covering_usual(stream_subjects: tuple[str, ...]) -> Callable[[str], re.Match[str] | None]:
    """Return what finds whether a text is a usual subject (`is_usual_subject`) that the subjects of a stream cover."""
    return re.compile(rf"(?=(?:{_any_of(stream_subjects)})\Z){_USUAL}", re.DOTALL).fullmatch


def _any_of(stream_subjects: tuple[str, ...]) -> str:
    return "|".join(map(_expression, stream_subjects)) or r"(?!)"


def _expression(covering: str) -> str:
    """Return the regular expression of the literal subjects that `covering` matches."""
    tokens = covering.split(".")
    if not _has_wildcard(tokens):
        return re.escape(covering)
    end = tokens.index(_ANY_REST) if _ANY_REST in tokens else len(tokens)
    parts = ["[^.]+" if token.startswith(_ANY_ONE) else re.escape(token) for token in tokens[:end]]
    if end < len(tokens):
        parts.append(".+")
    return r"\.".join(parts)


def _is_valid(subject: str) -> bool:
    if not _BLANKS.isdisjoint(subject):
        return False
    tokens = subject.split(".")
    return "" not in tokens and _ANY_REST not in tokens[:-1]


def pattern_or_part(text: str | None) -> tuple[str | None, str | None]:
    """Return what a person types to search: as a subject if it has wildcards, or else as a part of one."""
    if not text:
        return None, None
    return (text, None) if _has_wildcard(text.split(".")) else (None, text)


def _has_wildcard(tokens: Sequence[str]) -> bool:
    return _ANY_ONE in tokens or _ANY_REST in tokens


def _is_subset(tokens: Sequence[str], tests: Sequence[str]) -> bool:
    """Compare both subjects token by token; the first pair that does not match decides."""
    for token, test in zip(tokens, tests, strict=False):
        if test == _ANY_REST:
            return True
        if not _token_matches(token, test):
            return False
    return len(tokens) == len(tests)


def _token_matches(token: str, test: str) -> bool:
    if token == test:
        return token not in ("", _ANY_REST)
    return test.startswith(_ANY_ONE) and token not in ("", _ANY_REST, _ANY_ONE)
