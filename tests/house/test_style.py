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
from tests.house.test_references import comments

LINTERS = ("ruff check .", "ruff format --check .", "mypy", "lint-imports")
TOOL_SECONDS = 1800.0
"""Longest run of one tool: mypy without a cache takes half a minute alone, and ten beside seven other workers."""
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
CLOCK_WORDS = re.compile(r"\b(?:time|datetime|date)\.[a-z]|^\s*from (?:time|datetime) import", re.M)
"""The words of which each text contains one that reads a clock in any of these ways."""

DOCSTRING = re.compile(r'(?:#.*\n)*r?"""(.*?)"""', re.S)
"""The docstring that a module begins with, perhaps after a line for the shell."""

TIMETABLE = PACKAGE / "message" / "timetable.py"
LANGUAGE = PACKAGE / "schedule"
MOST_ARGUMENTS = {"first_fire": 0, "next_fire": 1, "is_fire": 1, "latest_fire": 0}
"""With more arguments than these a question goes to a pattern; a timetable has no `latest_fire`."""
ASKING_WORDS = re.compile("|".join([*MOST_ARGUMENTS, "repeats"]))
GLOSSARY = ROOT / "docs" / "internals" / "glossary.md"
ORDINARY = frozenset(
    {"timer", "fact", "order", "word", "remove", "rest", "drop", "see", "dead", "leave", "fit", "who", "words"}
) | {"job", "doubt", "move on", "forget", "marked", "stuck", "sight", "he", "on its way"}
"""Words with an ordinary meaning too ("in this order"): no test can distinguish them."""
MORE = frozenset({"lets go", "letting go", "in the way", "whoever", "somebody", "everybody"})
"""Forms of what the glossary avoids, a phrase that belongs to them, and pronouns that do not name who acts."""
GONE_MARKED = (
    "sha·rd, lea·se, hol·der, negl·ect, relie·ve, relie·f, surp·lus, instances per str·eam, schedules per insta·nce"
)
GONE = frozenset(GONE_MARKED.replace("·", "").split(", "))
"""Words, and names in words, of what was removed: no file has one of them in a text or a name.

A point is inside each, so that a search for one does not find it here."""
ORIGINS = ("copyright hol·ders".replace("·", ""),)
"""Phrases of the licenses of others."""
SUFFIXES = frozenset({".py", ".md", ".yaml", ".yml", ".json", ".toml", ".html", ".css", ".js", ".svg", ".tpl", ".conf"})
SUFFIXES |= {".jsonl", ".sh", ".txt", ".service", ".env", ""}
WITHOUT = frozenset({"__pycache__", "node_modules"})
JOINTS = re.compile(r"(?<=[a-z])(?=[A-Z])|_+|(?<=[A-Za-z])-(?=[A-Za-z])")
"""Where the words of a name meet: `OneName`, `one_name`, `one-name`."""


@pytest.mark.slow
@pytest.mark.deep
@pytest.mark.parametrize("command", LINTERS)
def test_the_house_is_clean(command: str) -> None:
    program, *arguments = command.split()
    tool = [str(Path(sys.executable).parent / program), *arguments]
    answer = subprocess.run(tool, cwd=ROOT, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    assert answer.returncode == 0, f"{command}\n{answer.stdout}\n{answer.stderr}"


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a module to write for a rule, which is named as one of the repository is."""
    monkeypatch.setattr("tests.house.sources.ROOT", tmp_path)
    return tmp_path / "sample.py"


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


def test_the_rule_about_clocks_sees_each_way_to_read_one(sample: Path) -> None:
    reads = ["time.time()", "time.monotonic_ns()", "datetime.datetime.now(tz)", "date.today()"]
    sample.write_text("\n".join([*reads, "from time import perf_counter", "parsed.timestamp()", "import time"]))
    assert reads_of_the_clock(sample) == [f"sample.py:{line}" for line in range(1, 6)]


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


def test_the_rule_about_timetables_sees_each_way_to_ask(sample: Path) -> None:
    to_patterns = [
        "held.pattern.first_fire(held.stored_at)",
        "anything.next_fire(now, stored_at=0)",
        "one.latest_fire(after, until, 0)",
        "definition.pattern.is_fire(now, 0)",
        "pattern.repeats",
        "held.pattern.repeats",
    ]
    to_timetables = ["held.first_fire()", "held.next_fire(now)", "held.is_fire(now)", "held.repeats", "fire.next_fire"]
    sample.write_text("\n".join([*to_patterns, *to_timetables]))
    assert sorted(questions_to_patterns(sample)) == [f"sample.py:{line}" for line in range(1, 7)]


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
    whole = "Whole sentences about what this module is, and why."
    missing, cut = "a docstring of substance is missing", "its docstring does not end with a whole sentence"
    expected = {
        f'"""{whole}"""\n': None,
        f'#!/usr/bin/env python3\n"""{whole}"""\n': None,
        "": missing,
        f'import re\n\n"""{whole}"""\n': missing,
        '"""Short."""\n': missing,
        f'"""{whole[:-1]}"""\n': cut,
    }
    found = {}
    for number, text in enumerate(expected):
        module = tmp_path / f"sample{number}.py"
        module.write_text(text)
        found[text] = docstring_fault(module)
    assert found == expected


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
            text = ast.unparse(first)
            name = more[0] if isinstance(first, ast.Name | ast.Attribute) else first
            is_limit = not isinstance(name, ast.Constant) or str(name.value).rpartition(".")[2].isupper()
            if not (is_limit or text in OF_THE_MACHINE):
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


def avoided() -> set[str]:
    """Return the words of the column "not" that can be searched for."""
    rows = [
        line.strip("|\n ").split(" | ") for line in GLOSSARY.read_text("utf-8").splitlines() if line.startswith("| ")
    ]
    cells = [row[2].strip(" |") for row in rows if len(row) == 3]
    words = {word.strip() for cell in cells for word in cell.split(",") if "(" not in word}
    return (words | MORE) - ORDINARY - {"", "not"}


def uses(text: str, words: set[str]) -> list[str]:
    """List the words that a text uses, in any case, where a word begins and ends."""
    return re.findall(rf"\b(?:{'|'.join(sorted(map(re.escape, words)))})s?\b", text, re.I)


def test_the_glossary_has_words_to_avoid() -> None:
    assert {"herd", "deaf", "let go", "flying"} <= avoided()
    assert uses("A herd that is deaf lets the others be.", avoided()) == ["herd", "deaf"]


def test_comments_and_docstrings_keep_to_the_glossary() -> None:
    words = avoided()
    found: dict[str, list[str]] = {}
    for module in modules(PACKAGE):
        for line, text in comments(module) if uses(source(module), words) else ():
            for word in uses(text, words):
                found.setdefault(place(module), []).append(f"line {line}: {word}")
    assert found == {}, "say it with the word of docs/internals/glossary.md"


def texts_of_the_house() -> list[Path]:
    """List the texts of the package, the pages, the tests and what is deployed."""
    folders = (PACKAGE, TESTS, ROOT / "docs", ROOT / "deploy")
    inside = [path for folder in folders for path in folder.rglob("*") if WITHOUT.isdisjoint(path.parts)]
    return sorted(path for path in (*inside, *ROOT.glob("*.*")) if path.suffix in SUFFIXES and path.is_file())


def gone_words(text: str) -> list[str]:
    """List the lines of a text that have a word of what was removed, and the word."""
    lower = text.lower()
    if not any(word.partition(" ")[0] in lower for word in GONE):
        return []
    words = JOINTS.sub(" ", text).lower()
    for phrase in ORIGINS:
        words = words.replace(phrase, "")
    found = re.finditer(rf"\b(?:{'|'.join(sorted(GONE))})(?:s|d|ed|ing)?\b", words)
    return [f"line {words.count(chr(10), 0, match.start()) + 1}: {match[0]}" for match in found]


@pytest.mark.slow
def test_the_words_of_what_was_removed_are_in_no_file() -> None:
    named = {place(path): f"{path.read_text('utf-8')}\n{place(path)}" for path in texts_of_the_house()}
    found = {name: words for name, text in named.items() if (words := gone_words(text))}
    assert found == {}, "say it with the words of docs/internals/glossary.md: owner, standby, takeover, passed over"


def test_a_removed_word_is_found_in_any_name_and_not_inside_another_word() -> None:
    word, longer = sorted(one for one in GONE if one.startswith(("hol", "lea")))
    names = [f"the {word}s", f"One{word.title()}", f"ONE_{word.upper()}", f"is_{word}", f"{word}-of", f"`{longer}d`"]
    assert [len(gone_words(name)) for name in names] == [1] * len(names)
    assert gone_words(f"A place{word}, a re{longer}, p{longer}; {' '.join(ORIGINS)}") == []
