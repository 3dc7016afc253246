"""The events that the program can write into its log and publish as advisories, read off its source.

The rule: nothing is named here but the methods of a logger, and the one that publishes.
A function that hands its own parameter on as the name of an event (`Reporter.problem`) is found, and its callers are
read in its stead.
Fields are followed through names, dictionaries and functions; what cannot be followed is an AssertionError, so that no
event is passed over.
Limit: a function is known by its last name, so that one name has one meaning in the whole package.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from tests.house.sources import PACKAGE, modules, place, syntax_tree

LEVELS = ("debug", "info", "warning", "error", "exception", "critical")
LOGS = ("_log", "log")
"""The names of a logger where it is held; elsewhere it is asked for, `logger()`."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Written:
    """The levels and the fields of one event."""

    levels: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Call:
    """A call, and the function that it stands in."""

    module: Path
    function: Function | None
    node: ast.Call

    @property
    def place(self) -> str:
        return place(self.module, self.node)


@dataclass(frozen=True)
class Sink:
    """A function that writes an event whose name it is given."""

    name: str
    position: int = 0
    """The place of the name among its arguments."""
    levels: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    """Fields that it adds itself."""
    mapping: int | None = None
    """The place of a dictionary of fields among its arguments, if one is there."""


@cache
def log_events() -> dict[str, Written]:
    """Return every event that the program can log, by name."""
    return _written([Sink(level, levels=frozenset([level])) for level in LEVELS], _is_of_a_log)


@cache
def advisories() -> dict[str, Written]:
    """Return every advisory that the program can publish, by kind, without the fields that all of them have."""
    return _written([Sink("advisory_message", mapping=2)], lambda _callee: True)


def _written(first: list[Sink], is_writing: Callable[[ast.expr], bool]) -> dict[str, Written]:
    found: dict[str, Written] = {}
    pending, known = list(first), {sink.name for sink in first}
    while pending:
        sink = pending.pop()
        assert sink in first or not _handed_over(sink.name), f"{_handed_over(sink.name)}: call {sink.name} there"
        for call in _calls():
            if not any(is_writing(one) or sink not in first for one in _callees(call) if _last_name(one) == sink.name):
                continue
            event, fields = call.node.args[sink.position], _fields(call, sink)
            if isinstance(event, ast.Constant):
                written = found.setdefault(str(event.value), Written())
                written.levels |= sink.levels
                written.fields |= fields
                continue
            assert isinstance(event, ast.Name), f"{call.place}: the name of an event stands there, or is a parameter"
            passing = _passing_on(call, event.id, replace(sink, own=frozenset(fields)))
            if passing.name not in known:
                known.add(passing.name)
                pending.append(passing)
    return found


def _handed_over(name: str) -> list[str]:
    """List where a method is not called but given to others, with whatever name of an event they choose."""
    called = {call.node.func for call in _calls()}
    return [
        place(module, node)
        for module in modules(PACKAGE)
        for node in ast.walk(syntax_tree(module))
        if isinstance(node, ast.Attribute) and node.attr == name and node not in called
    ]


def _passing_on(call: Call, parameter: str, sink: Sink) -> Sink:
    """Return the function that a call stands in as a sink of its own."""
    function, parameters = call.function, _parameters(call.function)
    assert function is not None, call.place
    assert parameter in parameters, f"{call.place}: {parameter} is no parameter of {function.name}"
    given = [one.value for one in call.node.keywords if one.arg is None]
    names = [one.id for one in given if isinstance(one, ast.Name) and one.id in parameters]
    mapping = parameters.index(names[0]) if names else None
    return replace(sink, name=function.name, position=parameters.index(parameter), mapping=mapping)


def _fields(call: Call, sink: Sink) -> set[str]:
    """Return the fields that a call writes, without those that its own function is given."""
    found = set(sink.own)
    for keyword in call.node.keywords:
        if keyword.arg is None:
            found |= _keys(keyword.value, call)
        else:
            found.add("exception" if keyword.arg == "exc_info" else keyword.arg)
    if sink.mapping is not None:
        found |= _keys(call.node.args[sink.mapping], call)
    return found


def _keys(expression: ast.expr, call: Call) -> set[str]:
    """Return the keys that a dictionary may have."""
    match expression:
        case ast.Dict(keys=keys, values=values):
            found: set[str] = set()
            for key, value in zip(keys, values, strict=True):
                found |= _keys(value, call) if key is None else {str(ast.literal_eval(key))}
            return found
        case ast.IfExp(body=body, orelse=orelse):
            return _keys(body, call) | _keys(orelse, call)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _keys(left, call) | _keys(right, call)
        case ast.Constant(value=None):
            return set()
        case ast.Name(id=name):
            return _keys_of_name(name, call)
        case ast.Call(func=func):
            return _keys_returned(_last_name(func), call)
    raise AssertionError(f"{place(call.module, expression)}: which fields this has cannot be read")


def _keys_of_name(name: str, call: Call) -> set[str]:
    assert call.function is not None, call.place
    if name in _parameters(call.function):
        return set()  # a mapping that the callers give, read there
    if call.function.args.kwarg is not None and name == call.function.args.kwarg.arg:
        return _keywords_given(call.function)
    values = [value for one, value in _assignments(call.function) if one == name]
    assert values, f"{call.place}: {name} is not assigned here"
    return set().union(*(_keys(value, call) for value in values))


def _keywords_given(function: Function) -> set[str]:
    """Return what callers give as keywords that a function has no parameters for."""
    named = {*_parameters(function), *(one.arg for one in function.args.kwonlyargs)}
    found: set[str] = set()
    if "action" in named or "kind" in named:
        return found  # the name of the event is a parameter too: its callers are read one by one
    for call in _calls():
        if _last_name(call.node.func) == function.name:
            found |= _fields(call, Sink(function.name)) - named
    return found


def _keys_returned(name: str, call: Call) -> set[str]:
    """Return the keys of what functions of that name return, of those that return dictionaries."""
    found: set[str] | None = None
    for module in modules(PACKAGE):
        for function in _functions(module):
            if function.name == name:
                returned = [one.value for one in ast.walk(function) if isinstance(one, ast.Return) and one.value]
                try:
                    keys = [_keys(value, Call(module, function, call.node)) for value in returned]
                except AssertionError:
                    continue
                found = (found or set()).union(*keys)
    assert found is not None, f"{call.place}: {name}() returns what cannot be read"
    return found


def _callees(call: Call) -> Iterator[ast.expr]:
    """Yield what a call may call: what is written there, or what was assigned to that name."""
    if isinstance(call.node.func, ast.Name) and call.function is not None:
        for name, value in _assignments(call.function):
            if name == call.node.func.id:
                yield from (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)
    yield call.node.func


def _is_of_a_log(callee: ast.expr) -> bool:
    if not isinstance(callee, ast.Attribute):
        return False
    holder = callee.value
    return _last_name(holder.func) == "logger" if isinstance(holder, ast.Call) else _last_name(holder) in LOGS


def _last_name(expression: ast.expr) -> str:
    match expression:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return "?"


def _parameters(function: Function | None) -> list[str]:
    if function is None:
        return []
    return [one.arg for one in function.args.args if one.arg not in ("self", "cls")]


@cache
def _functions(module: Path) -> list[Function]:
    return [one for one in ast.walk(syntax_tree(module)) if isinstance(one, Function)]


@cache
def _assignments(function: Function) -> list[tuple[str, ast.expr]]:
    """List what is assigned to names in a function."""
    found: list[tuple[str, ast.expr]] = []
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.append((name, value))
            case (
                ast.NamedExpr(target=ast.Name(id=name), value=value)
                | ast.AugAssign(target=ast.Name(id=name), value=value)
            ):
                found.append((name, value))
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                found += [
                    (one.id, value) for one, value in zip(names, values, strict=True) if isinstance(one, ast.Name)
                ]
    return found


@cache
def _calls() -> list[Call]:
    """List every call of the package, with the innermost function that it stands in."""
    found: list[Call] = []
    for module in modules(PACKAGE):
        inside: dict[ast.Call, Function] = {}
        for function in _functions(module):  # outer ones come first, so that inner ones have the last word
            inside |= {node: function for node in ast.walk(function) if isinstance(node, ast.Call)}
        nodes = [node for node in ast.walk(syntax_tree(module)) if isinstance(node, ast.Call)]
        found += [Call(module, inside.get(node), node) for node in nodes]
    return found
