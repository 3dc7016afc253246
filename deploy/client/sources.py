"""Where the sources of the client are, and their version: beside this file in a source distribution, else a checkout.

The rule: `hatch_build.py` and the version come from here, and nothing is written down twice.
"""

import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = "nats_scheduler"
ROOMS = ("client", "control", "files", "message", "schedule")
"""The folders of the package that a program needs which stores schedules, or computes when they fire."""
FILES = ("__init__.py", "py.typed", "version.py")


def package() -> Path:
    """Return the folder of the package."""
    beside = HERE / PACKAGE
    return beside if beside.is_dir() else HERE.parents[1] / PACKAGE


def sources() -> Iterator[tuple[str, str]]:
    """Yield each file of the distribution, and its place in it."""
    folder = package()
    for name in FILES:
        yield str(folder / name), f"{PACKAGE}/{name}"
    for room in ROOMS:
        for file in sorted((folder / room).rglob("*.py")):
            yield str(file), f"{PACKAGE}/{file.relative_to(folder).as_posix()}"


def version() -> str:
    """Return the version, which is that of the whole package."""
    text = (package() / "version.py").read_text("utf-8")
    found = re.search(r'^VERSION = "([^"]+)"$', text, re.M)
    if found is None:
        raise ValueError(f'{package()}/version.py: expected a line such as VERSION = "1.2.3"')
    return found[1]
