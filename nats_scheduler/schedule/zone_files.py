"""Where time zone data lies: the `tzdata` package, then the host.

One rule: the package comes first, so that all instances of a fleet agree whatever their hosts have installed; the
host is asked only for names that the package lacks (`posix/…`, `right/…`, a company's own zones).
The one file of this room that reads the environment and the disk.
Limit: data inside zip files is not read, neither a zipped `tzdata` nor a `$ZONEINFO` that ends in `.zip`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

_HOST_FOLDERS = (
    "/usr/share/zoneinfo",
    "/usr/share/lib/zoneinfo",
    "/usr/lib/locale/TZ",
    "/etc/zoneinfo",
)
"""Where Go looks on Unix."""

_LARGEST_FILE = 1 << 20
"""Bytes; the largest zone file in use has 4 KB."""

_STAND_INS = {"posixrules": "America/New_York"}
"""Names that hosts have and the package lacks: the tz project's old default for rules without dates."""


def zone_data(name: str) -> Iterator[bytes]:
    """Give what is found under a name, best first; the name may be anything that has no `..` in it."""
    package = _package_folder()
    folders = [package, os.environ.get("ZONEINFO", ""), *_HOST_FOLDERS]
    for folder in folders:
        data = _read(f"{folder}/{name}") if folder else None
        if data is not None:
            yield data
    stand_in = _STAND_INS.get(name)
    data = _read(f"{package}/{stand_in}") if stand_in and package else None
    if data is not None:
        yield data


def local_zone_data() -> bytes | None:
    """Give the data of the host's own zone, found as Go finds it: `$TZ`, or else `/etc/localtime`.

    An empty `$TZ` and `UTC` are UTC, a leading colon is dropped, a path is read, a name is looked up; None is UTC.
    """
    setting = os.environ.get("TZ")
    if setting is None:
        return _read("/etc/localtime")
    name = setting.removeprefix(":")
    if name in ("", "UTC"):
        return None
    if name.startswith("/"):
        return _read(name)
    return next(zone_data(name), None)


def _package_folder() -> str:
    """Give the folder of the `tzdata` package's files, or an empty text where it is not on the disk."""
    spec = find_spec("tzdata")
    places = spec.submodule_search_locations if spec is not None else None
    return os.path.join(next(iter(places)), "zoneinfo") if places else ""


def _read(path: str) -> bytes | None:
    """Read a file whole, or give None where there is none (or the name cannot be a file's)."""
    try:
        with open(path, "rb") as file:
            return file.read(_LARGEST_FILE)
    except (OSError, ValueError):
        return None
