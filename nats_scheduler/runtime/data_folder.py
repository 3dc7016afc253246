"""The folder in which a sidecar keeps its table of schedules: where it is, and whether this process may use it.

What lies in the folder is trusted: a file that another user wrote there could have the sidecar publish anything. So:

- Whatever lies in a directory into which everyone may write, such as the temporary one, has to be a directory and no
  link, of this user, and nobody else may write to it. Above the folder itself one of root is as good. A directory of
  this user that nobody else can enter ends this: only the user makes what is in there.
- No folder is used into which everyone may write. Beside that, the rights of a folder that an operator names elsewhere
  are the operator's: it may be a link, and of another user.

One process uses a folder at a time: it has locked the file `lock` in it, which is never removed. The kernel frees the
lock however the process ends. A second claim of the same process is refused like that of another one.
Cost: some calls of the file system, once at the start. Limits: where not even the sticky bit keeps others from renaming
what is in a directory, they may do so between the look and the use. On Windows the temporary directory belongs to the
user, so only the lock is taken; the rights of a folder are not looked at. A folder on a network file system can be
used if that has locks, and by one machine only if they are locks of that machine.
"""

import os
import stat
import sys
import tempfile
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from nats_scheduler.settings.sidecar_settings import SidecarSettings

LOCK = "lock"
"""The name of the file that the process locks."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_NAME_BYTES = 8
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
_OPEN_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_ROOT = 0

if sys.platform == "win32":
    import msvcrt

    def _me() -> int:
        """Return the number that Windows has for the owner of each file."""
        return 0

    def _grants(found: os.stat_result, rights: int) -> bool:
        """Return False: the mode of a file says nothing about its rights."""
        return False

    def _lock(descriptor: int) -> None:
        """Lock a file, until its descriptor is closed; raises BlockingIOError if that is taken."""
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(*error.args) from None

    def _kept_from_cleaners(folder: Path) -> list[int]:
        """Return nothing: no cleaner of the temporary directory asks for locks."""
        return []

else:
    import fcntl

    def _me() -> int:
        """Return the number of the user as whom files are made."""
        return os.geteuid()

    def _grants(found: os.stat_result, rights: int) -> bool:
        """Return whether a file grants one of some rights."""
        return bool(found.st_mode & rights)

    def _lock(descriptor: int) -> None:
        """Lock a file, until its descriptor is closed; raises BlockingIOError if that is taken, OSError if not."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _kept_from_cleaners(folder: Path) -> list[int]:
        """Lock the folder too: `systemd-tmpfiles` removes no old files from one that is locked.

        It returns the descriptor, or nothing where folders cannot be locked; so it is with NFS.
        """
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return []
        return [descriptor]


class ClaimedFolder:
    """A folder that this process has locked, until it ends or closes it."""

    def __init__(self, path: Path, descriptors: list[int]) -> None:
        """Take over a folder, by its absolute path, and the open descriptors that have the locks."""
        self.path = path
        self._descriptors = descriptors

    def close(self) -> None:
        """Leave the folder to other processes; nothing in it may be used any more. Again, it does nothing."""
        while self._descriptors:
            os.close(self._descriptors.pop())


def default_folder(settings: SidecarSettings) -> Path:
    """Return the folder of a sidecar whose setting `data` is not set; nothing is created.

    It is `<temporary directory>/nats-scheduler-<user>/<name>`, where the name is made of what differs between two
    sidecars of one machine. The same settings lead to the same folder, in any order of the servers. No secret is part
    of the name: it helps nobody to guess one, and stays when one is rotated.
    Limit: logins that differ in nothing but a token or a JWT have one folder, which the first process gets.
    """
    try:
        temporary = tempfile.gettempdir()
    except FileNotFoundError:  # none can be written; `claim` says why
        temporary = os.path.join(os.sep, "tmp")
    return Path(temporary, f"nats-scheduler-{_me()}", _name(settings))


def _name(settings: SidecarSettings) -> str:
    connection = settings.connection
    files = [connection.creds, connection.nkey, connection.tls_cert]
    login = [connection.user, *(None if file is None else str(file) for file in files)]
    account = [sorted(set(connection.masked_servers)), login, connection.api_prefix, settings.registry_bucket]
    process = [connection.connection_name, settings.metrics_port]
    return blake2b(repr([account, process]).encode(), digest_size=_NAME_BYTES).hexdigest()


def claim(folder: Path) -> ClaimedFolder | str:
    """Create a folder if it does not exist, with its parents (mode 0700), and lock it for this process.

    Returns the reason in plain English if it cannot be used: what in its path is not safe or no folder, that another
    process uses it, or why nothing can be written to it. It raises nothing.
    """
    try:
        path = folder.absolute()
        fault = _fault_of_path(path)
        real = Path(os.path.realpath(path))
        if fault is None and real != path:
            fault = _fault_of_path(real)
        return fault or _locked(path)
    except OSError as error:
        return f"not writable: {error.filename or folder} ({error.strerror or error})"


def _fault_of_path(folder: Path) -> str | None:
    """Create what is missing of a path, and return why a part of it must not be used; None if all of it may be."""
    is_shared = False
    for place in (*reversed(folder.parents), folder):
        found = _made(place)
        if is_shared and (fault := _fault_where_others_write(place, found, may_be_of_root=place != folder)):
            return fault
        if stat.S_ISLNK(found.st_mode):
            found = place.stat()
        if not stat.S_ISDIR(found.st_mode):
            return f"{place} is no folder"
        is_private = found.st_uid == _me() and not _grants(found, stat.S_IRWXG | stat.S_IRWXO)
        is_shared = not is_private and (is_shared or _grants(found, stat.S_IWOTH))
        if place == folder and _grants(found, stat.S_IWOTH):
            return f"everyone can write to {place}: name a folder in it"
    return None


def _made(place: Path) -> os.stat_result:
    """Return what is in a place, a link for a link; make a folder if there is nothing."""
    try:
        return place.lstat()
    except FileNotFoundError:
        with suppress(FileExistsError):  # another sidecar that starts now
            place.mkdir(_FOLDER_MODE)
        return place.lstat()


def _fault_where_others_write(place: Path, found: os.stat_result, *, may_be_of_root: bool) -> str | None:
    """Return why something in a directory into which everyone may write must not be used; None if it may be."""
    if stat.S_ISLNK(found.st_mode):
        return f"{place} is a link, in a directory into which everyone may write"
    if found.st_uid != _me() and not (may_be_of_root and found.st_uid == _ROOT):
        return f"{place} is owned by user {found.st_uid}"
    return f"others can write to {place}" if _grants(found, stat.S_IWGRP | stat.S_IWOTH) else None


def _locked(folder: Path) -> ClaimedFolder | str:
    """Lock a folder and write to it; raises OSError if that cannot be done."""
    descriptors = [open_file(folder / LOCK)]
    claimed = ClaimedFolder(folder, descriptors)
    try:
        _lock(descriptors[0])
        descriptors += _kept_from_cleaners(folder)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"\n")
    except BlockingIOError:
        claimed.close()
        return "another process uses it"
    except OSError:
        claimed.close()
        raise
    return claimed


def open_file(path: Path) -> int:
    """Open a file of the folder, which is made, for this user alone, if it is missing; returns its descriptor.

    Raises OSError if it cannot be written, or if a link is in its place.
    """
    return os.open(path, _OPEN_FLAGS, _FILE_MODE)


def boot_id() -> str:
    """Return what identifies this start of the machine, the same in all processes; "" if the system does not tell.

    While it stays the same, what a process has written is not lost, however that process ended. Where it is unknown,
    trust only a file that was closed cleanly.
    """
    try:
        return BOOT_ID.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""
