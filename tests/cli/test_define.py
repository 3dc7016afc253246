"""`add` and `edit`: all that is given is stored, and only what is named is changed.

What is refused is in `control/test_edits.py`.
"""

from __future__ import annotations

from pathlib import Path

from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.cli.changing_site import Site
from tests.cli.prompt import FAR
from tests.harness.account import CLOCK

OTHER = "2201-01-01T00:00:00Z"


async def test_a_schedule_is_added_once_and_edited_as_given(orders: Site) -> None:
    words = (
        *(".s", "the body", "--cron", "0 30 9 * * mon-fri", "--tz", "Europe/Berlin", "--target", orders.subject("out")),
        *("--source", orders.subject("sample"), "--rollup", "--ttl", "5m"),
        *("--policy", "note=for the shop", "-H", "Trace-Id: 7f3a"),
    )
    first = await orders.done("add", *words)
    assert (first["change"], first["sequence_before"], first["author"]) == ("added", None, "ops")
    headers = {
        "Nats-Schedule": "0 30 9 * * mon-fri",
        "Nats-Schedule-Time-Zone": "Europe/Berlin",
        "Nats-Schedule-Rollup": "sub",
        "Nats-Schedule-Target": orders.subject("out"),
        "Nats-Schedule-Source": orders.subject("sample"),
        "Nats-Schedule-TTL": "5m",
        "Nats-Schedule-X-Note": "for the shop",
        "Trace-Id": "7f3a",
    }
    assert await orders.headers("s") == headers
    message = await orders.stored("s")
    assert (message.body, message.sequence) == (b"the body", first["sequence"])
    again = await orders.done("add", *words)
    assert (again["change"], again["sequence"]) == ("unchanged", first["sequence"])
    other = (".s", "--at", FAR, "--target", orders.subject("out"))
    await orders.refuses(1, "another schedule is stored there", "add", *other)
    unset = ("--unset", "rollup", "--unset", "x-note", "--unset", "Trace-Id", "--unset", "ttl", "--unset", "source")
    await orders.done("edit", ".s", "new body", "-H", "Own: 1", *unset)
    kept = {name: headers[name] for name in ("Nats-Schedule", "Nats-Schedule-Time-Zone", "Nats-Schedule-Target")}
    assert await orders.headers("s") == {**kept, "Own": "1"}
    assert (await orders.stored("s")).body == b"new body"
    await orders.refuses(1, "server code 10071", "edit", ".s", "--ttl", "never", "--expect", str(first["sequence"]))
    await orders.refuses(2, "is to be changed twice", "edit", ".s", "--ttl", "5m", "--unset", "ttl")
    replaced = await orders.run("add", *other, "--replace")
    assert (replaced.exit_code, "no sidecar is running" in replaced.stderr) == (0, True), "who fires it"


async def test_a_dry_run_stores_nothing_and_a_delay_counts_from_now(orders: Site, tmp_path: Path) -> None:
    out = ("--target", orders.subject("out"))
    would = (await orders.run("add", ".s", "--at", FAR, *out, "--dry-run")).stdout.splitlines()
    assert would[0] == f"{orders.subject('s')} would be added"
    assert would[1].startswith(f"  first fire at {FAR}, in 17")
    assert await orders.last("s") is None
    before = CLOCK.now()
    said = await orders.run("add", ".s", "--after", "2h", *out)
    fire = parse_rfc3339(said.stdout.splitlines()[1].split()[3].rstrip(","))
    assert isinstance(fire, int)
    assert before + 2 * HOUR - SECOND <= fire <= CLOCK.now() + 2 * HOUR + SECOND
    would = (await orders.run("edit", ".s", "--at", OTHER, "--dry-run")).stdout.splitlines()
    assert would[0] == f"{orders.subject('s')} would be edited"
    assert (await orders.stored("s")).sequence == 1
    file = tmp_path / "body"
    file.write_bytes(bytes(range(256)))
    await orders.done("add", ".bytes", "--at", FAR, *out, "--body-file", str(file))
    assert (await orders.stored("bytes")).body == bytes(range(256))
