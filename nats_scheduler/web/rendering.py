"""The answers of the sidecars as HTML: addresses, numbers, times and the texts of others, by templates.

The rules: every value is escaped, and made visible (`visible`), because the environment does both for each expression
of each template; no template marks anything as safe. Only the value of a field is not made visible (`exact`), since it
is sent back. So a text that a publisher wrote can neither reorder the text around it nor hide in it. A value that a
template misspells is an error. Instants, spans and lateness are written by `observe.times`, in UTC; the time in the
zone of the reader stands beside them.
Cost: templates are compiled once.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from nats_scheduler.message.foreign_json import time_of
from nats_scheduler.message.schedule_form import FIELDS
from nats_scheduler.observe.times import (
    clock_text,
    count_text,
    distance_text,
    lateness_text,
    local_text,
    minute_text,
    plural,
    upcoming_text,
    utc_text,
    when_text,
)
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.schedule.zones import Zone


def address(path: str, /, **values: str | None) -> str:
    """Return the address of a page; values that are None or "" are left out.

    Browsers shorten `..` and `//` in paths, so what is asked for is in the query. What is not UTF-8 in it is replaced,
    as in the answers of the sidecars.
    """
    given = {name: value for name, value in values.items() if value}
    query = urlencode(given, quote_via=quote, safe="", errors="replace")
    return f"{path}?{query}" if query else path


MAX_SEQUENCE_DIGITS = 19


def sequence_in(text: str) -> int | None:
    """Return the sequence that an address or a form names; None if it names none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_SEQUENCE_DIGITS else None


MAX_LISTED_CHARS = 160
"""The most characters of a subject or a pattern that a list shows; the page of the schedule shows all of them."""

MAX_TOKEN_CHARS = 36
"""A token of a subject up to this length is not broken: a column of a phone is that wide."""


def visible(value: object) -> object:
    """Return a text with every character that is not printable escaped; anything else as it is, None as nothing."""
    if value is None:
        return ""
    if isinstance(value, Markup) or not isinstance(value, str) or value.isprintable():
        return value
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in value)


def exact(value: object) -> Markup:
    """Return the value of a field of a form, which is sent back as it is: escaped, and not made visible."""
    return escape(value)


def listed(text: str | None) -> str:
    """Return a text as short as a list needs it."""
    text = text or ""
    return text if len(text) <= MAX_LISTED_CHARS else f"{text[:MAX_LISTED_CHARS]}…"


def width_class(subject: str | None) -> str:
    """Return the class of a subject: ` long` if one of its tokens has to be broken to fit into a column, else ""."""
    return " long" if any(len(token) > MAX_TOKEN_CHARS for token in (subject or "").split(".")) else ""


def grade(nanoseconds: int | None) -> str:
    """Return the class of a lateness (ns): "" for a usual one, ` much` from 1 s on, ` some` from 100 ms on."""
    if nanoseconds is None or nanoseconds < 100 * MILLISECOND:
        return ""
    return " much" if nanoseconds >= SECOND else " some"


@pass_context
def local(context: Context, instant: int | None, now: int) -> Markup | str:
    """Return an instant (ns) in the time zone of the reader, to stand behind the one in UTC; "" without such a zone."""
    zone: Zone | None = context.get("reader_zone")
    if zone is None or instant is None:
        return ""
    return Markup(' <span class="local">{}</span>').format(local_text(instant, now, zone))


def templates(prefix: str = "") -> Environment:
    """Return the environment of all templates, in which each address begins with the prefix of a proxy."""
    environment = Environment(
        loader=PackageLoader("nats_scheduler.web"),
        autoescape=True,
        finalize=visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals["address"] = lambda path, **values: f"{prefix}{address(path, **values)}"
    environment.globals["fields"] = FIELDS
    environment.filters.update(
        instant=time_of,
        utc=utc_text,
        when=when_text,
        upcoming=upcoming_text,
        clock=clock_text,
        minute=minute_text,
        local=local,
        distance=distance_text,
        lateness=lateness_text,
        count=count_text,
        plural=plural,
        listed=listed,
        exact=exact,
        grade=grade,
        width=width_class,
    )
    return environment


def render(environment: Environment, name: str, values: Mapping[str, Any]) -> bytes:
    """Return a page as UTF-8; what cannot be encoded is replaced."""
    return environment.get_template(name).render(values).encode("utf-8", "replace")
