"""`export`, `diff` and `apply` on a real server: what is exported is applied byte for byte, and nothing twice.

Any bytes are in `files/test_round_trip.py`, what is in a file or a diff in `client/test_files_of_schedules.py`, and
what is planned in `control/test_plan.py`.

It tests `cli/schema_commands.py` too.
It tests `files/planning.py` too.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from click.testing import Result

from nats_scheduler.control.words import publishable_again
from tests.cli.changing_site import Site
from tests.cli.prompt import NEVER
from tests.harness.blocks import block_of
from tests.harness.processes import sidecar_command

Stored = dict[str, tuple[bytes, bytes]]
"""The headers and the body of each schedule, by its subject."""


async def run(site: Site, *words: str) -> Result:
    """Run a command in a thread with a loop of its own."""
    return await asyncio.to_thread(site.cli, *words, "--server", site.url)


async def done(site: Site, *words: str) -> str:
    said = await run(site, *words)
    assert said.exit_code == 0, said.output
    return said.stdout


async def last_sequence(site: Site) -> int:
    info = await site.account.api.stream(site.stream)
    assert info is not None
    return int(info["state"]["last_seq"])


async def stored(site: Site) -> Stored:
    """Return what is stored, without what belongs to the publishes."""
    messages = await site.account.messages(site.stream, f"{site.stream}.>")
    return {one.subject: (publishable_again(one.block), one.body or b"") for one in messages}


async def publish_some(site: Site) -> None:
    """Store messages of all kinds."""
    out, name = site.subject("out"), "Nats-Schedule"
    every = [(name, "@every 9000h"), (f"{name}-Target", out)]
    cron = [(name, "0 0 9 1 1 *"), (f"{name}-Time-Zone", "Europe/Berlin"), (f"{name}-Target", out)]
    for rest, block, body in (
        ("usual", block_of(*cron, (f"{name}-TTL", "5m"), (f"{name}-X-Owner", "billing")), b'{"order": 17}'),
        ("order", block_of(*cron[::-1], ("Trace", "a"), (name + "-Source", site.subject("in"))), b""),
        ("twice", block_of(*every, ("A", "1"), ("B", b"\xff\x00"), ("A", " 2 ")), bytes(range(256))),
        ("raw", f"NATS/1.0\r\n{name}:{NEVER}\r\n{name}-Target:{out}\r\nEmpty:\r\n\r\n".encode(), b"\x1b[2J"),
        ("portable", block_of(("X-Nats-Schedule", NEVER), ("X-Nats-Schedule-Target", out)), b"a\r\nb"),
        ("paused", block_of((f"{name}-X-Paused", NEVER), (f"{name}-Target", out), ("Trace", "é")), b"\xff"),
        ("ttl", block_of(*every, ("Nats-TTL", "9000h")), b"two\nlines\n"),
    ):
        await site.account.publish_block(site.subject(rest), block, body)


async def empty(site: Site) -> None:
    await site.account.api.call(f"STREAM.PURGE.{site.stream}")


async def test_what_is_exported_is_applied_byte_for_byte(orders: Site, tmp_path: Path) -> None:
    await publish_some(orders)
    before = await stored(orders)
    for form in ("yaml", "json"):
        file = tmp_path / f"exported.{form}"
        await done(orders, "export", orders.stream, "--output", str(file))
        await empty(orders)
        assert "added" in await done(orders, "apply", str(file), "--yes")
        assert await stored(orders) == before
        sequence = await last_sequence(orders)
        await done(orders, "diff", str(file))
        await done(orders, "apply", str(file), "--yes")
        assert await last_sequence(orders) == sequence, "nothing is stored the second time"


async def test_a_file_is_changed_shown_and_applied(orders: Site, tmp_path: Path) -> None:
    file, stream, out = tmp_path / "schedules.yaml", orders.stream, orders.subject("out")
    head = f"stream: {stream}\nowner: billing\nschedules:\n"

    def entry(rest: str, more: str) -> str:
        return f"  - subject: {orders.subject(rest)}\n    target: {out}\n    {more}\n"

    file.write_text(head + entry("a", "every: 9000h") + entry("b", "every: 9000h"))
    await done(orders, "apply", str(file), "--yes", "--reason", "a test")
    await orders.publish("theirs", NEVER, X_Owner="ops")
    file.write_text(head + entry("b", "every: 8000h\n    paused: true"))
    before = await stored(orders)
    shown = await run(orders, "diff", str(file), "--prune")
    assert (shown.exit_code, shown.stdout) == (
        1,
        f"- {stream}  {orders.subject('a')}\n"
        f"~ {stream}  {orders.subject('b')}\n"
        f"    Nats-Schedule: '@every 9000h' → '@every 8000h'\n"
        f"    paused: false → true\n"
        f"stream {stream}: 1 to change, 1 to remove, 0 unchanged\n",
    )
    assert await done(orders, "apply", str(file), "--prune", "--dry-run") == shown.stdout
    assert await stored(orders) == before, "nothing is changed yet"
    assert "1 of billing in no file (--prune removes them)" in await done(orders, "apply", str(file), "--yes")
    await done(orders, "apply", str(file), "--yes", "--prune")
    assert set(await stored(orders)) == {orders.subject("b"), orders.subject("theirs")}
    await done(orders, "diff", str(file), "--prune")


async def test_faults_name_file_line_subject_value_and_code_all_at_once(orders: Site, tmp_path: Path) -> None:
    file, out = tmp_path / "schedules.yaml", orders.subject("out")
    file.write_text(
        f"stream: {orders.stream}\nspelling: adr51\nschedules:\n"
        f"  - subject: {orders.subject('a')}\n    target: elsewhere\n    every: 9000h\n"
        f"  - subject: {orders.subject('b')}\n    target: {out}\n    cron: often\n"
        f"  - subject: {orders.subject('c')}\n    target: {out}\n    cron: '@daily'\n"
        "---\nstream: NONE\nschedules: []\n"
    )
    prefix = f"nats-scheduler: error: {file}"
    for command, exit_code in (("diff", 2), ("apply", 1)):
        said = await run(orders, command, str(file), *(["--yes"] if command == "apply" else []))
        assert said.exit_code == exit_code
        target, pattern, stream = said.stderr.splitlines()
        assert target.startswith(f"{prefix}:5: {orders.subject('a')}: Nats-Schedule-Target of 'elsewhere'")
        assert target.endswith("(server code 10190)")
        assert pattern.startswith(f"{prefix}:9: {orders.subject('b')}: Nats-Schedule of 'often'")
        assert pattern.endswith("(server code 10189)")
        assert stream == f"{prefix}:14: stream NONE does not exist (server code 10059)"
    assert await stored(orders) == {}, "nothing is applied of a file with a fault"


async def test_the_files_of_a_directory_and_of_standard_input_are_read(orders: Site, tmp_path: Path) -> None:
    folder = tmp_path / "schedules"
    await publish_some(orders)
    before = await stored(orders)
    await done(orders, "export", orders.stream, "--output", f"{folder}/")
    assert [one.name for one in folder.iterdir()] == [f"{orders.stream}.yaml"]
    (folder / "README.md").write_text("not a file of schedules")
    await empty(orders)
    await done(orders, "apply", str(folder), "--yes")
    assert (await stored(orders)).keys() == before.keys()
    (tmp_path / "in.json").write_text(await done(orders, "export", orders.stream, "--format", "json"))
    await empty(orders)
    command = f'exec "$@" < {tmp_path / "in.json"}'
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", command, "sh", *sidecar_command(), "apply", "-", "--yes", "--server", orders.url
    )
    assert await process.wait() == 0
    assert (await stored(orders)).keys() == before.keys()
