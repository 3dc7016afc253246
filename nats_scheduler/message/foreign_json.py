"""JSON of other clients: requests, answers on subjects that any client may publish to, a bucket that any may write.

The rule: the result is a JSON object of text that can be encoded again, or nothing. A value that is asked for has the
type that was asked for, or counts as absent.
As the server does: what is not UTF-8, and half a surrogate pair, become replacement characters; NaN is not a number.
Limit: a document that nests deeper than Python's reader can read (about a thousand levels) counts as no document.
"""

import binascii
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.rfc3339 import parse_rfc3339

Object = dict[str, Any]

_INT64_LIMIT = 1 << 63
_SURROGATE = "\\ud"
_STRAY_BYTE = re.compile("[\udc80-\udcff]")


def read_object(document: bytes) -> Object | None:
    """Read an object; None for anything else."""
    try:
        text = document.decode("utf-8", "replace")
        value = _READER.decode(text)
        if _SURROGATE in text.lower():
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_expressible(text: str) -> bool:
    """Return whether a request can name a subject.

    JSON cannot hold bytes that are not UTF-8. Servers store messages on subjects with a DEL, and do not find them again
    by subject.
    """
    return "\x7f" not in text and (text.isascii() or not _STRAY_BYTE.search(text))


def as_answered(subject: str) -> str:
    """Return a subject as an answer in JSON shows it: what is not UTF-8 is replaced, and several look the same then."""
    return _STRAY_BYTE.sub("\ufffd", subject)


def integer(value: Any, otherwise: int = 0) -> int:
    """Return an integer of 64 bits, or `otherwise` if the value is none."""
    return value if _is_integer(value) else otherwise


def count_of(value: Any) -> int:
    """Return a number that is not negative, 0 if the value is none."""
    return max(integer(value), 0)


def time_of(value: Any) -> int | None:
    """Return an instant (ns since the Unix epoch), None if the value is none."""
    instant = parse_rfc3339(value) if isinstance(value, str) else None
    return instant if isinstance(instant, int) else None


def inner(value: Any) -> Object:
    """Return an object, or an empty one if the value is none."""
    return value if isinstance(value, dict) else {}


def stored_message(value: Any) -> StoredMessage | None:
    """Return the message of a `STREAM.MSG.GET` answer as it was stored, None if the value is none."""
    given = inner(value)
    subject, sequence, stored_at = given.get("subject"), integer(given.get("seq")), time_of(given.get("time"))
    if not isinstance(subject, str) or sequence < 1 or stored_at is None:
        return None
    try:
        block, body = (binascii.a2b_base64(given.get(key) or "") for key in ("hdrs", "data"))
    except (ValueError, TypeError):
        return None
    return StoredMessage(subject, sequence, stored_at, block, body)


def has_types(config: Object, types: dict[str, Callable[[Any], bool]]) -> bool:
    """Return whether every field has its type; null stands for any, and what `types` does not name may be anything."""
    return all(value is None or key not in types or types[key](value) for key, value in config.items())


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_READER = json.JSONDecoder(parse_constant=_refuse)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_INT64_LIMIT <= value < _INT64_LIMIT


def _is_unsigned(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2 * _INT64_LIMIT


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_switch(value: Any) -> bool:
    return isinstance(value, bool)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(one is None or isinstance(one, str) for one in value)


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(one is None or isinstance(one, dict) for one in value)


def _is_metadata(value: Any) -> bool:
    return isinstance(value, dict) and all(one is None or isinstance(one, str) for one in value.values())


STREAM_CONFIG_TYPES: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(
        ("name", "description", "retention", "storage", "discard", "template_owner", "compression"), _is_text
    ),
    **dict.fromkeys(("max_consumers", "max_msgs", "max_bytes", "max_age", "max_msgs_per_subject"), _is_integer),
    **dict.fromkeys(("max_msg_size", "num_replicas", "duplicate_window"), _is_integer),
    "first_seq": _is_unsigned,
    **dict.fromkeys(("no_ack", "sealed", "deny_delete", "deny_purge", "allow_rollup_hdrs", "allow_direct"), _is_switch),
    **dict.fromkeys(("mirror_direct", "discard_new_per_subject"), _is_switch),
    **dict.fromkeys(("placement", "mirror", "republish", "subject_transform", "consumer_limits"), _is_object),
    "subjects": _are_texts,
    "sources": _are_objects,
    "metadata": _is_metadata,
}
"""The types of a stream's configuration: every server refuses another type with 10025.

Fields that came after 2.10 are not listed: a server that does not know a field ignores it, whatever its type.
"""

REMOVAL_TYPES: dict[str, Callable[[Any], bool]] = {
    "filter": _is_text,
    "seq": _is_unsigned,
    "keep": _is_unsigned,
    "no_erase": _is_switch,
}
"""The types of a request to purge a stream or to delete a message."""


def server_time(info: Mapping[str, Any] | None) -> int | None:
    """Return when an answer was made (ns since the Unix epoch); None if it does not say.

    STREAM.INFO and CONSUMER.INFO say it on every version from 2.10 on.
    """
    return None if info is None else time_of(info.get("ts"))
