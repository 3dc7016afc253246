"""`export`, `diff` and `apply` on real servers: what is exported is applied byte for byte, and nothing twice.

Any bytes are in `files/test_round_trip.py`, and what is in a file or a diff in `client/test_files_of_schedules.py`.

It tests `cli/schema_commands.py` too.
It tests `files/planning.py` too.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path

from click.testing import Result

from nats_scheduler.control.words import publishable_again
from tests.cli.changing_site import PORTABLE, Site
from tests.cli.prompt import FAR, NEVER
from tests.harness.blocks import block_of
from tests.harness.processes import sidecar, sidecar_command
from tests.harness.proxy import at_the, proxy_to
from tests.harness.servers import V2_12
from tests.harness.waiting import eventually

BINARY = bytes(range(256)) * 40
Stored = dict[str, tuple[bytes, bytes]]
"""The headers and the body of each schedule, by its subject."""


async def run(site: Site, *words: str) -> Result:
    """Run a command in a thread with a loop of its own."""
    return await asyncio.to_thread(site.cli, *words, "--server", site.url, env=site.env)


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


def schedules(site: Site) -> Stored:
    """Return messages of all kinds, by the rest of their subjects: headers and body.

    No pattern ever fires, and the server knows each: the oldest with schedules knows `@at` only.
    """
    out, name = site.subject("out"), site.x
    cron, interval = (NEVER, NEVER) if site.kind == V2_12 else ("0 0 9 1 1 *", "@every 9000h")
    usual = [(name, cron), (f"{name}-Time-Zone", "Europe/Berlin"), (f"{name}-Target", out)]
    every = [(name, interval), (f"{name}-Target", out)]
    return {
        "usual": (block_of(*usual, (f"{name}-TTL", "5m"), (f"{name}-X-Owner", "billing")), b'{"order": 17}'),
        "sorted": (block_of(("Another", "1"), *sorted(usual), (f"{name}-X-Note", "of a person")), "größer\n".encode()),
        "order": (block_of(*usual[::-1], ("Trace", "a"), (name + "-Source", site.subject("in"))), b""),
        "twice": (block_of(*every, ("A", "1"), ("B", b"\xff\x00"), ("A", " 2 ")), BINARY),
        "raw": (f"NATS/1.0\r\n{name}:{NEVER}\r\n{name}-Target:{out}\r\nEmpty:\r\n\r\n".encode(), b"\x1b[2J"),
        "portable": (block_of(("X-Nats-Schedule", NEVER), ("X-Nats-Schedule-Target", out), ("Tab", "\t")), b"a\r\nb"),
        "paused": (block_of((f"{name}-X-Paused", NEVER), (f"{name}-Target", out), ("Trace", "é")), b"\xff"),
        "ttl": (block_of(*every, ("Nats-TTL", "9000h")), b"two\nlines\n"),
    }


async def publish_all(site: Site, messages: Mapping[str, tuple[bytes, bytes]]) -> None:
    for rest, (block, body) in messages.items():
        await site.account.publish_block(site.subject(rest), block, body)


async def empty(site: Site) -> None:
    await site.account.api.call(f"STREAM.PURGE.{site.stream}")


async def test_what_is_exported_is_applied_onto_an_empty_stream_byte_for_byte(site: Site, tmp_path: Path) -> None:
    await publish_all(site, schedules(site))
    for form in ("yaml", "json"):
        before = await stored(site)
        file = tmp_path / f"exported.{form}"
        said = await run(site, "export", site.stream, "--output", str(file))
        left_out = {subject for subject in before if f"{subject} is left out" in said.stderr}
        expected = {subject: message for subject, message in before.items() if subject not in left_out}
        assert (said.exit_code, len(expected) >= 5) == (0, True), said.output
        text = file.read_bytes()
        await done(site, "export", site.stream, "--output", str(file))
        assert file.read_bytes() == text, "a second export has the same bytes"
        await empty(site)
        assert "added" in await done(site, "apply", str(file), "--yes")
        assert await stored(site) == expected
        sequence = await last_sequence(site)
        await done(site, "diff", str(file))
        await done(site, "apply", str(file), "--yes")
        assert await last_sequence(site) == sequence, "nothing is stored the second time"


async def test_a_file_is_changed_shown_and_applied(site: Site, tmp_path: Path) -> None:
    file, stream, out = tmp_path / "schedules.yaml", site.stream, site.subject("out")
    spelling = f"spelling: {PORTABLE}\n" if site.kind == PORTABLE else ""
    head = f"stream: {stream}\nowner: billing\n{spelling}schedules:\n"

    def entry(rest: str, more: str) -> str:
        return f"  - subject: {site.subject(rest)}\n    target: {out}\n    {more}\n"

    old, new = (NEVER, NEVER[:-1] + "+00:00") if site.kind == V2_12 else ("@every 9000h", "@every 8000h")
    a, b = (f"{text.split()[0].strip('@')}: {text.split()[1]}" for text in (old, new))
    file.write_text(head + entry("a", a) + entry("b", a))
    shown = await run(site, "diff", str(file))
    assert (shown.exit_code, shown.stdout) == (
        1,
        f"+ {stream}  {site.subject('a')}\n    {old} → {out}\n"
        f"+ {stream}  {site.subject('b')}\n    {old} → {out}\n"
        f"stream {stream}: 2 to add, 0 unchanged\n",
    )
    assert await stored(site) == {}, "a diff changes nothing"
    assert await done(site, "apply", str(file), "--dry-run") == shown.stdout
    await done(site, "apply", str(file), "--yes", "--reason", "a test")
    assert (await site.headers("a"))[f"{site.x}-X-Owner"] == "billing"
    await site.publish("theirs", NEVER, X_Owner="ops")
    file.write_text(head + entry("b", f"{b}\n    paused: true"))
    shown = await run(site, "diff", str(file), "--prune")
    assert (shown.exit_code, shown.stdout) == (
        1,
        f"- {stream}  {site.subject('a')}\n"
        f"~ {stream}  {site.subject('b')}\n"
        f"    {site.x}: {old!r} → {new!r}\n"
        f"    paused: false → true\n"
        f"stream {stream}: 1 to change, 1 to remove, 0 unchanged\n",
    )
    assert "1 of billing in no file (--prune removes them)" in await done(site, "apply", str(file), "--yes")
    await done(site, "apply", str(file), "--yes", "--prune")
    assert set(await stored(site)) == {site.subject("b"), site.subject("theirs")}
    assert (await site.headers("b"))[f"{site.x}-X-Paused"] == new
    await done(site, "diff", str(file), "--prune")


# -- one server is enough for these --------------------------------------------------------------------------------


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


def file_of(site: Site, number: int, body: str = "") -> str:
    entries = [
        {"subject": site.subject(f"s.{at}"), "at": FAR, "target": site.subject("out"), "body": body}
        for at in range(number)
    ]
    return json.dumps({"stream": site.stream, "owner": "test", "schedules": entries})


async def test_an_apply_that_is_killed_is_finished_by_the_next_one(orders: Site, tmp_path: Path) -> None:
    """It is killed as it stores the one in the middle, of which it has no answer."""
    file, count, stem = tmp_path / "schedules.json", 100, orders.subject("s.").encode()
    file.write_text(file_of(orders, count))
    before = await last_sequence(orders)
    async with proxy_to(orders.url) as network:
        with sidecar("apply", str(file), "--yes", "--server", network.url, folder=tmp_path) as process:
            network.to_server.loses = at_the(count // 2, lambda subject: subject.startswith(stem), process.kill)
            await eventually(lambda: process.exit_code is not None)
    [added] = re.findall(r"(\d+) added", await done(orders, "apply", str(file), "--yes"))
    assert 0 < int(added) < count
    assert await last_sequence(orders) - before == len(await stored(orders)) == count, "each is stored once"
    await done(orders, "diff", str(file))


async def test_the_files_of_a_directory_and_of_standard_input_are_read(orders: Site, tmp_path: Path) -> None:
    folder = tmp_path / "schedules"
    await publish_all(orders, schedules(orders))
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
