"""Write plain values as YAML: the same value gives the same text, with any version of any library.

The rules:

- A text that some reader of YAML could take for something else is in quotes, with the escapes of JSON; a text of
  several lines that reads well is a block.
- Everything that is written here is read as the same value by `files.text`, and by readers of YAML 1.1.
- Lists contain texts and maps, as files of schedules do.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

_plain = re.compile(r"[A-Za-z0-9/$_][A-Za-z0-9/$_. ,+*>=@|~-]*").fullmatch
_word_or_number = re.compile(r"(?:true|false|null|yes|no|on|off|y|n|[-+.0-9][-+.0-9_a-f:exT]*)", re.I).fullmatch
_odd = re.compile(
    r"[^\x20-\x7e\xa1-\xac\xae-\u1fff\u2010-\u2027\u2030-\u205e\u2070-\ud7ff\ufdf0-\ufefe\uff01-\uffee\U00010000-\U0001ffff]"
)


def yaml_lines(value: Any, indent: int = 0) -> Iterator[str]:
    """Yield the lines of a map as YAML: the same value always gives the same text, with any version of any library.

    A text that another reader of YAML could take for something else is in quotes.
    """
    space = "  " * indent
    for key, one in value.items():
        if isinstance(one, dict):
            yield f"{space}{key}:"
            yield from yaml_lines(one, indent + 1)
        elif isinstance(one, list):
            yield f"{space}{key}:" if one else f"{space}{key}: []"
            for item in one:
                yield from _item_lines(item, indent + 1)
        elif isinstance(one, str) and _is_block(one):
            yield f"{space}{key}: {'|' if one.endswith(chr(10)) else '|-'}"
            yield from (f"{space}  {line}" if line else "" for line in one.removesuffix("\n").split("\n"))
        else:
            yield f"{space}{key}: {_scalar(one)}"


def _item_lines(item: Any, indent: int) -> Iterator[str]:
    if not isinstance(item, dict):
        yield f"{'  ' * indent}- {_scalar(item)}"
        return
    first = True
    for line in yaml_lines(item, indent + 1):
        yield f"{'  ' * indent}- {line[2 * indent + 2 :]}" if first else line
        first = False


def _scalar(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if _plain(value) and not value.endswith(" ") and not _word_or_number(value):
        return value
    return '"' + _odd.sub(_escaped, value.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _escaped(found: re.Match[str]) -> str:
    short = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(found[0])
    code = ord(found[0])
    return short or (f"\\U{code:08X}" if code > 0xFFFF else f"\\u{code:04X}")


def _is_block(text: str) -> bool:
    """Return whether a text of several lines reads well, and unchanged, as a block."""
    lines = text.removesuffix("\n").split("\n")
    if len(lines) < 2 or not lines[0] or not lines[-1] or text.startswith((" ", "\t")):
        return False
    return not any(line.endswith(" ") or _odd.search(line) for line in lines)
