"""The answers of the sidecars as HTML: addresses, numbers, times and the texts of others, by templates.

The rules: every value is escaped, and made visible (`visible`), because the environment does both for each expression
of each template; no template marks anything as safe. Only the value of a field is not made visible (`exact`), since it
is sent back. So a text that a publisher wrote can neither reorder the text
around it nor hide in it. A value that a template misspells is an error. Times are in UTC, lateness has a unit and at
most three digits that matter.
Cost: templates are compiled once.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from nats_scheduler.message.foreign_json import time_of
from nats_scheduler.observe.texts import span_text
from nats_scheduler.schedule.instants import DAY, MILLISECOND, MINUTE, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339


def address(path: str, /, **values: str | None) -> str:
    """Return the address of a page; values that are None or "" are left out.

    Browsers shorten `..` and `//` in paths, so what is asked for is in the query. What is not UTF-8 in it is replaced,
    as in the answers of the sidecars.
    """
    given = {name: value for name, value in values.items() if value}
    query = urlencode(given, quote_via=quote, safe="", errors="replace")
    return f"{path}?{query}" if query else path


MAX_LISTED_CHARS = 160
"""The most characters of a subject or a pattern that a list shows; the page of the schedule shows all of them."""

MAX_TOKEN_CHARS = 36
"""A token of a subject up to this length is not broken: a column of a phone is that wide."""

MOMENT_NS = 10 * SECOND
"""The greatest age (ns) of an answer that is shown as if it was of now."""

_DIGITS = re.compile(r"(\.\d{3})\d+")

UNKNOWN = "–"


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


def utc_text(instant: int | None) -> str:
    """Return an instant (ns) to the second, or to the millisecond if it is between two seconds: 2026-01-31 09:00:00."""
    if instant is None:
        return UNKNOWN
    text = format_rfc3339(instant - instant % SECOND).removesuffix("Z").replace("T", " ")
    milliseconds = instant % SECOND // MILLISECOND
    return f"{text}.{milliseconds:03}" if milliseconds else text


def when_text(instant: int | None, now: int) -> str:
    """Return an instant (ns) as `utc_text`, without the date if that is the date of `now`: 09:00:00."""
    text = utc_text(instant)
    return text[11:] if instant is not None and instant // DAY == now // DAY else text


def clock_text(instant: int | None) -> str:
    """Return an instant (ns) as the time of its day in UTC: 09:00:00."""
    return UNKNOWN if instant is None else format_rfc3339(instant - instant % SECOND)[11:19]


def minute_text(instant: int | None) -> str:
    """Return an instant (ns) as the minute of its day in UTC: 09:00."""
    return clock_text(instant)[:5]


def distance_text(instant: int | None, now: int) -> str:
    """Return how far an instant (ns) is away: `in 3m20s`, `12s ago`, `now`."""
    if instant is None:
        return ""
    away = instant - now
    if -SECOND < away < SECOND:
        return "now"
    span = _coarse(abs(away))
    return f"in {span}" if away > 0 else f"{span} ago"


def upcoming_text(instant: int | None, now: int) -> str:
    """Return how far a fire is away; one that came due a moment ago is due now, since the answer is a moment old."""
    return "now" if instant is not None and -MOMENT_NS < instant - now < SECOND else distance_text(instant, now)


def fewer_digits(text: str) -> str:
    """Return a text in which no number has more than three digits behind its point."""
    return _DIGITS.sub(r"\1", text)


def _coarse(span: int) -> str:
    """Return a span (ns) with no more digits than help: seconds matter below ten minutes only."""
    if 10 * MINUTE <= span < 2 * DAY:
        return span_text(span - span % MINUTE).removesuffix("0s")
    return span_text(span - span % SECOND)


def lateness_text(nanoseconds: float | None) -> str:
    """Return a lateness (ns) with its unit: `0.84 ms`, `12 ms`, `1.3 s`, `2m5s`."""
    if nanoseconds is None:
        return UNKNOWN
    milliseconds = nanoseconds / MILLISECOND
    size = abs(milliseconds)
    if size < 10:
        return f"{milliseconds:.2f} ms".replace("-", "−")
    if size < 1000:
        return f"{milliseconds:.0f} ms".replace("-", "−")
    if size < 100_000:
        return f"{milliseconds / 1000:.1f} s".replace("-", "−")
    return span_text(int(nanoseconds))


def grade(nanoseconds: int | None) -> str:
    """Return the class of a lateness (ns): "" for a usual one, ` much` from 1 s on, ` some` from 100 ms on."""
    if nanoseconds is None or nanoseconds < 100 * MILLISECOND:
        return ""
    return " much" if nanoseconds >= SECOND else " some"


def count_text(number: int) -> str:
    """Return a number with its thousands apart."""
    return f"{number:,}"


def plural(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def templates() -> Environment:
    """Return the environment of all templates."""
    environment = Environment(
        loader=PackageLoader("nats_scheduler.web"),
        autoescape=True,
        finalize=visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals["address"] = address
    environment.filters.update(
        instant=time_of,
        utc=utc_text,
        when=when_text,
        upcoming=upcoming_text,
        fewer_digits=fewer_digits,
        clock=clock_text,
        minute=minute_text,
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
