"""A message of a stranger as a document, and its body as lines: what is shown is what is stored, up to limits."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import TypeAdapter

from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.observe.message_contents import (
    INDENT,
    MAX_BODY_BYTES,
    MAX_HEADERS,
    MAX_HEX_BYTES,
    MAX_LEVELS,
    MAX_LINES,
    BodyLines,
    ContentDocument,
    body_lines,
    content_document,
    is_shortened,
)
from tests.harness.blocks import block_of

SCHEDULE = {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": "S.out"}
NO_OTHERS: Mapping[str, str] = {}


def content(
    body: bytes = b"", headers: Mapping[str, str] = NO_OTHERS, *, is_fire: bool = False, halvings: int = 0
) -> ContentDocument:
    """Return the document of a schedule, with some headers of its publisher, and check its form."""
    block = block_of(*{**SCHEDULE, **headers}.items())
    document = content_document(StoredMessage("S.s", 7, 0, block, body), is_fire=is_fire, halvings=halvings)
    assert TypeAdapter(ContentDocument).validate_python(json.loads(json.dumps(document))) == document
    return document


def lines_of(body: bytes, most: int = MAX_LINES) -> BodyLines:
    return body_lines(content(body), most)


def test_a_document_says_which_headers_are_in_a_fire() -> None:
    document = content(b"tea", {"Kind": "order", "Nats-TTL": "1h"})
    assert (document["subject"], document["sequence"], document["stored"]) == ("S.s", 7, "1970-01-01T00:00:00Z")
    assert (document["body"], document["body_bytes"], document["body_complete"]) == ("tea", 3, True)
    assert [(one["name"], one["value"], one["sent"]) for one in document["headers"]] == [
        ("Nats-Schedule", "@every 1h", False),
        ("Nats-Schedule-Target", "S.out", False),
        ("Kind", "order", True),
        ("Nats-TTL", "1h", False),
    ]
    assert all(one["sent"] for one in content(is_fire=True)["headers"])


def test_what_of_a_portable_schedule_is_in_a_fire() -> None:
    block = block_of(("X-Nats-Schedule", "@every 1h"), ("Kind", "a"), ("Kind", "b"), ("Nats-Schedule-Target", "x"))
    document = content_document(StoredMessage("S.s", 7, 0, block, None), is_fire=False)
    assert [one["sent"] for one in document["headers"]] == [False, True, True, False]
    assert (document["body"], document["body_bytes"], document["body_complete"]) == ("", 0, True)


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
def test_of_a_long_text_the_beginning_is_there_up_to_a_whole_character(body: bytes, text: str) -> None:
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


def test_with_halvings_a_document_gets_as_short_as_one_wants() -> None:
    long = {f"h{number}": "v" * 1_000 for number in range(60)}
    sizes = [len(json.dumps(content(b"\1" * 2**20, long, halvings=number))) for number in range(17)]
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0] > 200_000, sizes[-1] < 400) == (True, True)


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


def test_text_has_its_lines_and_blanks_for_tabs() -> None:
    assert lines_of(b"a\tb\r\n\n\x1b[31m\xe2\x80\xaec") == BodyLines("text", ["a   b\r", "", "\x1b[31m\u202ec"], True)
    assert lines_of(b"\n" * 9, most=3) == BodyLines("text", ["", "", ""], False)
    assert lines_of(b"a\nb\nc", most=3) == BodyLines("text", ["a", "b", "c"], True)
    assert lines_of(b"") == BodyLines("empty", [], True)


def test_binary_is_shown_in_hexadecimal_digits() -> None:
    assert lines_of(bytes(range(0x70, 0x81))) == BodyLines(
        "binary",
        [
            "000000  70 71 72 73 74 75 76 77 78 79 7a 7b 7c 7d 7e 7f  pqrstuvwxyz{|}~.",
            "000010  80                                               .",
        ],
        True,
    )
    assert len(lines_of(b"\xff" * MAX_BODY_BYTES).lines) == MAX_HEX_BYTES // 16
    assert lines_of(b"\xff" * 100, most=2)[2] is False


def test_json_is_cut_where_it_is_long_and_not_indented_where_it_is_deep() -> None:
    assert lines_of(b"[" + b"0," * 10_000 + b"0]").lines[-1] == f"{INDENT}0,"
    assert len(lines_of(b"[" + b"0," * 10_000 + b"0]").lines) == MAX_LINES
    for levels, is_indented in ((MAX_LEVELS, True), (MAX_LEVELS + 1, False)):
        shown = lines_of(b"[" * levels + b"0" + b"]" * levels)
        assert (shown.kind, len(shown.lines) > 1, shown.is_complete) == ("JSON", is_indented, True)


def test_a_made_up_document_is_shown_as_far_as_it_can_be() -> None:
    made_up = content(b"x")
    made_up |= {"body": None, "body_base64": "<b>"}
    assert body_lines(made_up) == BodyLines("binary", [], True)
    made_up |= {"body": "x" * 10 * MAX_BODY_BYTES, "body_bytes": -1}
    assert len("".join(body_lines(made_up).lines)) == MAX_BODY_BYTES


def test_a_document_is_shortened_by_halvings_and_not_by_what_is_stored() -> None:
    large: dict[str, Any] = {"body": b"\xff" * 2**20, "headers": {f"h{number}": "v" * 100 for number in range(600)}}
    for given in ({"body": b""}, {"body": b"x"}, large, {"body": "ä".encode() * 2**20}, {"body": b"x" + b"\xff" * 10}):
        assert not is_shortened(content(**given))
    assert is_shortened(content(**large, halvings=1))
    assert is_shortened(content(b"x" * 2**20, halvings=1))
