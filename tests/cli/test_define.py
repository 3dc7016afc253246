"""`add` and `edit`: what would be rejected is not stored, and only what is named is changed.

That edits of many at once are all kept is shown where it is decided: `control/contract.py`, `client/test_editing.py`.
"""

from __future__ import annotations

from pathlib import Path

from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.cli.changing_site import PORTABLE, Site
from tests.cli.prompt import FAR, NEVER
from tests.harness.account import CLOCK
from tests.harness.servers import V2_10, V2_12

WITHOUT_TTLS = {V2_10}
"""Where only a sidecar remembers that a stream allows TTLs, and none runs here."""
OTHER = "2201-01-01T00:00:00Z"


# -- add -------------------------------------------------------------------------------------------------------


async def test_a_schedule_is_added_once_with_all_that_is_given(site: Site) -> None:
    ttl = () if site.kind in WITHOUT_TTLS else ("--ttl", "5m")
    out = ("--target", site.subject("out"))
    words = (
        *(".s", "the body", "--cron", "0 30 9 * * mon-fri", "--tz", "Europe/Berlin", *out),
        *("--source", site.subject("sample"), "--rollup", *ttl),
        *("--policy", "note=for the shop", "-H", "Trace-Id: 7f3a"),
    )
    first = await site.done("add", *words)
    assert (first["change"], first["sequence_before"], first["author"]) == ("added", None, "ops")
    is_portable = site.kind in (PORTABLE, V2_12)  # a server of 2.12 fires @at only
    assert first["dialect"] == ("portable" if is_portable else "adr51")
    x = "X-Nats-Schedule" if is_portable else "Nats-Schedule"
    headers = await site.headers("s")
    assert headers.pop(f"{x}-TTL", None) == (ttl[1] if ttl else None)
    assert headers == {
        x: "0 30 9 * * mon-fri",
        f"{x}-Time-Zone": "Europe/Berlin",
        f"{x}-Rollup": "sub",
        f"{x}-Target": site.subject("out"),
        f"{x}-Source": site.subject("sample"),
        f"{x}-X-Note": "for the shop",
        "Trace-Id": "7f3a",
    }
    message = await site.stored("s")
    assert (message.body, message.sequence) == (b"the body", first["sequence"])
    again = await site.done("add", *words)
    assert (again["change"], again["sequence"]) == ("unchanged", first["sequence"])
    assert again["next_fire"] == first["next_fire"]
    await site.refuses(1, "another schedule is stored there", "add", ".s", "--at", FAR, *out)
    replaced = await site.run("add", ".s", "--at", FAR, *out, "--replace")
    assert (replaced.exit_code, "no sidecar is running" in replaced.stderr) == (0, not site.is_native), "who fires it"
    assert (await site.stored("s")).sequence > first["sequence"]


async def test_a_dry_run_says_what_would_be_done_and_stores_nothing(orders: Site, tmp_path: Path) -> None:
    out = ("--target", orders.subject("out"))
    would = (await orders.run("add", ".s", "--at", FAR, *out, "--dry-run")).stdout.splitlines()
    assert would[0] == f"{orders.subject('s')} would be added"
    assert would[1].startswith(f"  first fire at {FAR}, in 17")
    assert await orders.last("s") is None
    before = CLOCK.now()
    said = await orders.run("add", ".s", "--after", "2h", *out)
    assert (said.exit_code, said.stdout.splitlines()[0]) == (0, f"{orders.subject('s')} added: sequence 1"), said.output
    line = said.stdout.splitlines()[1].split()
    assert line[:3] == ["first", "fire", "at"]
    fire = parse_rfc3339(line[3].rstrip(","))
    assert isinstance(fire, int)
    assert before + 2 * HOUR - SECOND <= fire <= CLOCK.now() + 2 * HOUR + SECOND
    assert (await orders.done("add", ".s", "--at", FAR, *out, "--replace", "--dry-run"))["change"] == "edited"
    would = (await orders.run("edit", ".s", "--at", OTHER, "--dry-run")).stdout.splitlines()
    assert would[0] == f"{orders.subject('s')} would be edited"
    assert would[1].startswith(f"  next fire at {OTHER}")
    assert (await orders.stored("s")).sequence == 1

    file = tmp_path / "body"
    file.write_bytes(bytes(range(256)))
    words = (".bytes", "--at", FAR, *out, "--body-file", str(file))
    await orders.done("add", *words)
    assert (await orders.stored("bytes")).body == bytes(range(256))
    assert (await orders.done("add", *words, "--dry-run"))["change"] == "unchanged"


# -- edit ------------------------------------------------------------------------------------------------------


async def test_a_body_and_headers_are_changed_and_removed(orders: Site) -> None:
    await orders.publish("s", NEVER, X_Note="old", Rollup="sub")
    await orders.done("edit", ".s", "new body", "-H", "Own: 1", "--unset", "rollup", "--unset", "x-note")
    assert await orders.headers("s") == {orders.x: NEVER, f"{orders.x}-Target": orders.subject("out"), "Own": "1"}
    await orders.refuses(0, "there is nothing to remove", "edit", ".s", "--unset", "Own", "--unset", "source")
    assert (await orders.stored("s")).body == b"new body"
    assert "Own" not in await orders.headers("s")
    await orders.refuses(2, "is to be changed twice", "edit", ".s", "--ttl", "5m", "--unset", "ttl")


async def test_an_edit_that_would_break_something_is_refused(orders: Site) -> None:
    first = await orders.publish("s", f"@at {OTHER}")
    second = await orders.publish("s", NEVER)
    for error, words in (
        ("10189", (".s", "--tz", "Europe/Berlin")),
        ("10190", (".s", "--target", "elsewhere")),
        ("10190", (".s", "--unset", "target")),
        ("server code 10037", (".gone", "--at", FAR)),
        ("server code 10071", (".s", "--ttl", "never", "--expect", str(first))),
    ):
        await orders.refuses(1, error, "edit", *words)
    assert (await orders.stored("s")).sequence == second
    assert (await orders.done("edit", ".s", "new body", "--expect", str(second)))["change"] == "edited"
