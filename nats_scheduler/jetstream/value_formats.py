"""The formats of the values in the registry's bucket: each value says which one it has, and an unknown one is refused.

During a rolling update sidecars of two versions share the bucket, and after a rollback an older one finds what a
newer one wrote. A reader that guesses would lose what it does not know: fires that count as settled, a stream that
another instance owns.

The rules:

- A value has the number of its format under `format`. One without a number is of the version before these numbers
  (0.1.0), and is read as format 1, which has the same keys.
- A key that is added, and that readers may ignore, changes no number.
- A value of an unknown format is never read as something else, and never replaced by a value of ours:
  `UnknownFormatError` is raised before it can be.
- A value that instances share (`runtime.shared`) has a number in each entry, since each instance writes only
  its own.
- A number is raised in two releases: one that reads the new format, and a later one that writes it. So two
  successive versions understand each other: `docs/internals/formats.md`.
"""

from collections.abc import Mapping
from typing import Any

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.message.foreign_json import Object
from nats_scheduler.schedule.invalid import MAX_SHOWN_CHARS
from nats_scheduler.version import VERSION

FORMAT = "format"
"""The key of the number."""

FORMATS: Mapping[str, int] = {"checkpoint": 1, "instance": 1, "owner": 1, "stream": 1}
"""The format of each kind of value that this version writes; the kind is the first token of the key."""

ENTRY_FORMATS: Mapping[str, int] = {"failing": 1, "settings": 1}
"""The format of the entries of each value that instances share, by its key."""


class UnknownFormatError(SchedulerError):
    """A value of the registry is of a format that this version cannot read. The operator acts, or a newer sidecar."""

    def __init__(self, key: str, found: object, known: int) -> None:
        number = str(found)[:MAX_SHOWN_CHARS] if type(found) is int else "that is no number"
        super().__init__(
            f"{key} has a format {number}, and nats-scheduler {VERSION} reads format {known}: "
            "a newer version wrote it and has to serve it, this one leaves it as it is"
        )
        self.key = key


def marked(key: str, value: Object, formats: Mapping[str, int] = FORMATS) -> Object:
    """Return a value of ours with the number of its format."""
    known = formats.get(kind_of(key))
    return value if known is None else {FORMAT: known, **value}


def read_as_known(key: str, value: Object, formats: Mapping[str, int] = FORMATS) -> Object:
    """Return a value without the number of its format; raises `UnknownFormatError` if that is not ours."""
    known = formats.get(kind_of(key))
    if known is None or FORMAT not in value:
        return value
    found = value[FORMAT]
    if type(found) is not int or found != known:
        raise UnknownFormatError(key, found, known)
    return {name: one for name, one in value.items() if name != FORMAT}


def kind_of(key: str) -> str:
    """Return the kind of value that is stored under a key."""
    return key.partition(".")[0]


def known_entries(key: str, entries: Object) -> tuple[Object, list[UnknownFormatError]]:
    """Return the entries of a shared value that this version reads, and what is wrong with each of the others."""
    known: dict[str, Any] = {}
    unknown: list[UnknownFormatError] = []
    for name, entry in entries.items():
        try:
            known[name] = read_as_known(key, entry, ENTRY_FORMATS) if isinstance(entry, dict) else entry
        except UnknownFormatError as error:
            unknown.append(error)
    return known, unknown
