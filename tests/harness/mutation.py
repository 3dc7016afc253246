"""Mutation testing: change the pure rooms in one place at a time, and see whether a test fails.

`python -m tests.harness.mutation schedule message --sample 200` prints how many changes were found, and each that was
not. mutmut makes the changes (each operator, number, text, argument and assignment in a function); this module runs
the tests, since `mutmut run` gives each change a pytest of its own, which takes seconds.

Structure: the tests are collected and run once, to learn which test reaches which function. Then for each change the
process is forked, the changed code is put into the function object, and the tests that reach it run, the quickest
first, until one fails.

Each test begins with the caches of the package empty: a result of the original code would hide the change.
Limit: a property or another decorated function, the default of a parameter, and what stands outside of functions are
not changed.
"""

import argparse
import gc
import os
import random
import re
import resource
import signal
import sys
import time
from collections import defaultdict
from cProfile import Profile
from difflib import unified_diff
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import NamedTuple

import libcst
import pytest
from mutmut.mutation.file_mutation import create_mutations

PACKAGE = Path("nats_scheduler")
TESTS = ["tests/schedule", "tests/message", "tests/engine", "tests/simulation"]
OPTIONS = ["-n", "0", "-q", "--no-header", "--no-summary", "-m", "fast"]

SENTENCE = re.compile(r"\w,? \w")
"""Text for people: its wording is not changed."""

MAX_CPU_SECONDS = 20
"""Processor time of one test; the longest one of the fast tier takes a third of it."""
MAX_SECONDS = 300
"""Time of one test, for a change that waits for ever."""
MAX_MEMORY_BYTES = 2 << 30
"""Address space of the process of one change."""

SURVIVED, FOUND, NOT_MADE = 0, 1, 2
"""The exit codes of the process of a change."""


class EndlessError(BaseException):
    """A test took MAX_CPU_SECONDS or MAX_SECONDS."""


class Change(NamedTuple):
    """One change of one function of a module."""

    module: Path
    function: str
    """Its qualified name."""
    tree: libcst.Module
    before: libcst.CSTNode
    after: libcst.CSTNode

    def source(self) -> str:
        """Return the changed text of the module."""
        changed = self.tree.deep_replace(self.before, self.after)
        assert isinstance(changed, libcst.Module)
        code: str = changed.code
        return code

    def code(self) -> CodeType:
        """Return the changed code of the function."""
        pending = [compile(self.source(), str(self.module.resolve()), "exec", dont_inherit=True)]
        for code in pending:
            if code.co_qualname == self.function:
                return code
            pending += [const for const in code.co_consts if isinstance(const, CodeType)]
        raise AssertionError(f"{self.function} is not in {self.module}")

    def __str__(self) -> str:
        """Return the module, the function, and the lines before and after."""
        lines = unified_diff(self.tree.code.splitlines(), self.source().splitlines(), lineterm="", n=0)
        return "\n".join([f"{self.module} {self.function}", *list(lines)[2:]])


def changes_of(module: Path) -> list[Change]:
    """Return all changes of a module."""
    tree, mutations, _, _ = create_mutations(str(module), module.read_text("utf-8"))
    names: dict[libcst.CSTNode | None, str] = {}
    for node in tree.body:
        if isinstance(node, libcst.FunctionDef):
            names[node] = node.name.value
        elif isinstance(node, libcst.ClassDef):
            methods = [child for child in node.body.body if isinstance(child, libcst.FunctionDef)]
            names |= {method: f"{node.name.value}.{method.name.value}" for method in methods}
    return [
        Change(module, names[function], tree, before, mutation.mutated_node)
        for mutation in mutations
        if (function := mutation.contained_by_top_level_function) in names
        if not (isinstance(before := mutation.original_node, libcst.SimpleString) and SENTENCE.search(before.value))
    ]


class Mutation:
    """The pytest plugin that runs the tests against each change."""

    def __init__(self, changes: list[Change]) -> None:
        self._changes = changes
        self._failed = False
        self._reaching: defaultdict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
        self._seconds: dict[pytest.Item, float] = {}
        self.survivors: list[Change] = []
        self.unreached: list[Change] = []
        self.not_made: list[Change] = []

    def pytest_configure(self) -> None:
        """Draw the same examples for each change, and report a failing one as it is found."""
        from hypothesis import Phase, settings  # pytest has to load it first

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutation", phases=phases, derandomize=True, database=None, deadline=None)
        settings.load_profile("mutation")
        signal.signal(signal.SIGVTALRM, _end)
        signal.signal(signal.SIGALRM, _end)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that a test failed."""
        self._failed = self._failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all tests on the original code, and then against each change those that reach it."""
        assert session.items, "no tests were collected"
        self._learn(session.items)
        reaching = [self._reaching[str(change.module.resolve()), change.function] for change in self._changes]
        first = next(filter(None, reaching), None)
        unchanged = SURVIVED if first is None else self._outcome(None, first)
        assert unchanged == SURVIVED, "tests fail without a change, in a process of their own"
        for number, (change, tests) in enumerate(zip(self._changes, reaching, strict=True), 1):
            outcome = self._outcome(change, tests) if tests else FOUND
            if not tests:
                self.unreached.append(change)
            elif outcome == NOT_MADE:  # in the default of a parameter
                self.not_made.append(change)
            elif outcome == SURVIVED:
                self.survivors.append(change)
                print(f"\n{number}: {change}", flush=True)
        return True

    def _learn(self, items: list[pytest.Item]) -> None:
        rooms = str(PACKAGE.resolve())
        for item in items:
            profile = Profile(builtins=False, subcalls=False)
            begun = time.process_time()
            profile.enable()
            is_failed = self._run(item)
            profile.disable()
            self._seconds[item] = time.process_time() - begun
            assert not is_failed, f"{item.nodeid} fails on the original code"
            reached = {entry.code for entry in profile.getstats()}
            for code in reached:
                if isinstance(code, CodeType) and code.co_filename.startswith(rooms):
                    self._reaching[code.co_filename, code.co_qualname].append(item)

    def _run(self, item: pytest.Item) -> bool:
        """Run one test; return whether it failed."""
        for name, module in list(sys.modules.items()):
            if name.startswith(("nats_scheduler.", "tests.")):
                for value in list(vars(module).values()):
                    if callable(clear := getattr(value, "cache_clear", None)):
                        clear()
        signal.setitimer(signal.ITIMER_VIRTUAL, MAX_CPU_SECONDS, 1)
        signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS, 1)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        return self._failed

    def _outcome(self, change: Change | None, tests: list[pytest.Item]) -> int:
        child = os.fork()
        if child:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            return code if code in (SURVIVED, NOT_MADE) else FOUND
        outcome = NOT_MADE
        try:
            resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
            tests[0].config.pluginmanager.unregister(name="terminalreporter")
            if change is None or _is_made(change):
                outcome = FOUND
                if not any(map(self._run, sorted(tests, key=self._seconds.__getitem__))):
                    outcome = SURVIVED
        finally:
            os._exit(outcome)


def _is_made(change: Change) -> bool:
    """Put the changed code into its function; return whether it is another code than before."""
    code = change.code()
    gc.unfreeze()  # otherwise what conftest froze is not listed
    functions = [
        one
        for one in gc.get_objects()
        if isinstance(one, FunctionType)
        and (one.__code__.co_filename, one.__code__.co_qualname) == (code.co_filename, code.co_qualname)
    ]
    is_other = any(function.__code__ != code for function in functions)
    for function in functions:
        function.__code__ = code
    return is_other


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise EndlessError


def _modules(name: str) -> list[Path]:
    """Return the modules that are meant by `engine` or `engine/stream`."""
    one = PACKAGE / f"{name}.py"
    return [one] if one.exists() else sorted((PACKAGE / name).rglob("*.py"))


def main() -> None:
    """Read the command line, run, and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="+", help="rooms or modules: schedule, engine/stream")
    parser.add_argument("--sample", type=int, help="so many changes of each room, drawn at random; default all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", nargs="+", default=TESTS)
    given = parser.parse_args()
    for name in given.names:
        changes = [change for module in _modules(name) for change in changes_of(module)]
        total = len(changes)
        if given.sample is not None and given.sample < total:
            changes = random.Random(given.seed).sample(changes, given.sample)
        plugin = Mutation(changes)
        begun = time.monotonic()
        if code := pytest.main([*OPTIONS, *given.tests], plugins=[plugin]):
            sys.exit(f"pytest ended with {code!r}")
        for change in plugin.unreached:
            print(f"not reached: {change}")
        made = len(changes) - len(plugin.not_made)
        if 2 * made < len(changes):
            sys.exit(f"{len(plugin.not_made)} of {len(changes)} changes could not be made")
        found = made - len(plugin.survivors) - len(plugin.unreached)
        print(
            f"{name}: {made} of {total} changes, found {found} ({100 * found / made:.1f} %), "
            f"survived {len(plugin.survivors)}, not reached {len(plugin.unreached)}, "
            f"{time.monotonic() - begun:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
