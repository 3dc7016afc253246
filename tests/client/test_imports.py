"""A program that imports the client imports nothing of the sidecar, and none of the libraries that only that needs.

The client uses the public side of nats-py alone, whose newest version may be any.
"""

import ast
import json
import re
import subprocess
import sys

import pytest

from tests.house.sources import PACKAGE

SIDECARS = (
    *("cli", "doctor", "engine", "jetstream", "observe", "runtime", "service", "settings", "testing", "web"),
    *("pydantic", "click", "rich", "prometheus_client", "starlette", "uvicorn", "jinja2"),
)
PRIVATE = re.compile(r"_(?!_|replace$)").match
"""A private name; `_replace` of a named tuple is public."""
PROGRAM = """
import json, sys
import nats
before = set(sys.modules)
import nats_scheduler.client
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.mark.server
def test_the_client_imports_nothing_of_the_sidecar() -> None:
    """The modules that nats-py itself imports, such as aiohttp if that is installed, are there before."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    imported = json.loads(ran.stdout)
    ours = {name.split(".")[1] for name in imported if name.startswith("nats_scheduler.")}
    assert ours == {"client", "control", "extras", "message", "schedule"}
    assert {name.split(".")[0] for name in imported} & set(SIDECARS) == set()


def test_the_client_uses_nothing_private_of_another() -> None:
    nodes = [
        (path.name, node)
        for path in (PACKAGE / "client").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and PRIVATE(node.attr)
    ]
    others = [(name, ast.unparse(node)) for name, node in nodes if ast.unparse(node.value) not in ("self", "cls")]
    assert nodes
    assert others == []
