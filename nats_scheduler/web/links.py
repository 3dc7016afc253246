"""Addresses of the pages: what is asked for is in the query, percent-encoded, and never in the path.

The rule: browsers shorten `..` and `//` in paths, so a subject is in none. What is not UTF-8 in a query is replaced, as
in the answers of the sidecars.
"""

from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlencode

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
