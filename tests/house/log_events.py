"""The names of the events that the program can log and of the advisories that it can publish, read off its source.

The rule: a name is the first argument of a method of a logger, or of the function that publishes. A function that hands
its own first parameter on is one more of these, so its callers are read; any other name than a text is an error.
Limit: fields are those that stand in the call. What a call gives as `**fields` is judged when a test has it written
(`tests/harness/log_lines.py`, `tests/harness/advisories.py`).
"""

import ast
from collections.abc import Iterator
from functools import cache

from tests.house.sources import PACKAGE, modules, place, syntax_tree

LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
ALIASES = frozenset({"write"})
"""The local names of a method of a logger that is chosen first."""
Written = dict[str, set[str]]


@cache
def log_events() -> Written:
    """Return every event that the program can log, with the fields that stand in its calls."""
    return written(LEVELS | ALIASES)


@cache
def advisories() -> Written:
    """Return every advisory that the program can publish, by kind, without the fields that all of them have."""
    return written(frozenset({"advisory_message"}))


def written(first: frozenset[str]) -> Written:
    """Return the texts that functions of these names are given, and those that hand a name on to them."""
    found: Written = {}
    writers, pending = set(first), set(first)
    while pending:
        current, pending = pending, set()
        for function, call in calls():
            callee = last_name(call.func)
            if callee not in current or (callee in first and not is_writing(call.func)):
                continue
            name = call.args[0]
            if isinstance(name, ast.Constant):
                found.setdefault(str(name.value), set()).update(fields_of(call))
                continue
            parameters = [one.arg for one in function.args.args if one.arg not in ("self", "cls")]
            is_handed_on = isinstance(name, ast.Name) and parameters[:1] == [name.id]
            assert is_handed_on, f"{place(PACKAGE, call)} of {function.name}: expected a text, or the first parameter"
            pending |= {function.name} - writers
        writers |= pending
    return found


def fields_of(call: ast.Call) -> set[str]:
    """Return the keywords of a call, and the keys of the dictionaries that stand in it."""
    keys = [key for node in call.args if isinstance(node, ast.Dict) for key in node.keys]
    named = {str(key.value) for key in keys if isinstance(key, ast.Constant)}
    return named | {"exception" if one.arg == "exc_info" else one.arg for one in call.keywords if one.arg}


def field_names() -> set[str]:
    """Return every name that the package gives as a keyword, or writes as a text: what a field can be called."""
    nodes = [node for module in modules(PACKAGE) for node in ast.walk(syntax_tree(module))]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return texts | {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}


def is_writing(callee: ast.expr) -> bool:
    """Return whether a method is that of a logger, held or asked for; any other function is one if its name is."""
    if isinstance(callee, ast.Name):
        return callee.id not in LEVELS
    logger = callee.value if isinstance(callee, ast.Attribute) else callee
    return last_name(logger.func if isinstance(logger, ast.Call) else logger) in ("_log", "log", "logger")


def last_name(expression: ast.expr) -> str:
    """Return the last part of a dotted name."""
    return str(getattr(expression, "attr", getattr(expression, "id", "?")))


@cache
def calls() -> list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, ast.Call]]:
    """List the calls with arguments of each function."""
    return list(_calls())


def _calls() -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, ast.Call]]:
    for module in modules(PACKAGE):
        for function in ast.walk(syntax_tree(module)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from ((function, node) for node in ast.walk(function) if isinstance(node, ast.Call) and node.args)
