"""The names of the events that the program can log and of the advisories that it can publish, read off its source.

The rule: a name is the first argument of a method of a logger, or of the function that publishes. A function that hands
its own first parameter on is one more of these, so its callers are read; any other name than a text, or a code of the
catalogue of findings, is an error.
Limit: fields are those that stand in the call. What a call gives as `**fields` is judged when a test has it written
(`tests/harness/log_lines.py`, `tests/harness/advisories.py`).
"""

import ast
from collections.abc import Iterator
from functools import cache

from nats_scheduler.message.findings import Code
from tests.house.sources import PACKAGE, modules, place, syntax_tree

LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
ALIASES = frozenset({"write"})
"""The local names of a method of a logger that is chosen first."""
Written = dict[str, set[str]]
Function = ast.FunctionDef | ast.AsyncFunctionDef


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
        for within, call in calls():
            callee = last_name(call.func)
            if callee not in current or (callee in first and not is_writing(call.func)):
                continue
            name = call.args[0]
            if text := text_of(name):
                found.setdefault(text, set()).update(fields_of(call))
                continue
            handing = {one.name for one in within if isinstance(name, ast.Name) and first_parameter(one) == name.id}
            assert handing, f"{place(PACKAGE, call)}: expected a text, or the first parameter of the function"
            pending |= handing - writers
        writers |= pending
    return found


def text_of(name: ast.expr) -> str:
    """Return a name that is a text, or a code of a finding; "" for any other."""
    if isinstance(name, ast.Attribute) and last_name(name.value) == "Code":
        return Code[name.attr].value
    return str(name.value) if isinstance(name, ast.Constant) else ""


def first_parameter(function: Function) -> str:
    """Return the first parameter of a function or method, "" for none."""
    return next((one.arg for one in function.args.args if one.arg not in ("self", "cls")), "")


def fields_of(call: ast.Call) -> set[str]:
    """Return the keywords of a call, and the keys of the dictionaries that stand in it or in a lambda of it."""
    parts = [node.body if isinstance(node, ast.Lambda) else node for node in call.args]
    keys = [key for node in parts if isinstance(node, ast.Dict) for key in node.keys]
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
def calls() -> list[tuple[tuple[Function, ...], ast.Call]]:
    """List the calls with arguments, each with the functions that it stands in."""
    return [found for module in modules(PACKAGE) for found in _calls(syntax_tree(module), ())]


def _calls(node: ast.AST, within: tuple[Function, ...]) -> Iterator[tuple[tuple[Function, ...], ast.Call]]:
    if isinstance(node, ast.Call) and node.args:
        yield within, node
    inner = (*within, node) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else within
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, inner)
