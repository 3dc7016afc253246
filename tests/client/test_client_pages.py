"""The pages about clients are true: what they show runs, or is what runs, and the names that they use exist."""

import ast
import asyncio
import doctest
import re
import sys
import textwrap
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from nats_scheduler import client
from nats_scheduler.client.policy_arguments import PolicyArguments
from tests.conftest import StartServer
from tests.harness.account import sidecar_on
from tests.harness.servers import V2_10, V2_15
from tests.harness.toolchains import CLIENTS, PROGRAMS
from tests.harness.waiting import PATIENCE_SECONDS
from tests.house.sources import ROOT

TUTORIAL = (ROOT / "docs" / "python.md").read_text("utf-8")
REFERENCE = (ROOT / "docs" / "reference" / "client.md").read_text("utf-8")
SIDE_BY_SIDE = ROOT / "docs" / "reference" / "client-side-by-side.md"
BLOCKS = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
SPANS = re.compile(r"`([^`]+)`")


async def run_tutorial(url: str) -> None:
    """Run all that the tutorial shows, as `python -m asyncio` does."""
    lines = "\n".join(BLOCKS.findall(TUTORIAL)).replace("nats://127.0.0.1:4222", url)
    await eval(compile(lines, "python.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), {"print": lambda *_: None})  # noqa: S307


@pytest.mark.deep
@pytest.mark.parametrize(("version", "sidecar"), [(V2_10, True), (V2_15, False)])
async def test_the_tutorial_and_the_example_run(start_server: StartServer, version: str, sidecar: bool) -> None:
    server = await start_server(version)
    async with sidecar_on(server.url) if sidecar else nullcontext():
        assert await run(ROOT / "docs" / "examples" / "reminders.py", server.url) == EXPECTED
        await asyncio.wait_for(run_tutorial(server.url), PATIENCE_SECONDS)


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


def test_what_stands_on_our_side_is_the_client() -> None:
    known = {*client.__all__, "timedelta", "time", "date"}
    for code in ours(SIDE_BY_SIDE):
        text = f"{code}: pass" if code.startswith("async for") else code
        tree = compile(text, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
        for function in (node.func for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if isinstance(function, ast.Attribute):
                owner = client.Schedules if ast.unparse(function.value) in ("sched", "Schedules") else client.When
                assert hasattr(owner, function.attr), code
            else:
                assert isinstance(function, ast.Name), code
                assert function.id in known, code


PAGE = (ROOT / "docs" / "clients.md").read_text("utf-8")
SECTIONS = re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", PAGE, re.M)
PROGRAM = re.compile(r"^The whole \w+ is \[[\w.]+\]\(examples/clients/([\w./-]+)\)", re.M)
ANY_BLOCK = re.compile(r"^```\w+\n(.*?)^```", re.M | re.S)


def shown() -> Iterator[tuple[str, str]]:
    """Give each block of code with the program that its section links to."""
    for _title, text in SECTIONS:
        if match := PROGRAM.search(text):
            yield from ((match[1], block) for block in ANY_BLOCK.findall(text))


def is_part_of(block: str, program: str) -> bool:
    """Return whether a program has these lines, one after the other, perhaps further to the right."""
    lines = program.splitlines(keepends=True)
    count = block.count("\n")
    return any(textwrap.dedent("".join(lines[at : at + count])) == block for at in range(len(lines)))


def test_the_page_shows_what_is_run() -> None:
    assert {file.partition("/")[0] for file, _block in shown()} == set(CLIENTS), "code of each client and no other"
    assert len(ANY_BLOCK.findall(PAGE)) == len(list(shown()))
    for file, block in shown():
        assert is_part_of(block, (PROGRAMS / file).read_text("utf-8")), file


EXPECTED = """\
report added
report unchanged
the report of 23 November 2026 is due at 08:30 UTC
refused with 10071
stored orders.schedules.reminder.17, orders.schedules.reminder.18
remind of order 17: orders.schedules.reminder.17 is done: True
its history has the same fire: True
orders.schedules.report is paused: True
"""


async def run(program: Path, url: str) -> str:
    """Run a program as a user does, and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT
    )
    output, errors = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    assert (process.returncode, errors.decode()) == (0, "")
    return output.decode()
