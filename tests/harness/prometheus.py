"""promtool, for tests of what is written for Prometheus; the Debian package is called prometheus."""

import shutil
import subprocess
from pathlib import Path

import pytest

TOOL_SECONDS = 300.0
"""Longest run of promtool."""


def promtool(*arguments: str | Path) -> tuple[int, str]:
    """Run promtool, and return its exit code and all that it printed; skips the test where there is none."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("no promtool on the path; the Debian package prometheus has it")
    answer = subprocess.run([found, *arguments], capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    return answer.returncode, answer.stdout + answer.stderr
