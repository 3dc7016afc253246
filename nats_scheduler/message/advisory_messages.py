"""Build the messages that advisories are: subject, headers and body.

The rule: the subject names the kind, the stream and the schedule, so that a subscriber, and the limit per subject of
the stream that keeps advisories, can distinguish schedules. The body says all of it again.
A schedule's subject that cannot be a part of another subject, or is too long for that, is left out of the subject.
The message id is a digest of the body: two sidecars that report the same, or one that reports it again after a restart,
store it once.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nats_scheduler.message.headers import MSG_ID, with_headers
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.subjects import is_literal_subject

ADVISORY_PREFIX = "nats_scheduler.advisory"
"""Advisories are published on `nats_scheduler.advisory.<kind>.<stream>.<schedule>`."""

ADVISORY_TYPE = "io.nats_scheduler.advisory.v1"

SCHEDULE_CHANGED = "schedule_changed"
"""The kind of advisory that is about a change, and not about something that went wrong (`control.change_advisory`)."""

MAX_ADVISORY_SUBJECT_BYTES = 1_024
"""Longest subject of an advisory: clients and servers read lines of 4,096 bytes, which contain it and other names."""


class AdvisoryMessage(NamedTuple):
    """An advisory as it is published."""

    subject: str
    body: bytes
    block: bytes
    """Its headers."""


Publish = Callable[[AdvisoryMessage], object]
"""Publishes without waiting."""


def no_advice(_message: AdvisoryMessage) -> None:
    """Publish no advisory: there is no connection."""


def advisory_message(kind: str, stream: str, fields: Mapping[str, Any]) -> AdvisoryMessage:
    """Return the advisory of a kind about a stream; `fields` are the keys of its body."""
    body = json.dumps({"type": f"{ADVISORY_TYPE}.{kind}", "stream": stream, **fields}).encode()
    digest = hashlib.sha256(body).hexdigest()[:32]
    about = fields.get("schedule") or fields.get("subject") or ""
    block = with_headers(b"", [(MSG_ID, f"{kind}:{digest}".encode())])
    return AdvisoryMessage(advisory_subject(kind, stream, about), body, block)


def advisory_subject(kind: str, stream: str, about: str) -> str:
    """Return the subject of an advisory; `about` is the subject of a schedule or message, "" if it is about none."""
    general = f"{ADVISORY_PREFIX}.{kind}.{stream}"
    whole = f"{general}.{about}"
    try:
        length = len(whole.encode())
    except UnicodeEncodeError:  # not UTF-8: other clients could not read the subject
        return general
    return whole if is_literal_subject(about) and length <= MAX_ADVISORY_SUBJECT_BYTES else general


def rejection_fields(rejection: Rejection) -> dict[str, Any]:
    """Return what an advisory and a log line say about a rejection."""
    rejection = rejection.shortened()
    return {
        "code": rejection.code,
        "description": rejection.description,
        "header": rejection.header,
        "value": rejection.value,
        "reason": rejection.reason,
    }
