"""Write schedules into files: one form for the same schedules, so that a second export has the same bytes.

What is written reads to the same declaration; text that no file can hold safely is written in base64. A body is text if
it is UTF-8 without control characters other than tabs and line breaks; all else is binary. A file is built in memory.
"""

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Literal

from nats_scheduler.control.declared import (
    AT,
    EVERY,
    Content,
    Declared,
    Readable,
    as_text,
    is_text,
    lines_of,
    policy_key,
)
from nats_scheduler.files.yaml_writing import yaml_lines
from nats_scheduler.message.dialect import ADR51, Dialect
from nats_scheduler.message.headers import encoded
from nats_scheduler.message.schedule_form import BESIDE_PATTERN

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
    form, pattern = content.form, content.form.pattern or ""
    if pattern.startswith((AT, EVERY)):
        found["at" if pattern.startswith(AT) else "every"] = pattern.partition(" ")[2]
    else:
        found["cron"] = pattern
    for field in BESIDE_PATTERN:
        if (value := getattr(form, field.name)) is not None:
            found[field.name] = True if field.on else value
    if form.policies:
        found["policies"] = {policy_key(name): value for name, value in form.policies}
    if content.dialect is not spelling:
        found["spelling"] = content.dialect.name
    if form.headers:
        found["headers"] = [_header(name, value) for name, value in form.headers]
    if content.order != "usual":
        found["order"] = content.order if content.order == "sorted" else [name.decode() for name in content.order]
    return found


def _header(name: str, value: str) -> dict[str, str]:
    return {"name": name, **({"value": value} if is_text(value) else {"value_base64": _base64(encoded(value))})}


def _body(body: bytes) -> dict[str, str]:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return {"body_base64": _base64(body)}
    return {"body_base64": _base64(body)} if _binary(text) else {"body": text}


def _base64(value: bytes) -> str:
    return b64encode(value).decode()
