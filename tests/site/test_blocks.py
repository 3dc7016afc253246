"""Each block of commands is run or has a reason not to be, and the parts of a reader do what they are for."""

import re
import subprocess

import pytest

from tests.house.sources import ROOT, markdown_files, names_of_tests_in, place
from tests.site.blocks import FENCE, GROUPS, Block, blocks_of, commands_of, pages_of, pages_with_commands, steps
from tests.site.exceptions import (
    EXIT_CODES,
    NOT_RUN,
    RUN_BY_OTHER_TESTS,
    reason_not_to_run,
    sign_of_running,
    without_installing,
)
from tests.site.scenes import SCENES

KINDS = {"sh", "python", "json", "yaml", "text", "js", "go", "java", "rust"}
"""Languages of blocks: another one would be one that no test knows."""
MOST_NOT_RUN = 27


def blocks(kind: str) -> list[Block]:
    """List the blocks of a language on all pages."""
    return [block for page in pages_with_commands() for block in blocks_of(page) if block.kind == kind]


def test_each_page_with_commands_is_followed_by_one_test() -> None:
    typed = [page for group in GROUPS for page in pages_of(group)]
    by_others = [ROOT / name for name in RUN_BY_OTHER_TESTS]
    assert sorted([*typed, *by_others]) == sorted(pages_with_commands())


def test_the_languages_of_all_blocks_are_known() -> None:
    pages = [page for page in markdown_files() if ROOT / "docs" in page.parents] + [ROOT / "README.md"]
    assert {block.kind for page in pages for block in blocks_of(page)} - KINDS == set()
    for page in pages:
        assert len(re.findall(r"^[ \t]*(?:```|~~~)", page.read_text("utf-8"), re.M)) == 2 * len(
            FENCE.findall(page.read_text("utf-8"))
        ), place(page)


def test_an_exception_or_a_scene_is_about_a_block_that_is_there() -> None:
    used = {
        (place(block.page), begin)
        for block in blocks("sh")
        for where, begin in NOT_RUN
        if where == place(block.page) and without_installing(block.text).startswith(begin)
    }
    assert set(NOT_RUN) - used == set()
    not_run = [block.where for block in blocks("sh") if reason_not_to_run(place(block.page), block.text)]
    assert len(not_run) <= MOST_NOT_RUN, not_run
    assert all(len(why) > 20 for why in (*NOT_RUN.values(), *(why for *_, why in EXIT_CODES)))
    sections = {f"{place(block.page)} {block.section}" for block in blocks("sh")}
    assert set(SCENES) - sections - {place(page) for page in pages_with_commands()} == set()


def test_python_is_saved_and_run_or_run_by_the_test_that_is_named() -> None:
    tests = {name for module in (ROOT / "tests").rglob("test_*.py") for name in names_of_tests_in(module)}
    assert set(RUN_BY_OTHER_TESTS.values()) - tests == set()
    loose = {place(block.page) for block in blocks("python") if block.file is None}
    assert loose - set(RUN_BY_OTHER_TESTS) == set()
    typed = {place(block.page) for block in blocks("sh") if without_installing(block.text)}
    # One shows parts of a shell script that is run, one asks a file that a test wrote, one gives its server another
    # configuration, and one shows requests that are sent without the program.
    by_others = {"docs/clients.md", "docs/internals/table.md", "docs/operating/scale.md", "docs/operating/security.md"}
    assert typed & set(RUN_BY_OTHER_TESTS) == by_others


@pytest.mark.server
def test_a_shell_understands_each_block() -> None:
    for block in blocks("sh"):
        answer = subprocess.run(["bash", "-n", "-c", block.text], capture_output=True, text=True, check=False)
        assert (answer.returncode, answer.stderr) == (0, ""), block.where
    shown = [block.where for page in pages_with_commands() for block, printed in steps(page) if printed]
    assert len(shown) >= 20, "what pages show is compared"


def test_commands_are_divided_as_a_shell_reads_them() -> None:
    block = (
        "# a comment\none 'two\nthree'\nfour \\\n  five\npython - <<'END'\nx = 'y\nEND\nfor a in b; do\n  six\ndone\n"
    )
    assert commands_of(block) == [
        "one 'two\nthree'",
        "four \\\n  five",
        "python - <<'END'\nx = 'y\nEND",
        "for a in b; do\n  six\ndone",
    ]


def test_what_installs_is_left_out_and_what_runs_on_is_known() -> None:
    install = "python3 -m venv .venv && .venv/bin/pip install --quiet --editable '.[server]' && "
    assert without_installing(f"{install}.venv/bin/nats-scheduler dev") == ".venv/bin/nats-scheduler dev"
    runs_on = {"run --server nats://n1:4222": True, "dev --data x": True, "dev --demo --for 20s": False, "ls X": False}
    assert {one: sign_of_running(f"nats-scheduler {one}") is not None for one in runs_on} == runs_on
