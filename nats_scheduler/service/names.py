"""Cursors of lists that are in the order of their names: streams, instances, subjects."""

import base64
import binascii

from nats_scheduler.service.endpoint import shown
from nats_scheduler.service.micro import BAD_REQUEST, ServiceError


def name_cursor(name: str) -> str:
    """Return the cursor of the page that begins after a name."""
    return base64.urlsafe_b64encode(name.encode("utf-8", "surrogateescape")).decode()


def read_name_cursor(text: str | None) -> str:
    """Return the name of a cursor, "" for none; raises `ServiceError`."""
    try:
        return base64.b64decode(text or "", altchars=b"-_", validate=True).decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        raise ServiceError(BAD_REQUEST, f"cursor of {shown(text)}: the cursor of another page is expected") from None
