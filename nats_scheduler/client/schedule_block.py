"""The form of a schedule that a Python program says, and its header block for the stream that stores it.

The rule: which headers are written is decided where the command line decides it too (`control.spelling`). The block
reads to what was written (`ScheduleForm.to_block`): a value that would hide another header from a server is refused.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from nats_scheduler.client.serving import Serving, Sidecar
from nats_scheduler.client.times import nanoseconds_of
from nats_scheduler.client.values import Elsewhere
from nats_scheduler.client.when import InvalidScheduleError, When
from nats_scheduler.control.spelling import spelling_of
from nats_scheduler.message.dialect import ADR51, PORTABLE
from nats_scheduler.message.headers import with_headers
from nats_scheduler.message.rejection import TTL_INVALID, Rejection
from nats_scheduler.message.rights import lent_header
from nats_scheduler.message.schedule_form import BESIDE_PATTERN, Field, FormArguments, ScheduleForm
from nats_scheduler.schedule.durations import format_duration
from nats_scheduler.schedule.instants import SECOND

Headers = Mapping[str, str] | Sequence[tuple[str, str]]

_NAME = re.compile(r"[!-9;-~]+").fullmatch
_BREAK = re.compile(r"[\r\n]").search


@dataclass(frozen=True, slots=True)
class Wanted:
    """A schedule that is to be stored."""

    when: When
    target: str | Elsewhere
    given: FormArguments = field(default_factory=FormArguments)
    headers: Headers = ()

    def form(self, now: int) -> ScheduleForm:
        """Return its form if it is stored now (ns); raises `InvalidScheduleError`, and `TypeError`."""
        form = replace(self.when.form(now), headers=headers_of(self.headers), **texts_of(self.given))
        return with_target(form, self.target)


def spelled(wanted: Wanted, serving: Serving, now: int) -> bytes:
    """Return the header block of a schedule that is stored now (ns) on a stream.

    Raises `NotServedError` if nothing would fire it, and `InvalidScheduleError`.
    """
    form = wanted.form(now)
    dialect = spelling_of(serving.served, form.items(ADR51), now, missing=_missing(serving))
    block = form.to_block(dialect)
    if isinstance(block, Rejection):
        raise InvalidScheduleError(str(block), block.code or None)
    return block


def _missing(serving: Serving) -> str:
    if serving.sidecar is Sidecar.UNKNOWN:
        return "this user may not ask whether one runs"
    if serving.sidecar is Sidecar.NOT_HERE:
        return "the sidecar that answers does not serve the stream"
    return "no sidecar answers"


def with_target(form: ScheduleForm, target: str | Elsewhere) -> ScheduleForm:
    """Return a form with a target of either kind, in place of the one that it has."""
    policies = [one for one in form.policies if one[0] != "X-Target"]
    if not isinstance(target, Elsewhere):
        return replace(form, target=line_of("target", target), policies=tuple(policies))
    policies.append(("X-Target", line_of("target", target.subject)))
    return replace(form, target=None, policies=tuple(sorted(policies)))


def texts_of(given: FormArguments) -> dict[str, Any]:
    """Return the fields that a program names, as a form has them; None for one that is switched off.

    Raises `InvalidScheduleError` for a value that no header has, and `TypeError` also for a name that is no field.
    """
    values, fields = dict(given), {one.name: one for one in BESIDE_PATTERN if one.name in FormArguments.__annotations__}
    if unknown := values.keys() - fields.keys():
        raise TypeError(f"{min(unknown)!r} is no argument: expected one of {', '.join(fields)}")
    return {name: _text_of(fields[name], value) for name, value in values.items() if value is not None}


def _text_of(field: Field, value: Any) -> str | None:
    if field.on:
        return field.text(value)
    return line_of(field.name, _duration_text(field.name, value) if field.kind == "duration" else value)


def _duration_text(name: str, value: Any) -> str:
    if value == "never":
        return "never"
    if not isinstance(value, timedelta):
        raise InvalidScheduleError(f"{name} of {value!r}: expected a timedelta, or 'never'", TTL_INVALID.code)
    nanoseconds = nanoseconds_of(value, name)
    if nanoseconds < SECOND:
        raise InvalidScheduleError(f"{name} of {value} is less than a second", TTL_INVALID.code)
    return format_duration(nanoseconds)


def headers_of(headers: Headers) -> tuple[tuple[str, str], ...]:
    """Return further headers of the program; raises `ValueError` for what is none, or is one of a schedule."""
    items: Iterable[tuple[str, str]] = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((checked_name(name), line_of(name, value)) for name, value in items)


def checked_name(name: str) -> str:
    """Return the name of a header of the program's own."""
    if not _NAME(name):
        raise InvalidScheduleError(f"header of {name!r}: a name has ASCII letters, digits and '-', and no blanks")
    if name.startswith((ADR51.schedule.decode(), PORTABLE.schedule.decode())):
        raise InvalidScheduleError(f"header of {name!r} belongs to the schedule: give it as an argument")
    if lent_header(with_headers(None, [(name.encode(), b"")])) is not None:
        raise InvalidScheduleError(f"header of {name!r} would make the server do more than to store the message")
    return name


def line_of(name: str, value: str) -> str:
    """Return a value as a header has it, without blanks around it.

    Raises `InvalidScheduleError` if it has a line break, and `TypeError`.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} of {value!r} is no text")
    if _BREAK(value):
        raise InvalidScheduleError(f"{name} of {value[:80]!r} has a line break: a header is one line")
    return value.strip(" \t")
