"""Write schedules into files: one form for the same schedules, so that a second export has the same bytes.

Rule: what is written reads to the same declaration; text that no file can hold safely is written in base64.
A body is text if it is UTF-8 without control characters other than tabs and line breaks; all else is binary.
Cost: 10,000 schedules take some 0.1 s. Limit: a file is built in memory.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from nats_scheduler.control.declared import AT, EVERY, Content, Declared, Readable, as_text, lines_of, policy_key
from nats_scheduler.message.dialect import ADR51, Dialect

# Write plain values as YAML: the same value gives the same text, with any version of any library.
#
# Rule: a text that some reader of YAML could take for something else is in quotes, with the escapes of JSON; a text
# of several lines that reads well is a block. Everything that is written here is read as the same value by
# `files.text`, and by readers of YAML 1.1. Cost: 10,000 schedules take some 0.1 s. Limit: lists contain texts and
# maps, as files of schedules do.

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


Format = Literal["yaml", "json"]

_binary = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]").search


def stream_document(
    stream: str, declared: Sequence[Declared], *, owner: str | None = None, spelling: Dialect = ADR51
) -> dict[str, Any]:
    """Return the document of a stream, its schedules by subject; `spelling` is that of most of them."""
    document: dict[str, Any] = {"stream": stream}
    if owner is not None:
        document["owner"] = owner
    if spelling is not ADR51:
        document["spelling"] = spelling.name
    ordered = sorted(declared, key=lambda one: one.subject)
    document["schedules"] = [schedule_document(one, spelling) for one in ordered]
    return document


def written_file(documents: Sequence[dict[str, Any]], form: Format) -> str:
    """Return the text of a file with these documents."""
    if form == "json":
        whole = documents[0] if len(documents) == 1 else list(documents)
        return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
    return "---\n".join("".join(f"{line}\n" for line in yaml_lines(one)) for one in documents)


def schedule_document(one: Declared, spelling: Dialect) -> dict[str, Any]:
    """Return what a document says of a schedule; `spelling` is that of the document."""
    found: dict[str, Any] = {"subject": one.subject}
    found |= _headers(one.content, spelling)
    if one.paused is not None:
        found["paused"] = one.paused
    return found | _body(one.body)


def _headers(content: Content, spelling: Dialect) -> dict[str, Any]:
    if isinstance(content, Readable):
        return _readable(content, spelling)
    lines = lines_of(content)
    if lines is None:
        return {"block_base64": _base64(content)}
    return {"lines": [{"base64": _base64(line)} if (text := as_text(line)) is None else text for line in lines]}


def _readable(content: Readable, spelling: Dialect) -> dict[str, Any]:
    found: dict[str, Any] = {}
    pattern = content.pattern
    if pattern.startswith((AT, EVERY)):
        found["at" if pattern.startswith(AT) else "every"] = pattern.partition(" ")[2]
    else:
        found["cron"] = pattern
    for key in ("time_zone", "target", "source", "ttl"):
        if (value := getattr(content, key)) is not None:
            found[key] = value
    if content.rollup:
        found["rollup"] = True
    if content.policies:
        found["policies"] = {policy_key(name): value for name, value in content.policies}
    if content.dialect is not spelling:
        found["spelling"] = content.dialect.name
    if content.headers:
        found["headers"] = [_header(name, value) for name, value in content.headers]
    if content.order != "usual":
        found["order"] = content.order if content.order == "sorted" else [name.decode() for name in content.order]
    return found


def _header(name: bytes, value: bytes) -> dict[str, str]:
    text = as_text(value)
    return {"name": name.decode(), **({"value_base64": _base64(value)} if text is None else {"value": text})}


def _body(body: bytes) -> dict[str, str]:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return {"body_base64": _base64(body)}
    return {"body_base64": _base64(body)} if _binary(text) else {"body": text}


def _base64(value: bytes) -> str:
    return b64encode(value).decode()
