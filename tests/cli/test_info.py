"""`nats-scheduler info`: all that is known of a schedule, valid or not, fired by a sidecar or by the server."""

from __future__ import annotations

import re

from click.testing import Result

from nats_scheduler.cli.contents import MAX_BODY_LINES
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.cli.prompt import Prompt

DAILY = {
    "Nats-Schedule": "0 30 9 * * mon-fri",
    "Nats-Schedule-Time-Zone": "Europe/Berlin",
    "Nats-Schedule-Target": "ORDERS.out",
}


def labelled(shown: Result) -> dict[str, str]:
    """Return what stands beside each label."""
    assert shown.exit_code == 0, shown.output
    lines = [line for line in shown.stdout.partition("\n\n")[0].splitlines() if not line.startswith(" ")]
    return {line[:11].strip(): line[11:] for line in lines}


async def test_it_says_what_was_published_and_when_it_fires(prompt: Prompt) -> None:
    await prompt.create()
    sequence = await prompt.account.publish("ORDERS.daily", DAILY, b"12345")
    stored = await prompt.account.api.message("ORDERS", seq=sequence)
    assert stored is not None
    shown = await prompt.says("info ORDERS ORDERS.daily")
    said = labelled(shown)
    assert said["schedule"] == "ORDERS.daily in ORDERS"
    at = format_rfc3339(stored.stored_at // 10**9 * 10**9)
    assert re.fullmatch(rf"{at}, \S+ ago, as sequence {sequence}, with a body of 5 bytes", said["published"])
    for name, value in DAILY.items():
        assert f"           {name}: {value}\n" in shown.stdout
    assert said["fires"] == "every weekday at 09:30 in Berlin"
    assert re.fullmatch(r"waiting, next fire at \S+:30:00Z, in \S+", said["state"])
    assert said["fired by"] == "no sidecar is running: nothing fires the schedules of ORDERS"
    assert said["removed"] == "never by the stream: neither max_age nor Nats-TTL ends it"
    fires = shown.stdout.partition("Its next fires:\n\n")[2].splitlines()
    assert len(fires) >= 6
    assert "Europe/Berlin" in fires[0]
    for line in ("info ORDERS ORDERS.other", "info OTHER ORDERS.daily"):
        none = await prompt.says(line)
        assert (none.exit_code, none.stdout, line.split()[1] in none.stderr) == (1, "", True)


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
