"""What a stranger has published is shown: none of it takes long, or makes a page long, whatever it is."""

import json

import pytest

from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.observe.message_contents import (
    MAX_BODY_BYTES,
    MAX_LEVELS,
    MAX_LINES,
    TAB_CHARS,
    body_lines,
    content_document,
)
from nats_scheduler.web.rendering import visible
from tests.hostile.effort import at_most
from tests.hostile.texts import LONG

MEGABYTE = 2**20
SECONDS_A_BODY = 0.4
"""Process time for the document of a message and its lines: the dearest take 0.02 s."""

BODIES = {
    "zeros": bytes(MEGABYTE),
    "no UTF-8": b"\xff" * MEGABYTE,
    "half characters": b"\xc3" * MEGABYTE,
    "line ends": b"\n" * MEGABYTE,
    "tabs": b"\t" * MEGABYTE,
    "one line": b"x" * MEGABYTE,
    "markup": b"<script>alert(1)</script>" * 40_000,
    "commands of a terminal": b"\x1b]0;x\x07\x1b[2J" * 80_000,
    "direction marks": "\u202e\u2066\u200f".encode() * 100_000,
    "deep": b"[" * (MAX_BODY_BYTES // 2) + b"]" * (MAX_BODY_BYTES // 2),
    "deeper": b'{"a":' * 200_000,
    "as deep as is indented": b"[" * MAX_LEVELS + b"0," * 15_000 + b"0" + b"]" * MAX_LEVELS,
    "many values": b"[" + b"0," * 16_000 + b"0]",
    "empty objects": b"[" + b"{}," * 10_000 + b"{}]",
    "a long number": b"1" * MAX_BODY_BYTES,
    "a long exponent": b"1e" + b"9" * (MAX_BODY_BYTES - 2),
    "backslashes": b'"' + b"\\\\" * (MAX_BODY_BYTES // 2 - 1) + b'"',
    "an open text": b'"' + b"\\" * (MAX_BODY_BYTES - 1),
    "quotes": b'"' * MAX_BODY_BYTES,
}

BLOCKS = {
    "many headers": b"".join(b"%d:\r\n" % number for number in range(8_000)),
    "the same header": b"a:b\r\n" * (LONG // 5),
    "names of a schedule": b"Nats-Schedule-X-A:\r\n" * (LONG // 20),
    "one long value": b"a: " + b"\x1b\x00\xff" * (LONG // 3) + b"\r\n",
    "colons": b":" * LONG + b"\r\n",
    "line feeds": b"\nNats-Schedule: x" * (LONG // 17) + b"\r\n",
}


@pytest.mark.parametrize("what", BODIES)
def test_a_body_is_shown_in_little_time_and_few_lines(what: str) -> None:
    message = StoredMessage("S.s", 1, 0, b"NATS/1.0\r\nNats-Schedule: @every 1h\r\n\r\n", BODIES[what])
    with at_most(SECONDS_A_BODY, what):
        document = content_document(message, is_fire=False)
        shown = body_lines(document)
        text = "\n".join(str(visible(line)) for line in shown.lines)
    assert len(json.dumps(document)) < 7 * MAX_BODY_BYTES
    assert len(shown.lines) <= MAX_LINES
    assert len("\n".join(shown.lines)) <= TAB_CHARS * MAX_BODY_BYTES
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("what", BLOCKS)
def test_headers_are_described_in_little_time(what: str) -> None:
    block = b"NATS/1.0\r\nNats-Schedule: @every 1h\r\nNats-Schedule-Target: S.out\r\n" + BLOCKS[what] + b"\r\n"
    with at_most(SECONDS_A_BODY, what):
        document = content_document(StoredMessage("S.s", 1, 0, block, b""), is_fire=False)
    assert len(json.dumps(document)) < 7 * 64 * 1024
    assert document["headers_omitted"] >= 0
