"""The rules of the house that no linter knows, and the linters and the type checker themselves."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.sources import (
    PACKAGE,
    ROOT,
    TESTS,
    called_names,
    imported_names,
    modules,
    modules_with,
    place,
    source,
    syntax_tree,
)

SPELLING = "codespell nats_scheduler docs deploy README.md CHANGELOG.md CONTRIBUTING.md"
LINTERS = ("ruff check .", "ruff format --check .", "mypy", "lint-imports", SPELLING)
TOOL_SECONDS = 1800.0
"""Longest run of one tool: mypy without a cache takes half a minute alone, and ten beside seven other workers."""

CLOCK = PACKAGE / "runtime" / "clock.py"
WAITING = TESTS / "harness" / "waiting.py"
BENCHMARK = TESTS / "bench"
"""Its publishers pace the load that they make, so they sleep; its tests do not."""
# The event loop's own clock (`loop.time()`) is left alone: its deadlines have no other measure.
CLOCK_READS = re.compile(
    r"((.*\.)?time\.(time|monotonic|perf_counter|process_time|thread_time|clock_gettime)(_ns)?"
    r"|(.*\.)?(datetime|date)\.(now|utcnow|today))"
)
CLOCK_WORDS = re.compile(r"\b(?:time|datetime|date)\.[a-z]|^\s*from (?:time|datetime) import", re.M)
"""The words of which each text contains one that reads a clock in any of these ways."""

TIMETABLE = PACKAGE / "message" / "timetable.py"
LANGUAGE = PACKAGE / "schedule"
MOST_ARGUMENTS = {"first_fire": 0, "next_fire": 1, "is_fire": 1, "latest_fire": 0}
"""With more arguments than these a question goes to a pattern; a timetable has no `latest_fire`."""
ASKING_WORDS = re.compile("|".join([*MOST_ARGUMENTS, "repeats"]))


@pytest.mark.slow
@pytest.mark.deep
@pytest.mark.parametrize("command", LINTERS)
def test_the_house_is_clean(command: str) -> None:
    program, *arguments = command.split()
    tool = [str(Path(sys.executable).parent / program), *arguments]
    answer = subprocess.run(tool, cwd=ROOT, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    assert answer.returncode == 0, f"{command}\n{answer.stdout}\n{answer.stderr}"


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


def questions_to_patterns(module: Path) -> list[str]:
    """List the places where a module asks a pattern when a schedule fires, or whether it repeats."""
    if not ASKING_WORDS.search(source(module)):
        return []
    tree = syntax_tree(module)
    asked: list[ast.AST] = [
        node
        for name, node in called_names(tree)
        if len(node.args) + len(node.keywords) > MOST_ARGUMENTS.get(name.rpartition(".")[2], 99)
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "repeats":
            owner = node.value
            if "pattern" in (getattr(owner, "attr", ""), getattr(owner, "id", "")):
                asked.append(node)
    return [place(module, node) for node in asked]


def test_no_code_outside_the_language_asks_a_pattern_when_a_schedule_fires() -> None:
    outside = [one for one in modules(PACKAGE) if one != TIMETABLE and LANGUAGE not in one.parents]
    asked = [found for module in outside for found in questions_to_patterns(module)]
    assert asked == [], "ask the timetable: Definition.timetable(stored_at), or the held schedule"


LISTENER, ADDRESS = PACKAGE / "observe" / "listener.py", PACKAGE / "observe" / "address.py"
WEB_PAGES = frozenset(
    PACKAGE / "web" / f"{name}.py" for name in ("app", "change_pages", "editing", "request_checks", "pages")
)
"""The status page: a process of its own, with the same listener."""
EMBEDDED = PACKAGE / "runtime" / "embedded.py"
"""Binds ports to find a free one for a server of its own, and listens on none."""
SERVER_LIBRARIES = re.compile(r"(http\.server|socketserver|wsgiref|xmlrpc\.server|uvicorn|starlette)(\..*)?")
LISTENING_CALLS = re.compile(
    r"(.*\.)?(start_server|start_unix_server|create_server|start_http_server|start_wsgi_server|getaddrinfo|bind)"
)
SERVER_WORDS = re.compile(r"http\.server|[a-z_]server\b|wsgi|uvicorn|starlette|getaddrinfo|\bbind\(")
"""One of them is in each text with a name of either kind."""


def test_one_module_of_the_sidecar_listens() -> None:
    """All that the sidecar serves over HTTP is served by one listener, on the address of the settings."""
    found = [
        place(module, node)
        for module in modules(PACKAGE)
        if module not in {LISTENER, ADDRESS, EMBEDDED, *WEB_PAGES} and SERVER_WORDS.search(source(module))
        for tree in [syntax_tree(module)]
        for name, node in (
            *((n, at) for n, at in imported_names(tree) if SERVER_LIBRARIES.fullmatch(n)),
            *((n, at) for n, at in called_names(tree) if LISTENING_CALLS.fullmatch(n) and n != "?.bind"),
        )
    ]
    assert found == [], "add a page to observe/monitoring_pages.py"
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


OF_THE_MACHINE = {"sys", "sysconfig", "tempfile"}
"""Modules of which a test may say that the machine is another one."""


def patches(module: Path) -> list[str]:
    """List where a module patches anything but a limit: a constant, by its name, or the environment."""
    found = []
    for node in ast.walk(syntax_tree(module)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            first, *more = node.args
            name = first if isinstance(first, ast.Constant) else more[0]
            is_limit = not isinstance(name, ast.Constant) or str(name.value).rpartition(".")[2].isupper()
            if not (is_limit or ast.unparse(first).strip("'").partition(".")[0] in OF_THE_MACHINE):
                found.append(place(module, node))
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            places = [target.value if isinstance(target, ast.Subscript) else target for target in targets]
            found += [place(module, node) for one in places if is_private_of_another(one)]
    return found


def is_private_of_another(node: ast.expr) -> bool:
    """Return whether this is a private attribute of something else than `self`."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and ast.unparse(node.value) not in ("self", "cls")
    )


def test_nothing_but_limits_is_patched() -> None:
    found = [one for module in modules(TESTS) for one in patches(module)]
    assert found == [], "pass another part to the constructor, or an adapter to a port"
