"""A place in a list of schedules, soonest first, as a text that a requester sends back for the next page.

Cost: some microseconds.
"""

import base64
import binascii
import json
from typing import NamedTuple

NO_FIRE = 1 << 100
"""Stands for the next fire (ns) of a schedule that has none: later than all others."""


class Cursor(NamedTuple):
    """A place in the order of a page."""

    fire: int
    """The next fire (ns), or `NO_FIRE`."""
    subject: str

    @property
    def text(self) -> str:
        """The cursor for a client, which is not meant to read it."""
        return base64.urlsafe_b64encode(json.dumps(self).encode()).decode()


def read_cursor(text: str) -> Cursor | None:
    """Return the cursor with this text, None if it is not one of ours."""
    try:
        fire, subject = json.loads(base64.b64decode(text, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, TypeError, RecursionError):
        return None
    is_cursor = isinstance(fire, int) and not isinstance(fire, bool) and isinstance(subject, str)
    return Cursor(fire, subject) if is_cursor else None
