"""Each command works on schedules that the server itself fires, without a sidecar, or says what cannot be known there.

The same commands beside a sidecar are in `test_asking.py`, `test_top.py` and `test_watch.py`.

It tests `cli/history.py` too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from nats_scheduler.cli.main import COMMANDS
from nats_scheduler.observe.texts import SERVER_ALONE
from tests.cli.prompt import NEVER, Cli, prompt_on
from tests.conftest import StartServer
from tests.harness.servers import V2_15

OF_NO_SERVER = frozenset({"completion", "service", "advisories", "settings", "files", "explain", "check"})
ELSEWHERE = frozenset({"run", "dev", "web", "watch"})
"""What serves or follows is tested where it is ended."""
DAY = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z")
NO_POLICY = "it has policies without effect where the server itself fires, since no server knows them: X-Limit 1"
NOT_FIRED = "no sidecar is running: nothing fires the schedules of S with X-Nats-Schedule"
CREATED_BY_A_SIDECAR = "a sidecar creates it"
ADD = ("add", "S", "S.new", "body", "--every", "1h", "--target", "S.new.out")
EVERY = "S.s"
PORTABLE = "S.portable"
LIMITED = "S.limited"


class Said(NamedTuple):
    """What a command ends with, and what it says."""

    words: tuple[str, ...]
    texts: tuple[str, ...]
    code: int = 0


def table(folder: Path) -> tuple[Said, ...]:
    """Return the commands in their order; some change what the later ones show."""
    file = str(folder / "schedules.yaml")
    limited = ("--policy", "limit=3")
    return (
        Said(("stream", "ls"), ("native  0", "the server fires for Nats-Schedule")),
        Said(("ls", "S"), (EVERY, "policies_ignored", f"{NOT_FIRED} (1)", SERVER_ALONE)),
        Said(("info", "S", EVERY), ("fired by   the server itself (version 2.15", "Its last fires", "  server  ")),
        Said(("info", "S", LIMITED), ("the server itself", NO_POLICY)),
        Said(("info", "S", PORTABLE), (NOT_FIRED,)),
        Said(("next", "S", EVERY), ("5 fires, counted from",)),
        Said(("history", "S", EVERY), ("ms  server", "newest first, on S.out in S")),
        Said(("history", "S"), (f"ms  {EVERY}", "newest first, in S")),
        Said(("top", "--once"), ("ALL IS WELL  no sidecar", "S       native", f"s  S       {EVERY}", SERVER_ALONE[1:])),
        Said(("doctor",), ("no_sidecar", f"{NOT_FIRED} (1)", "policies_ignored", SERVER_ALONE), 1),
        Said(("instances",), ("no sidecar lives on this account",)),
        Said(("failures",), (CREATED_BY_A_SIDECAR,), 1),
        Said(("changes", "S"), (CREATED_BY_A_SIDECAR,), 1),
        Said(("graduate", "S"), ("is native already: the server holds 2 schedules",)),
        Said(("pause", "S", EVERY), ("paused", "begins anew: the server fires this schedule")),
        Said(("resume", "S", EVERY), ("resumed", "begins anew: the server fires this schedule")),
        Said(ADD, ("added", "first fire at")),
        Said((*ADD, "--replace", *limited), ("with portable headers", NOT_FIRED)),
        Said(("edit", "S", EVERY, "--every", "2h"), ("edited", "next fire at")),
        Said(("edit", "S", EVERY, *limited), ("only a sidecar heeds X-Limit", "portable headers"), 1),
        Said(("fire", "S", EVERY), ("fired once, beside its schedule",)),
        Said(("backfill", "S", EVERY, *DAY), ("unchanged", "before")),
        Said(("export", "S"), ("- subject: S.s", "spelling: portable")),
        Said(("diff", file), ("1 to change",), 1),
        Said(("apply", file, "--yes"), ("1 edited",)),
        Said(("diff", file), ("1 unchanged",)),
        Said(("stream", "add", str(folder / "stream.json")), ("stream ORDERS created",)),
        Said(("calendar", "set", "work", "2026-12-25"), ("created",)),
        Said(("calendar", "ls"), ("2026-12-25",)),
        Said(("rm", "S", EVERY), ("removed",)),
    )


async def test_each_command_works_beside_no_sidecar(cli: Cli, start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_15)
    async with prompt_on(cli, server.url) as prompt:
        await prompt.account.create("S", allow_msg_ttl=True)
        await prompt.schedule(EVERY, "@every 1s")
        await prompt.schedule(LIMITED, "@every 1s", target="S.more", X_Limit="1")
        await prompt.schedule(PORTABLE, NEVER, x="X-")
        await prompt.account.wait_for("S", "S.out", 2)
        await prompt.account.wait_for("S", "S.more", 2)
        file = {"stream": "S", "schedules": [{"subject": LIMITED, "at": "2199-01-01T00:00:00Z", "target": "S.out"}]}
        (tmp_path / "schedules.yaml").write_text(json.dumps(file))
        added = {"name": "ORDERS", "subjects": ["orders.>"], "storage": "memory", "allow_msg_schedules": True}
        (tmp_path / "stream.json").write_text(json.dumps(added))
        for words, texts, code in table(tmp_path):
            said = await prompt.says(words[0], *words[1:])
            whole = said.stdout + said.stderr
            assert (said.exit_code, [text for text in texts if text not in whole]) == (code, []), (words, whole)
    tried = {words[0] for words, _, _ in table(tmp_path)}
    assert {*COMMANDS} - tried == OF_NO_SERVER | ELSEWHERE
    assert tried <= {*COMMANDS}
