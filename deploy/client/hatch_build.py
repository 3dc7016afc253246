"""Build `nats-scheduler-client` from the sources of the whole package: the rooms that a program needs, and no other.

The rule: the same files are in the wheel whether it is built from the checkout or from the source distribution.
"""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))
from sources import sources


class ClientSources(BuildHookInterface[Any]):
    """Adds the sources to both distributions."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name each file; an editable installation of a part is refused, since the whole one is meant for that."""
        if version == "editable":
            raise ValueError("nats-scheduler-client has no editable form: install the checkout with pip install -e .")
        build_data["force_include"].update(dict(sources()))
