"""Read a file whose size is limited before it is read: `/dev/zero` and a disk image are files too.

Rule: every file that an operator names is read here or has a limit of its own beside it.
Cost: one read. Limit: a pipe that nobody writes to is waited for, as every program does.
"""

from __future__ import annotations

from pathlib import Path

MAX_FILE_BYTES = 1024 * 1024
"""The maximum size of a file with settings or with the configuration of a stream: a thousand times what they need."""


def read_bounded(path: Path, most: int = MAX_FILE_BYTES) -> bytes:
    """Return what a file holds; raises `OSError`, also if that is more than `most` bytes."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(f"more than {most} bytes")
    return content
