"""Texts of files as plain values: YAML and JSON, with the line of each value, and no values that YAML guesses.

Rule: only `true`, `false`, `null` and numbers that are written as JSON writes them are not text. YAML 1.1 makes a date
of `2027-07-01`, a number of `12:30:00` and false of `no`; here these are texts. Nothing but maps, lists, texts, numbers
and truth values is built, whatever tags a file has.
A text that begins with `{` or `[` is JSON; all others are YAML. YAML reads JSON too, and so it finds the lines of both.
Cost: 10,000 schedules are read in about 1 s, most of it in the library; and the library, which is why
`files.file_reading` imports this only to read a text: a sidecar receives values.
Limit: aliases of YAML are followed, up to `MAX_VALUES` values in a file.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from nats_scheduler.files.document import MAX_DEPTH, FileDocument, TextError

MAX_VALUES = 2_000_000
"""Values in one file, those of aliases counted each time: a few lines of aliases can stand for billions."""

MAX_CHARS = 64 * 1024 * 1024
"""Characters in one file, and in its values: an alias of a long text counts each time too."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"


def read_documents(text: str) -> list[FileDocument]:
    """Return the documents of a file; raises `TextError`."""
    if len(text) > MAX_CHARS:
        raise TextError(None, f"has more than {MAX_CHARS:,} characters")
    if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        return _read_json(text)
    try:
        _check_depth(text)
        nodes = [node for node in yaml.compose_all(text, Loader=_FileLoader) if node is not None]
    except yaml.YAMLError as error:
        raise _yaml_error(error) from None
    builder = _Builder()
    return [FileDocument(builder.value(node, 0), node) for node in nodes if not _is_empty(node)]


class _FileLoader(_Loader):  # type: ignore[misc]  # the loader in C is there or not
    """A loader that takes for text what JSON would not take for a number or a truth value."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the name and the form are those of the library


for _kind, _expression, _first in (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", ["n", "~", ""]),
    ("int", r"-?(?:0|[1-9][0-9]*)", "-0123456789"),
    ("float", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", "-0123456789"),
):
    _FileLoader.add_implicit_resolver(_TAG + _kind, re.compile(f"^(?:{_expression})$"), list(_first))


class _Builder:
    """Builds the plain values of nodes."""

    def __init__(self) -> None:
        self._values = 0
        self._chars = 0

    def value(self, node: yaml.Node, depth: int) -> Any:
        self._values += 1
        if self._values > MAX_VALUES or depth > MAX_DEPTH:
            raise TextError(
                _line(node), f"has more than {MAX_VALUES:,} values, or is nested more than {MAX_DEPTH} deep"
            )
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._map(node, depth)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.value(one, depth + 1) for one in node.value]
        if isinstance(node, yaml.ScalarNode) and (build := _SCALARS.get(node.tag)) is not None:
            self._chars += len(node.value)
            if self._chars > MAX_CHARS:
                raise TextError(_line(node), f"has values of more than {MAX_CHARS:,} characters, aliases counted")
            try:
                return build(node.value)
            except ValueError:  # Python reads no number of thousands of digits
                raise TextError(_line(node), f"has a number of {len(node.value):,} digits") from None
        raise TextError(_line(node), f"has the tag {node.tag!r}: expected text, a number, true, false, a list or a map")

    def _map(self, node: yaml.MappingNode, depth: int) -> dict[str, Any]:
        built: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.value(key_node, depth + 1)
            if not isinstance(key, str):
                raise TextError(_line(key_node), f"the key {key!r} is no text")
            if key in built:
                raise TextError(_line(key_node), f"the key {key!r} is there twice")
            built[key] = self.value(value_node, depth + 1)
        return built


_SCALARS: Mapping[str, Callable[[str], Any]] = {
    _TAG + "str": str,
    _TAG + "int": int,
    _TAG + "float": float,
    _TAG + "bool": lambda text: text == "true",
    _TAG + "null": lambda _text: None,
}


def _read_json(text: str) -> list[FileDocument]:
    try:
        value = json.loads(text.lstrip("\ufeff"), object_pairs_hook=_without_doubles)
    except json.JSONDecodeError as error:
        raise TextError(error.lineno, f"is no JSON: {error.msg}") from None
    except ValueError:  # Python reads no number of thousands of digits
        raise TextError(None, "has a number of thousands of digits") from None
    except RecursionError:
        raise TextError(None, f"is nested more than {MAX_DEPTH} deep") from None
    values = value if isinstance(value, list) else [value]
    nodes: list[Any] = [None] * len(values)
    try:
        _check_depth(text)
        root = yaml.compose(text, Loader=_FileLoader)
    except yaml.YAMLError:
        root = None  # tabs, for example: then errors have no line
    if root is not None:
        nodes = root.value if isinstance(value, list) else [root]
    return [FileDocument(one, node) for one, node in zip(values, nodes, strict=True)]


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) < len(pairs):
        counts = Counter(name for name, _value in pairs)
        raise TextError(None, f"the key {counts.most_common(1)[0][0]!r} is there twice")
    return built


def _check_depth(text: str) -> None:
    """Raise `TextError` if values are nested too deep: the library in C builds nodes by recursion, without a limit."""
    depth = 0
    for event in yaml.parse(text, Loader=_FileLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise TextError(_line(event), f"is nested more than {MAX_DEPTH} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _is_empty(node: yaml.Node) -> bool:
    return node.tag == _TAG + "null"


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


def _yaml_error(error: yaml.YAMLError) -> TextError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return TextError(None if mark is None else mark.line + 1, f"is no YAML: {problem}")
