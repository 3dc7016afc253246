"""Write the headers of a definition: the inverse of reading them.

The rules:

- The block that is written reads to the same definition, on every stream that accepts that definition. What the
  publisher's message holds besides it (other headers, its own TTL and roll-up) is no part of a definition.
- Values are written as they were read, byte for byte: a pattern may end in a blank, and a subject may not be UTF-8.
- A value that contains the name of a header can hide from the server a header of that name that comes later
  (`test_a_subject_that_hides_a_header_is_written_behind_it`). So the block is read again, and the headers are put into
  another order if that is needed. For every definition that was read there is such an order.

Limit: 64 KiB, the server's limit for a block, is not checked here.
"""

from collections.abc import Iterable, Sequence

from nats_scheduler.message.definition import Definition, Terms
from nats_scheduler.message.dialect import Dialect, schedule_fields
from nats_scheduler.message.headers import CRLF, HEADER_LINE, Header
from nats_scheduler.message.policies import X_TARGET, with_policies
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.patterns import parse_pattern


def defined(text: str, terms: Terms, time_zone: str | None = None) -> Definition:
    """Return the definition with a pattern as it is written in its header, and with the time zone of that pattern.

    The policies of the terms, which contain their written form, apply to the pattern.

    Raises `ValueError` if the pattern or the time zone is invalid; the subjects are not checked.
    """
    pattern = parse_pattern(text, time_zone, terms.policies.syntax)
    if pattern is None or isinstance(pattern, Invalid):
        raise ValueError(f"{text!r} with the time zone {time_zone!r} is no pattern: {pattern or 'it never fires'}")
    return Definition(with_policies(pattern, terms.policies), terms)


def definition_headers(definition: Definition) -> list[Header]:
    """Return the names and values of the headers of a definition, in the spelling of its dialect.

    Raises `ValueError` if no message can have this definition: a value contains a line break, or begins with a blank.
    """
    headers = _in_usual_order(definition)
    for order in _orders(headers, definition.terms.dialect):
        if _reads_to(_block(order), definition, headers):
            return order
    shown = ", ".join(f"{name.decode()}: {value.decode('utf-8', 'replace')!r}" for name, value in headers)
    raise ValueError(f"no message can have the headers {shown}; expected values of one line without leading blanks")


def definition_block(definition: Definition) -> bytes:
    """Return the header block of a message that has this definition and nothing else.

    Raises `ValueError` if no message can have this definition.
    """
    return _block(definition_headers(definition))


def _in_usual_order(definition: Definition) -> list[Header]:
    pattern, (dialect, target, source, ttl, rollup, policies) = definition
    values = [
        (dialect.schedule, pattern.text),
        (dialect.time_zone, pattern.time_zone),
        (dialect.target, target if policies.target_stream is None else None),
        (dialect.source, source),
        (dialect.ttl, ttl or None),
        (dialect.rollup, "sub" if rollup else None),
    ]
    values += [(dialect.schedule + b"-" + name.encode(), value) for name, value in policies.written]
    return [(name, value.encode("utf-8", "surrogateescape")) for name, value in values if value is not None]


def _orders(headers: list[Header], dialect: Dialect) -> Iterable[list[Header]]:
    """Yield the usual order, and two that end in the target and the source: only these can hide other headers."""
    yield headers
    subjects = [header for header in headers if header[0] in (dialect.target, dialect.source, X_TARGET)]
    others = [header for header in headers if header not in subjects]
    yield others + subjects
    yield others + subjects[::-1]


def _reads_to(block: bytes, definition: Definition, headers: Sequence[Header]) -> bool:
    read = schedule_fields(block, definition.terms.dialect)
    return read == {name: value.decode("utf-8", "surrogateescape") for name, value in headers}


def _block(headers: Iterable[Header]) -> bytes:
    lines = [b"%b: %b%b" % (name, value, CRLF) for name, value in headers]
    return b"".join((HEADER_LINE, *lines, CRLF))
