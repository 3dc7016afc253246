"""A shell understands the commands of all pages, also of those that are not typed."""

import subprocess

import pytest

from tests.site.blocks import blocks_of, pages_with_commands, steps


@pytest.mark.server
def test_a_shell_understands_each_block() -> None:
    blocks = [block for page in pages_with_commands() for block in blocks_of(page)]
    for block in blocks:
        if block.kind == "sh":
            answer = subprocess.run(["bash", "-n", "-c", block.text], capture_output=True, text=True, check=False)
            assert (answer.returncode, answer.stderr) == (0, ""), block.where
    shown = [block.where for page in pages_with_commands() for block, printed in steps(page) if printed]
    assert len(shown) >= 20, "what pages show is compared"
