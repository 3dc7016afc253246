"""Where time zone data is found: in the `tzdata` package, then on the host.

The rules:

- The package comes first, so that all instances of a fleet agree, whatever is installed on their hosts. The files of
  the host are read only for names that the package lacks (`posix/…`, `right/…`, a company's own zones).
- This is the only file of this room that reads the environment and the disk.

Limit: data inside zip files is not read, neither a zipped `tzdata` nor a `$ZONEINFO` that ends in `.zip`.
"""

import os
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec

_HOST_FOLDERS = (
    "/usr/share/zoneinfo",
    "/usr/share/lib/zoneinfo",
    "/usr/lib/locale/TZ",
    "/etc/zoneinfo",
)
"""Where Go searches on Unix."""

_MAX_FILE_BYTES = 1 << 20
"""The largest zone file in use has 4 KB."""

_SUBSTITUTES = {"posixrules": "America/New_York"}
"""Names that hosts have and the package lacks: the tz project's old default for rules without dates."""


def zone_data(name: str) -> Iterator[bytes]:
    """Yield the data that is found under a name, best first; the caller has checked that the name contains no `..`."""
    package = package_folder()
    yield from _found(name, package, *_host_folders())
    if name in _SUBSTITUTES:
        yield from _found(_SUBSTITUTES[name], package)


def host_zone_data(name: str) -> bytes | None:
    """Return the data of a zone that a server on this host uses, None if it has none; the name contains no `..`."""
    return next(_found(name, *_host_folders()), None)


def package_zone_data(name: str) -> bytes | None:
    """Return the data of a zone in the `tzdata` package, None if it has none; the name contains no `..`."""
    return next(_found(name, package_folder()), None)


def _host_folders() -> tuple[str, ...]:
    return (os.environ.get("ZONEINFO", ""), *_HOST_FOLDERS)


def _found(name: str, *folders: str) -> Iterator[bytes]:
    for folder in folders:
        if folder and (data := _read(f"{folder}/{name}")) is not None:
            yield data


def zone_data_versions() -> dict[str, str]:
    """Return the version of the data, such as `2025b`, by its place: the package, and the folders of the host."""
    places = {"the tzdata package": package_folder(), **{folder: folder for folder in _HOST_FOLDERS}}
    found = {place: _version_in(folder) for place, folder in places.items() if folder}
    return {place: version for place, version in found.items() if version}


def _version_in(folder: str) -> str:
    """Return the version that a folder of zone data states, "" if it states none."""
    first_line = (_read(f"{folder}/tzdata.zi") or b"").partition(b"\n")[0]
    if first_line.startswith(b"# version "):
        return first_line.removeprefix(b"# version ").strip().decode("ascii", "replace")
    return (_read(f"{folder}/+VERSION") or b"").strip().decode("ascii", "replace")


def local_zone_data() -> bytes | None:
    """Return the data of the host's own zone, found as Go finds it: `$TZ`, or else `/etc/localtime`; None is UTC.

    An empty `$TZ` and `UTC` mean UTC. A leading colon is removed; a path is read, a name is looked up.
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


@cache
def package_folder() -> str:
    """Return the folder of the `tzdata` package's files, or an empty text if it is not on the disk."""
    spec = find_spec("tzdata")
    places = spec.submodule_search_locations if spec is not None else None
    return os.path.join(next(iter(places)), "zoneinfo") if places else ""


def _read(path: str) -> bytes | None:
    """Read a whole file; None if there is none, or if the name cannot be that of a file."""
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_FILE_BYTES)
    except (OSError, ValueError):
        return None
