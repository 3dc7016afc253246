"""A second attempt, alone, of each case that failed in a run of all tests, with a list: `.ci/run` asks for it.

The rule: nothing is tried again in silence, and only what a busy machine can have failed. A case without the mark
`server` has no such excuse, and neither have more than `MOST_CASES`: then the first run counts as it is.
Structure: the run writes the cases that failed into the file that the variable names; `python -m` with that file runs
those, and prints each that passed.
Limit: a case that passes alone may still have found a defect, so each case of the list has to be looked into.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

VARIABLE = "FAILED_CASES_FILE"
"""Names the file into which a run writes what failed."""
MOST_CASES = 8
EXCUSED = "server"


def write_failed_cases(reporter: pytest.TerminalReporter) -> None:
    """Write a line for each case that failed: its mark or `-`, and its name."""
    if path := os.environ.get(VARIABLE):
        failed = [report for kind in ("failed", "error") for report in reporter.stats.get(kind, ())]
        lines = {f"{EXCUSED if EXCUSED in report.keywords else '-'} {report.nodeid}\n" for report in failed}
        Path(path).write_text("".join(sorted(lines)), "utf-8")


def cases_for_a_second_attempt(text: str) -> list[str]:
    """Return the cases to try again; none if what failed has no excuse, or is too much for one."""
    failed = [line.partition(" ") for line in text.splitlines()]
    excused = len(failed) <= MOST_CASES and all(mark == EXCUSED for mark, _, _ in failed)
    return [case for _, _, case in failed] if excused else []


def main(path: Path) -> int:
    """Try the cases of a file again; returns the exit code: 0 if there were some, and all passed."""
    cases = cases_for_a_second_attempt(path.read_text("utf-8")) if path.is_file() else []
    if not cases:
        return 1
    print(
        f"\n{len(cases)} cases failed beside others, and are tried a second time, alone:",
        *cases,
        sep="\n  ",
        flush=True,
    )
    code = subprocess.run([sys.executable, "-m", "pytest", "-n", "0", *cases], check=False).returncode
    print(f"second attempts: {len(cases)} cases, {'all passed' if code == 0 else 'not all passed'}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
