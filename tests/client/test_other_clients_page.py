"""`docs/clients.md` shows code of the programs that are run, and names the versions that they are run with."""

import json
import re
import textwrap
from collections.abc import Iterator

import pytest

from tests.harness.toolchains import CLIENTS, PROGRAMS
from tests.house.sources import ROOT

PAGE = (ROOT / "docs" / "clients.md").read_text("utf-8")
SECTIONS = re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", PAGE, re.M)
PROGRAM = re.compile(r"^The whole \w+ is \[[\w.]+\]\(examples/clients/([\w./-]+)\)", re.M)
BLOCK = re.compile(r"^```\w+\n(.*?)^```", re.M | re.S)
PROJECT = (ROOT / "pyproject.toml").read_text("utf-8")


def shown() -> Iterator[tuple[str, str]]:
    """Give each block of code with the program that its section links to."""
    for _title, text in SECTIONS:
        if match := PROGRAM.search(text):
            yield from ((match[1], block) for block in BLOCK.findall(text))


def is_part_of(block: str, program: str) -> bool:
    """Return whether a program has these lines, one after the other, perhaps further to the right."""
    lines = program.splitlines(keepends=True)
    count = block.count("\n")
    return any(textwrap.dedent("".join(lines[at : at + count])) == block for at in range(len(lines)))


@pytest.mark.parametrize(("file", "block"), list(shown()))
def test_the_page_shows_what_is_run(file: str, block: str) -> None:
    assert is_part_of(block, (PROGRAMS / file).read_text("utf-8"))


def test_the_page_has_code_of_each_client_and_no_other() -> None:
    assert {file.partition("/")[0] for file, _block in shown()} == set(CLIENTS)
    assert len(BLOCK.findall(PAGE)) == len(list(shown()))


def test_a_line_that_is_not_in_the_program_is_found() -> None:
    program = "def f():\n    a = 1\n\n    b = 2\n"
    assert is_part_of("a = 1\n\nb = 2\n", program)
    assert not is_part_of("a = 1\nb = 2\n", program)
    assert not is_part_of("a = 1\n\nb = 3\n", program)


def test_the_python_programs_ask_for_what_the_tests_install() -> None:
    for client in ("nats-py", "faststream"):
        [required] = (PROGRAMS / client / "requirements.txt").read_text("utf-8").split()
        name, bounds = re.match(r"([a-z-]+)(?:\[\w+\])?(.*)", required).groups()  # type: ignore[union-attr]
        assert re.search(rf'"{name}(\[\w+\])?{re.escape(bounds)}"', PROJECT), required


def test_the_pages_name_the_versions_that_are_run() -> None:
    package = json.loads((PROGRAMS / "nats-js" / "package.json").read_text("utf-8"))
    [js] = {version.rpartition(".")[0] for version in package["dependencies"].values()}
    go = re.search(r"nats\.go v(\d+\.\d+)", (PROGRAMS / "nats-go" / "go.mod").read_text("utf-8"))
    faststream = re.search(r"==(\d+\.\d+)", (PROGRAMS / "faststream" / "requirements.txt").read_text("utf-8"))
    assert go is not None
    assert faststream is not None
    for said in (f"`@nats-io/jetstream` {js},", f"`jetstream` of {go[1]}.", f"FastStream {faststream[1]}."):
        assert said.rstrip(".,") in PAGE
    index = (PROGRAMS / "README.md").read_text("utf-8")
    for said in (f"[nats.js](nats-js/due_orders.mjs) {js} |", f"(nats-go/main.go) {go[1]} |"):
        assert said in index
    assert f"[FastStream](faststream/due_orders_app.py) {faststream[1]} |" in index


def test_the_stream_file_of_the_cli_is_that_of_the_readme() -> None:
    [in_readme] = re.findall(r"^```json\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)[:1]
    ours = json.loads((PROGRAMS / "nats-cli" / "orders.json").read_text("utf-8"))
    assert ours.items() <= json.loads(in_readme).items()
