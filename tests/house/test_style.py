"""The rules of the house that no linter knows."""

import ast
import re
from pathlib import Path

import pytest

from tests.house.sources import (
    PACKAGE,
    TESTS,
    called_names,
    imported_names,
    modules,
    modules_with,
    place,
    source,
    syntax_tree,
)

SHORTEST_DOCSTRING = 40
"""Characters; less than a sentence says nothing that the file's name does not."""
SHAPELESS_WORDS = {"util", "utils", "helper", "helpers", "manager", "managers", "common"}

CLOCK = PACKAGE / "runtime" / "clock.py"
WAITING = TESTS / "harness" / "waiting.py"
BENCHMARK = TESTS / "bench"
"""Its publishers pace the load that they make, so they sleep; its tests do not."""
# The event loop's own clock (`loop.time()`) is left alone: its deadlines have no other measure.
CLOCK_READS = re.compile(
    r"((.*\.)?time\.(time|monotonic|perf_counter|process_time|thread_time|clock_gettime)(_ns)?"
    r"|(.*\.)?(datetime|date)\.(now|utcnow|today))"
)
CLOCK_WORDS = re.compile(r"\b(time|datetime|date)\b")
"""The words of which each text contains one that reads a clock in any of these ways."""

DOCSTRING = re.compile(r'(?:#.*\n)*r?"""(.*?)"""', re.S)
"""The docstring that a module begins with, perhaps after a line for the shell."""


def reads_of_the_clock(module: Path) -> list[str]:
    """List the places where a module calls or imports a clock."""
    if not CLOCK_WORDS.search(source(module)):
        return []
    tree = syntax_tree(module)
    called = [node for name, node in called_names(tree) if CLOCK_READS.fullmatch(name)]
    taken = [node for name, node in imported_names(tree) if CLOCK_READS.fullmatch(name)]
    return [place(module, node) for node in (*called, *taken)]


def test_one_file_of_the_package_reads_the_clock() -> None:
    readers = [found for module in modules(PACKAGE) if module != CLOCK for found in reads_of_the_clock(module)]
    assert readers == [], "take the time as a parameter, or ask runtime/clock.py"


def test_the_rule_about_clocks_sees_each_way_to_read_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "sample.py"
    reads = [
        "time.time()",
        "time.monotonic_ns()",
        "datetime.datetime.now(tz)",
        "date.today()",
    ]
    module.write_text("\n".join([*reads, "from time import perf_counter", "parsed.timestamp()", "import time"]))
    monkeypatch.setattr("tests.house.sources.ROOT", tmp_path)
    assert reads_of_the_clock(module) == [f"sample.py:{line}" for line in range(1, 6)]


LISTENER, ADDRESS = PACKAGE / "observe" / "listener.py", PACKAGE / "observe" / "address.py"
WEB_PAGES = frozenset({PACKAGE / "web" / name for name in ("app.py", "guard.py", "pages.py")})
"""The status page: a process of its own, with the same listener."""
EMBEDDED = PACKAGE / "runtime" / "embedded.py"
"""Binds ports to find a free one for a server of its own, and listens on none."""
SERVER_LIBRARIES = re.compile(
    r"(http\.server|socketserver|wsgiref|xmlrpc\.server|aiohttp|uvicorn|starlette|flask)(\..*)?"
)
LISTENING_CALLS = re.compile(
    r"(.*\.)?(start_server|start_unix_server|create_server|start_http_server|start_wsgi_server|getaddrinfo|bind)"
)


def test_one_module_of_the_sidecar_listens() -> None:
    """All that the sidecar serves over HTTP is served by one listener, on the address of the settings."""
    found = [
        place(module, node)
        for module in modules(PACKAGE)
        if module not in {LISTENER, ADDRESS, EMBEDDED, *WEB_PAGES}
        for tree in [syntax_tree(module)]
        for name, node in (
            *((n, at) for n, at in imported_names(tree) if SERVER_LIBRARIES.fullmatch(n)),
            *((n, at) for n, at in called_names(tree) if LISTENING_CALLS.fullmatch(n) and n != "?.bind"),
        )
    ]
    assert found == [], "add a page to observe/pages.py"
    assert any(SERVER_LIBRARIES.fullmatch(name) for name, _node in imported_names(syntax_tree(LISTENER)))
    assert any(LISTENING_CALLS.fullmatch(name) for name, _node in called_names(syntax_tree(ADDRESS)))


def test_no_cancellation_is_lost_in_a_group_of_tasks() -> None:
    own = PACKAGE / "jetstream" / "task_group.py"
    used = [
        place(module, node)
        for module in modules_with("TaskGroup", PACKAGE)
        if module != own
        for name, node in called_names(syntax_tree(module))
        if name == "asyncio.TaskGroup"
    ]
    assert used == [], "use jetstream/task_group.py: asyncio's own drops a cancellation for the error of a child"


def test_no_module_is_named_after_nothing() -> None:
    shapeless = [
        place(module)
        for folder in (PACKAGE, TESTS)
        for module in modules(folder)
        if SHAPELESS_WORDS & {*module.stem.split("_"), module.parent.name}
    ]
    assert shapeless == []


def docstring_fault(module: Path) -> str | None:
    """Return what is wrong with how a module says what it is, None if nothing is."""
    match = DOCSTRING.match(source(module))
    said = match[1].strip() if match else ""
    if len(said) < SHORTEST_DOCSTRING:
        return "a docstring of substance is missing"
    return None if said.endswith((".", ":", ")", "`", "|")) else "its docstring does not end with a whole sentence"


def test_a_module_says_what_it_is() -> None:
    speaking = [module for module in (*modules(PACKAGE), *modules(TESTS)) if module.name != "__init__.py"]
    assert {place(module): fault for module in speaking if (fault := docstring_fault(module))} == {}


def test_the_rule_about_docstrings_sees_what_is_missing(tmp_path: Path) -> None:
    def fault(text: str) -> str | None:
        module = tmp_path / f"sample{len(list(tmp_path.iterdir()))}.py"
        module.write_text(text)
        return docstring_fault(module)

    whole = "Whole sentences about what this module is, and why."
    assert fault(f'"""{whole}"""\n') is fault(f'#!/usr/bin/env python3\n"""{whole}"""\n') is None
    assert fault("") == fault(f'import re\n\n"""{whole}"""\n') == fault('"""Short."""\n')
    assert fault(f'"""{whole[:-1]}"""\n') == "its docstring does not end with a whole sentence"


CLIENT = PACKAGE / "client" / "__init__.py"
"""The package that users' programs import: the one room whose names are imported from its folder."""


def test_an_init_file_holds_only_its_docstring() -> None:
    inits = [module for module in modules(PACKAGE) if module.name == "__init__.py" and module != CLIENT]
    trees = {place(module): syntax_tree(module) for module in inits}
    assert [name for name, tree in trees.items() if len(tree.body) != 1 or not ast.get_docstring(tree)] == []


def test_what_programs_import_is_named_and_nothing_else_is_there() -> None:
    names = [node for node in syntax_tree(CLIENT).body if isinstance(node, ast.ImportFrom)]
    imported = sorted(alias.asname or alias.name for node in names for alias in node.names)
    docstring, *others, listed = syntax_tree(CLIENT).body
    assert isinstance(docstring, ast.Expr)
    assert others == names
    assert isinstance(listed, ast.Assign)
    assert sorted(ast.literal_eval(listed.value)) == imported


def test_only_the_harness_sleeps() -> None:
    sleeps = [
        place(module, node)
        for module in modules_with("sleep", TESTS)
        if module != WAITING and (BENCHMARK not in module.parents or module.stem.startswith("test_"))
        for name, node in (*called_names(syntax_tree(module)), *imported_names(syntax_tree(module)))
        if name.split(".")[-1] == "sleep"
    ]
    assert sleeps == [], "wait for a condition with tests.harness.waiting.eventually"


def test_nothing_is_mocked() -> None:
    mocks = [
        place(module, node)
        for module in modules_with("mock", PACKAGE, TESTS)
        for name, node in imported_names(syntax_tree(module))
        if name.startswith(("unittest.mock", "mock.", "pytest_mock"))
    ]
    assert mocks == [], "use the in-memory JetStream and the manual clock of nats_scheduler.testing"
