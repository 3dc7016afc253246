"""A message of a stranger as a document, and its body as lines: what is shown is what is stored, up to limits."""

import base64
import json
from collections.abc import Mapping

import pytest
from pydantic import TypeAdapter

from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.observe.message_contents import (
    MAX_BODY_BYTES,
    MAX_HEADERS,
    BodyLines,
    ContentDocument,
    body_lines,
    content_document,
)
from tests.harness.blocks import block_of

SCHEDULE = {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": "S.out"}
NO_OTHERS: Mapping[str, str] = {}


def content(body: bytes = b"", headers: Mapping[str, str] = NO_OTHERS) -> ContentDocument:
    """Return the document of a schedule, with some headers of its publisher, and check its form."""
    block = block_of(*{**SCHEDULE, **headers}.items())
    document = content_document(StoredMessage("S.s", 7, 0, block, body), is_fire=False)
    assert TypeAdapter(ContentDocument).validate_python(json.loads(json.dumps(document))) == document
    return document


def lines_of(body: bytes) -> BodyLines:
    return body_lines(content(body))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"x" * (MAX_BODY_BYTES + 1), "x" * MAX_BODY_BYTES),
        ("ä".encode() * MAX_BODY_BYTES, "ä" * (MAX_BODY_BYTES // 2)),
        (b"x" + "ä".encode() * MAX_BODY_BYTES, "x" + "ä" * (MAX_BODY_BYTES // 2 - 1)),
        (
            b"xxx" + "\N{DROMEDARY CAMEL}".encode() * MAX_BODY_BYTES,
            "xxx" + "\N{DROMEDARY CAMEL}" * (MAX_BODY_BYTES // 4 - 1),
        ),
    ],
)
def test_of_a_long_text_the_beginning_is_there_in_whole_characters(body: bytes, text: str) -> None:
    document = content(body)
    assert (document["body"], document["body_base64"], document["body_complete"]) == (text, None, False)
    assert document["body_bytes"] == len(body)


@pytest.mark.parametrize(
    "body", [b"\xff", b"text\xc3", b"\xed\xa0\x80", b"x" * MAX_BODY_BYTES + b"\xff", b"\xc3(" * 20_000]
)
def test_what_is_no_utf_8_is_base64(body: bytes) -> None:
    document = content(body)
    is_text = body[:MAX_BODY_BYTES] == b"x" * MAX_BODY_BYTES
    assert document["body"] == ("x" * MAX_BODY_BYTES if is_text else None)
    if not is_text:
        assert base64.b64decode(document["body_base64"] or "") == body[:MAX_BODY_BYTES]
        assert document["body_complete"] is (len(body) <= MAX_BODY_BYTES)


def test_headers_that_are_many_are_counted() -> None:
    document = content(b"", {f"h{number}": "" for number in range(3_000)})
    assert (len(document["headers"]), document["headers_omitted"]) == (MAX_HEADERS, 3_002 - MAX_HEADERS)


def test_json_is_indented_and_none_of_its_tokens_changes() -> None:
    text = '{"a":[1.00,{}, [ ],"x: {,}\\""],"a":1e999,"b":{"c":null}}'
    assert lines_of(text.encode()) == BodyLines(
        "JSON",
        [
            *("{", '  "a": [', "    1.00,", "    {},", "    [],", '    "x: {,}\\""', "  ],", '  "a": 1e999,'),
            *('  "b": {', '    "c": null', "  }", "}"),
        ],
        True,
    )
    assert lines_of(b'"one"').lines == ['"one"']


@pytest.mark.parametrize("body", [b"NaN", b"{", b"[1,]", b"a: b", b"1" * 5_000 + b"x", b"\xef\xbb\xbf{}"])
def test_what_is_no_json_is_shown_as_it_is(body: bytes) -> None:
    assert lines_of(body) == BodyLines("text", [body.decode()], True)


def test_a_made_up_document_is_shown_as_far_as_it_can_be() -> None:
    made_up = content(b"x")
    made_up |= {"body": None, "body_base64": "<b>"}
    assert body_lines(made_up) == BodyLines("binary", [], True)
    made_up |= {"body": "x" * 10 * MAX_BODY_BYTES, "body_bytes": -1}
    assert len("".join(body_lines(made_up).lines)) == MAX_BODY_BYTES
