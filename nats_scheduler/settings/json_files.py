"""Files that an operator names: read up to a maximum size, and as the configurations of streams.

Every file that an operator names is read by `read_bounded` or has a limit of its own beside it: `/dev/zero` and a disk
image are files too. A pipe that nobody writes to is waited for, as every program does.
"""

import json
from pathlib import Path
from typing import Any

from nats_scheduler.settings.problems import SettingsError

MAX_FILE_BYTES = 1024 * 1024
"""The maximum size of a file with settings or with the configuration of a stream: a thousand times what they need."""


def read_bounded(path: Path, most: int = MAX_FILE_BYTES) -> bytes:
    """Return what a file holds; raises `OSError`, also if that is more than `most` bytes."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(f"more than {most} bytes")
    return content


FORBIDDEN_IN_NAMES = " \t.*>/\\"
"""The characters that a stream's name cannot contain."""


def is_stream_name(name: str) -> bool:
    """Return whether a stream can have this name."""
    return bool(name) and not any(letter in FORBIDDEN_IN_NAMES for letter in name)


def read_stream_file(path: Path) -> dict[str, Any]:
    """Return the stream configuration in a file; raises `SettingsError` with the file and what was expected.

    The format is that of `nats stream add --config`. Only what is needed before a request to the server is checked: the
    file is JSON, an object, and names its stream. The server checks all else, including fields that are not known here.
    """
    try:
        config = json.loads(read_bounded(path))
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise SettingsError(f"{path} contains {config!r:.60}, expected an object such as {{'name': 'ORDERS', ...}}")
    name = config.get("name")
    if not isinstance(name, str) or not is_stream_name(name):
        raise SettingsError(
            f"{path}: name is {name!r}, expected a stream name without blanks, '.', '*', '>', '/' or '\\'"
        )
    flag = config.get("allow_msg_schedules", False)
    if not isinstance(flag, bool):
        raise SettingsError(f"{path}: allow_msg_schedules is {flag!r}, expected true or false")
    return config


def read_streams_folder(folder: Path) -> list[dict[str, Any]]:
    """Return the configurations in a folder's `*.json` files, by file name; raises as `read_stream_file` does."""
    if not folder.is_dir():
        raise SettingsError(f"{folder}: not a folder")
    return [read_stream_file(path) for path in sorted(folder.glob("*.json"))]
