"""The pages about the client are true: the tutorial runs on servers, the examples give what they show, names exist."""

import ast
import asyncio
import doctest
import re
from pathlib import Path

import pytest

from nats_scheduler import client
from nats_scheduler.client.when import PolicyArguments
from tests.conftest import StartServer
from tests.harness.account import sidecar_on
from tests.harness.servers import V2_11, V2_15
from tests.house.sources import ROOT

TUTORIAL = (ROOT / "docs" / "python.md").read_text("utf-8")
REFERENCE = (ROOT / "docs" / "reference" / "client.md").read_text("utf-8")
SIDE_BY_SIDE = ROOT / "docs" / "reference" / "client-side-by-side.md"
BLOCKS = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
SPANS = re.compile(r"`([^`]+)`")


async def run(url: str) -> None:
    """Run all that the tutorial shows, as `python -m asyncio` does."""
    lines = "\n".join(BLOCKS.findall(TUTORIAL)).replace("nats://127.0.0.1:4222", url)
    await eval(compile(lines, "python.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), {"print": lambda *_: None})  # noqa: S307


async def test_the_tutorial_runs_with_a_sidecar(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with sidecar_on(server.url):
        await asyncio.wait_for(run(server.url), 90)


async def test_the_tutorial_runs_on_a_server_that_fires_by_itself(start_server: StartServer) -> None:
    await asyncio.wait_for(run((await start_server(V2_15)).url), 90)


def test_the_examples_of_the_reference_give_what_they_show() -> None:
    source = "\n".join(BLOCKS.findall(REFERENCE))
    test = doctest.DocTestParser().get_doctest(source, {}, "client.md", "client.md", 0)
    said: list[str] = []
    outcome = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert outcome.failed == 0, "".join(said)
    assert outcome.attempted > 15


def test_the_reference_names_everything_that_can_be_imported() -> None:
    words = set(re.findall(r"\w+", " ".join(SPANS.findall(BLOCKS.sub("", REFERENCE)))))
    implied = {"Author", "Elsewhere", "Kind", "Sidecar"}
    assert set(client.__all__) - implied - words == set()
    methods = {name for name in vars(client.Schedules) if not name.startswith("_")} - {"stream"}
    assert methods - words == set()
    assert PolicyArguments.__annotations__.keys() - words == set()


def ours(page: Path) -> list[str]:
    """Return the code of the last column of the table."""
    rows = [line.strip("| ").split(" | ") for line in page.read_text("utf-8").splitlines() if line.startswith("| ")]
    return [code for row in rows[1:] for code in SPANS.findall(row[-1])]


@pytest.mark.parametrize("code", ours(SIDE_BY_SIDE))
def test_what_stands_on_our_side_is_the_client(code: str) -> None:
    text = f"{code}: pass" if code.startswith("async for") else code
    tree = compile(text, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    known = {*client.__all__, "timedelta", "time", "date"}
    for function in called:
        if isinstance(function, ast.Attribute):
            owner = client.Schedules if ast.unparse(function.value) in ("sched", "Schedules") else client.When
            assert hasattr(owner, function.attr)
        else:
            assert isinstance(function, ast.Name)
            assert function.id in known
