"""Templates: HTML from what the sidecars answered.

The rules: every value is escaped, and made visible (`shown.visible`), because the environment does both for each
expression of each template; no template marks anything as safe. A value that a template misspells is an error.
Cost: templates are compiled once.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from nats_scheduler.message.foreign_json import time_of
from nats_scheduler.web import shown

# Addresses of the pages: what is asked for is in the query, percent-encoded, and never in the path.
#
# The rule: browsers shorten `..` and `//` in paths, so a subject is in none. What is not UTF-8 in a query is
# replaced, as in the answers of the sidecars.

MAX_VALUES = 20
"""Values in one query; more are not read."""


def address(path: str, **values: str | None) -> str:
    """Return the address of a page; values that are None or "" are left out."""
    given = {name: value for name, value in values.items() if value}
    query = urlencode(given, quote_via=quote, safe="", errors="replace")
    return f"{path}?{query}" if query else path


def query_values(query: bytes) -> Mapping[str, str]:
    """Return the values of a query, or of a form; of several with one name, the last."""
    try:
        return dict(parse_qsl(query.decode("latin-1"), errors="replace", max_num_fields=MAX_VALUES))
    except ValueError:  # too many values
        return {}


form_values = query_values
"""A form is sent in the same form."""


def templates() -> Environment:
    """Return the environment of all templates."""
    environment = Environment(
        loader=PackageLoader("nats_scheduler.web"),
        autoescape=True,
        finalize=shown.visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals["address"] = address
    environment.filters.update(
        instant=time_of,
        utc=shown.utc_text,
        when=shown.when_text,
        upcoming=shown.upcoming_text,
        fewer_digits=shown.fewer_digits,
        clock=shown.clock_text,
        minute=shown.minute_text,
        distance=shown.distance_text,
        lateness=shown.lateness_text,
        count=shown.count_text,
        plural=shown.plural,
        listed=shown.listed,
        grade=shown.grade,
        width=shown.width_class,
    )
    return environment


def render(environment: Environment, name: str, values: Mapping[str, Any]) -> bytes:
    """Return a page as UTF-8; what cannot be encoded is replaced."""
    return environment.get_template(name).render(values).encode("utf-8", "replace")
