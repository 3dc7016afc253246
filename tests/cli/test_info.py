"""`nats-scheduler info`: the headers and the body of a schedule; who fires it is in `test_native.py`."""

from __future__ import annotations

from nats_scheduler.cli.contents import MAX_BODY_LINES
from tests.cli.prompt import Prompt

DAILY = {
    "Nats-Schedule": "0 30 9 * * mon-fri",
    "Nats-Schedule-Time-Zone": "Europe/Berlin",
    "Nats-Schedule-Target": "ORDERS.out",
}


async def test_it_shows_all_headers_and_the_body_whatever_is_in_them(prompt: Prompt) -> None:
    await prompt.create()
    bodies = {
        "json": b'{"order":{"id":7},"note":"\x7f\xe2\x80\xae"}',
        "binary": b"\xff\x1b[2J",
        "long": b"\x1b]0;x\x07\n" * 100_000,
        "empty": b"",
    }
    for name, body in bodies.items():
        await prompt.account.publish(f"ORDERS.{name}", {**DAILY, "Kind": "a\x1b[2J"}, body)
    shown = {name: await prompt.shows(f"info ORDERS ORDERS.{name}") for name in bodies}
    assert (
        'Its body (JSON, 32 bytes):\n\n  {\n    "order": {\n      "id": 7\n    },\n    "note": "\\x7f\\u202e"\n  }\n'
    ) in shown["json"]
    assert "Its body (binary, 5 bytes):\n\n  000000  ff 1b 5b 32 4a  " in shown["binary"]
    assert shown["long"].count("  \\x1b]0;x\\x07\n") == MAX_BODY_LINES
    assert "  … (--json has the first 32 KiB)\n" in shown["long"]
    assert "Its body" not in shown["empty"]
    for text in shown.values():
        assert "           Kind: a\\x1b[2J\n" in text
        assert text.replace("\n", "").replace("…", "").isprintable()
    message = (await prompt.document("info ORDERS ORDERS.json"))["message"]
    assert (message["body"], message["body_complete"]) == (bodies["json"].decode(), True)
    assert {one["name"]: one["sent"] for one in message["headers"]} == {**dict.fromkeys(DAILY, False), "Kind": True}
