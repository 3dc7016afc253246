"""What a failed case prints beside its traceback: the ends of the logs of its processes, and how to run it again.

Structure: servers and child processes write to files under the run's temporary folder; those that were written to
since the case began are its own. A sidecar in the process of the test writes to standard error, which pytest shows.
Limit: a server that the run shares also shows what the case before it has caused, if that comes late.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.seeds import REPEAT

LINES = 15
"""The number of lines of each file that are shown."""
FILES = 8
"""The number of files that are shown: the last ones that were written to."""
LOGS = frozenset({".log", ".err", ".out"})


def sections_of(item: pytest.Item, folder: Path, begun: float) -> Iterator[tuple[str, str]]:
    """Return the sections of the report of a case that has failed: a title and a text.

    `folder` is the temporary folder of the run, and `begun` the time (s since 1970) at which the case began.
    """
    yield "to run it again", f"{REPEAT} .venv/bin/pytest -n 0 '{item.nodeid}'"
    for path in _written_since(folder, begun)[-FILES:]:
        lines = path.read_text("utf-8", "replace").splitlines()
        yield f"the last lines of {path.relative_to(folder)}", "\n".join(lines[-LINES:])


def _written_since(folder: Path, begun: float) -> list[Path]:
    """Return the logs that are not empty and were written to since then, the last one written to at the end."""
    found = []
    for root, _folders, names in os.walk(folder):
        for name in names:
            path = Path(root, name)
            if path.suffix in LOGS and (status := path.stat()).st_size and status.st_mtime >= begun:
                found.append((status.st_mtime, path))
    return [path for _, path in sorted(found)]
