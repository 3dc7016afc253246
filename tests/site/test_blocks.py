"""What is not typed of the pages is there, and a shell understands the commands of all pages."""

import subprocess

import pytest

from tests.house.sources import ROOT, names_of_tests_in, place
from tests.site.blocks import Block, blocks_of, pages_with_commands, steps
from tests.site.exceptions import (
    NOT_RUN,
    RUN_BY_OTHER_TESTS,
    without_installing,
)
from tests.site.scenes import SCENES


def blocks(kind: str) -> list[Block]:
    """List the blocks of a language on all pages."""
    return [block for page in pages_with_commands() for block in blocks_of(page) if block.kind == kind]


def test_an_exception_or_a_scene_is_about_a_block_that_is_there() -> None:
    used = {
        (place(block.page), begin)
        for block in blocks("sh")
        for where, begin in NOT_RUN
        if where == place(block.page) and without_installing(block.text).startswith(begin)
    }
    assert set(NOT_RUN) - used == set()
    tests = {name for module in (ROOT / "tests").rglob("test_*.py") for name in names_of_tests_in(module)}
    assert set(RUN_BY_OTHER_TESTS.values()) - tests == set()
    sections = {f"{place(block.page)} {block.section}" for block in blocks("sh")}
    assert set(SCENES) - sections - {place(page) for page in pages_with_commands()} == set()


@pytest.mark.server
def test_a_shell_understands_each_block() -> None:
    for block in blocks("sh"):
        answer = subprocess.run(["bash", "-n", "-c", block.text], capture_output=True, text=True, check=False)
        assert (answer.returncode, answer.stderr) == (0, ""), block.where
    shown = [block.where for page in pages_with_commands() for block, printed in steps(page) if printed]
    assert len(shown) >= 20, "what pages show is compared"
