"""The rules of the house that no linter knows, and the linters and the type checker themselves.

Each rule is an expression and the files that may match it: `RULES`. Texts are searched, and no syntax trees: what is
meant is always written in the same way here, and to parse all files takes seconds.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.house.sources import PACKAGE, ROOT, TESTS, modules, place, source

SPELLING = "codespell nats_scheduler docs deploy README.md CHANGELOG.md CONTRIBUTING.md"
LINTERS = ("ruff check .", "ruff format --check .", "mypy", "lint-imports", SPELLING)
TOOL_SECONDS = 1800.0
"""Longest run of one tool: mypy without a cache takes half a minute alone, and ten beside seven other workers."""


@pytest.mark.slow
@pytest.mark.deep
@pytest.mark.parametrize("command", LINTERS)
def test_the_house_is_clean(command: str) -> None:
    program, *arguments = command.split()
    tool = [str(Path(sys.executable).parent / program), *arguments]
    answer = subprocess.run(tool, cwd=ROOT, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    assert answer.returncode == 0, f"{command}\n{answer.stdout}\n{answer.stderr}"


class Rule(NamedTuple):
    """What no file of a folder may contain, but for some, and what to do in its place."""

    words: str
    folder: Path
    allowed: tuple[str, ...]
    advice: str


RULES = {
    # The event loop's own clock (`loop.time()`) is left alone: its deadlines have no other measure.
    "the clock is read in one place": Rule(
        r"\btime\.(?:time|monotonic|perf_counter|process_time|thread_time|clock_gettime)(?:_ns)?\b"
        r"|\b(?:datetime|date)\.(?:now|utcnow|today)\b|^from time import (?!sleep$)",
        PACKAGE,
        ("runtime/clock.py",),
        "take the time as a parameter, or ask runtime/clock.py",
    ),
    "a timetable is asked when a schedule fires": Rule(
        r"\bpattern\.(?:first_fire|next_fire|is_fire|latest_fire|repeats)\b",
        PACKAGE,
        ("message/timetable.py", "schedule/"),
        "ask the timetable: Definition.timetable(stored_at), or the held schedule",
    ),
    "one module of the sidecar listens": Rule(
        r"^ *(?:import|from) (?:http\.server|socketserver|wsgiref|xmlrpc\.server|uvicorn|starlette)\b"
        r"|\bstart_(?:\w+_)?server\(|\bcreate_server\(|\bgetaddrinfo\(|\.bind\(",
        PACKAGE,
        ("observe/listener.py", "observe/address.py", "runtime/embedded.py", "web/"),
        "add a page to observe/monitoring_pages.py",
    ),
    "no cancellation is lost in a group of tasks": Rule(
        r"\basyncio\.TaskGroup\(",
        PACKAGE,
        ("jetstream/task_group.py",),
        "asyncio's own drops a cancellation for the error of a child: use jetstream/task_group.py",
    ),
    "only the harness sleeps": Rule(
        r"\bsleep\(|^ *from \w+ import .*\bsleep\b",
        TESTS,
        ("harness/waiting.py", "bench/"),
        "wait for a condition with tests.harness.waiting.eventually",
    ),
    "nothing is mocked": Rule(
        r"^ *(?:import|from) (?:unittest\.mock|mock|pytest_mock)\b|^ *from unittest import mock",
        TESTS,
        (),
        "use the in-memory JetStream and the manual clock of nats_scheduler.testing",
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_of_the_house_is_kept(name: str) -> None:
    rule = RULES[name]
    found = [
        f"{place(module)}: {match[0].strip()}"
        for module in modules(rule.folder)
        if not module.relative_to(rule.folder).as_posix().startswith(rule.allowed or ("-",))
        for match in re.finditer(rule.words, source(module), re.M)
    ]
    assert found == [], rule.advice


PATCHED = re.compile(r"\.setattr\(\s*(?P<owner>[^,]+?),\s*(?:f?\"(?P<name>\w+)\")?")
"""A call that patches: what is patched, or its whole name as a text, and then perhaps the name as a text."""
SET_OF_ANOTHER = re.compile(r"^ *(?!self\.|cls\.)[\w.\[\]()]+\._[a-z]\w*(?:\[[^\]\n]*\])? [-+*/|&]?= ", re.M)
"""A line that sets a private attribute of something else than `self`."""
OF_THE_MACHINE = {"sys", "sysconfig", "tempfile"}
"""Modules of which a test may say that the machine is another one."""


def patches(module: Path) -> list[str]:
    """List what a module patches, but for limits (constants, by their names) and the environment."""
    text = source(module)
    found = [match[0].strip() for match in SET_OF_ANOTHER.finditer(text)] if "._" in text else []
    for match in PATCHED.finditer(text) if "setattr(" in text else ():
        name = match["name"] if not match["owner"].startswith(('"', "'")) else match["owner"].strip("\"'")
        is_limit = name is None or name.rpartition(".")[2].isupper()
        if not is_limit and match["owner"].strip("\"'").partition(".")[0] not in OF_THE_MACHINE:
            found.append(match[0])
    return [f"{place(module)}: {one}" for one in found]


def test_nothing_but_limits_is_patched() -> None:
    found = [one for module in modules(TESTS) for one in patches(module)]
    assert found == [], "pass another part to the constructor, or an adapter to a port"
