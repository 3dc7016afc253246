"""Graduation: what a sidecar served on an older server goes on in the scheduler of a newer one, on the same store.

It tests `runtime/graduation.py` too.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nats_scheduler.cli.main import main
from nats_scheduler.jetstream.streams import METADATA_FLAG
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.harness.account import CLOCK, Account, account_on, in_seconds, sidecar_on
from tests.harness.flagged import FlaggedStream
from tests.harness.processes import sidecar
from tests.harness.servers import V2_11, V2_15
from tests.harness.upgrades import Machine, machine_in
from tests.harness.waiting import instant_reached

EXIT_SECONDS = 30.0
NEVER = "@at 2100-01-01T00:00:00Z"
DELAYS = 10
"""`@at` schedules that come due before, during and after the upgrade; where one has to be overdue, one more."""
TICKS = {"ticks.every": 6, "ticks.cron": 6, "ticks.sample": 4}
"""The number of generated messages of each repeating schedule that are looked at."""


@dataclass(frozen=True)
class Said:
    """The output of the command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document."""
        document: dict[str, Any] = json.loads(self.out)
        return document

    @property
    def kinds(self) -> set[str]:
        """The kinds of its findings."""
        return {finding["kind"] for finding in self.document["findings"]}


@dataclass
class Upgraded:
    """A machine, and the command."""

    machine: Machine
    folder: Path

    async def graduate(self, stream: str, *options: str) -> Said:
        """Run `nats-scheduler graduate` in this process, where no sidecar writes to the same output."""
        words = ["graduate", stream, *options, "-s", self.machine.url, "--no-context"]
        result = await asyncio.to_thread(CliRunner().invoke, main, words)
        return Said(result.exit_code, result.stdout, result.stderr)

    async def graduate_beside(self, stream: str, *options: str) -> Said:
        """Run it as a process of its own."""
        words = ("graduate", stream, *options, "-s", self.machine.url)
        with sidecar(*words, folder=self.folder, name=f"graduate-{CLOCK.now()}") as process:
            code = await process.wait_for_exit(within_seconds=EXIT_SECONDS)
            return Said(code, process.stdout, process.stderr)


@pytest.fixture
async def upgraded(tmp_path: Path) -> AsyncIterator[Upgraded]:
    """Run a machine without a server yet."""
    async with machine_in(tmp_path / "store") as machine:
        yield Upgraded(machine, tmp_path)


async def marked(account: Account, name: str, **config: Any) -> FlaggedStream:
    """Create a stream as a sidecar has left it, in a file."""
    metadata = {METADATA_FLAG: "true", "owner": "ops"}
    wanted = {"metadata": metadata, "storage": "file", "allow_rollup_hdrs": True, **config}
    await account.create(name, allow_msg_schedules=False, **wanted)
    return FlaggedStream(account, name)


def due_of(message: StoredMessage, period: int) -> int:
    """Return the second for which a message was generated: its identity says so, or the next time that it names."""
    identity = re.search(rb"Nats-Msg-Id: nats-scheduler:\d+:(\d+):", message.block)
    if identity:
        return int(identity[1]) // SECOND
    following = parse_rfc3339((header_value(message.block, b"Nats-Schedule-Next") or b"").decode())
    assert isinstance(following, int), message
    return following // SECOND - period


async def contents(account: Account, stream: str) -> tuple[Any, list[StoredMessage]]:
    """Return everything that a dry run must not change."""
    return (await account.api.stream(stream))["config"], await account.messages(stream, ">")


async def store_everything(stream: FlaggedStream) -> None:
    """Store schedules of every kind."""
    for number in range(DELAYS):
        await stream.schedule(f"at.{number}", f"@at {in_seconds(0.3 + number * 0.6)}", b"%d" % number, "out.at")
    await stream.schedule("every", "@every 1s", target="ticks.every")
    await stream.schedule("cron", "* * * * * *", target="ticks.cron")
    await stream.schedule("yearly", "@yearly", target="out.yearly", more={"Time-Zone": "Europe/Berlin"})
    await stream.publish("sensor", body=b"21")
    await stream.schedule("sample", "@every 2s", target="ticks.sample", more={"Source": stream.subject("sensor")})
    await stream.schedule("later", NEVER, target="out.later")
    await stream.schedule("later", NEVER, b"newest", target="out.later")
    portable = {"X-Nats-Schedule": "@every 1s", "X-Nats-Schedule-Target": stream.subject("ticks.portable")}
    await stream.publish("portable", portable)


async def test_no_fire_is_lost_or_doubled_by_a_graduation(upgraded: Upgraded) -> None:
    url = await upgraded.machine.install(V2_11)
    async with account_on(url) as account:
        stream = FlaggedStream(account, "S")
        async with sidecar_on(url) as running:
            await account.create("S", storage="file", metadata={"owner": "ops"})
            await running.ready("S")
            await store_everything(stream)
            await stream.wait_for("ticks.every", 2)
        stopped = CLOCK.now()
        await stream.schedule(f"at.{DELAYS}", f"@at {in_seconds(0)}", b"%d" % DELAYS, "out.at")
    await upgraded.machine.install(V2_15)
    async with account_on(url) as account, sidecar_on(url) as running:
        await running.ready("S")
        stream = FlaggedStream(account, "S")
        # What fires each second is not missed before a second has passed, and all of this can be done in less.
        await instant_reached(stopped + SECOND, CLOCK.now)
        dry = await upgraded.graduate_beside("S", "--dry-run", "--json")
        assert (dry.code, dry.document["outcome"]) == (0, "ready"), dry
        said = await upgraded.graduate_beside("S", "--json")
        assert (said.code, said.document["outcome"], said.document["doubtful"]) == (0, "graduated", False), said
        assert said.kinds ^ dry.kinds <= {"moved"}  # which depends on the second
        assert {"missed", "overdue", "portable"} <= said.kinds
        config = (await account.api.stream("S"))["config"]
        assert config["allow_msg_schedules"] is True
        assert METADATA_FLAG not in config["metadata"]
        assert config["metadata"]["owner"] == "ops"
        await running.ready("S", times=2)
        fired = await stream.wait_for("out.at", DELAYS + 1)
        await stream.wait_for("ticks.portable", 4)
        ticks = {rest: await stream.wait_for(rest, count) for rest, count in TICKS.items()}
    assert sorted(int(message.body or b"") for message in fired) == list(range(DELAYS + 1))
    for rest, period in zip(TICKS, (1, 1, 2), strict=True):
        dues = [due_of(message, period) for message in ticks[rest]]
        assert len(set(dues)) == len(dues), (rest, dues)
        last_of_ours = max(n for n, one in enumerate(ticks[rest]) if b"nats-scheduler:" in one.block)
        # The fire that was made up, and the next one, which is the server's: none is missing between them.
        assert dues[last_of_ours + 1] - dues[last_of_ours] <= period + 1, (rest, dues)
    assert all(message.body == b"21" for message in ticks["ticks.sample"])


async def test_a_paused_schedule_is_handed_over_and_resumed(upgraded: Upgraded) -> None:
    url = await upgraded.machine.install(V2_11)
    async with account_on(url) as account:
        stream = await marked(account, "S")
        await stream.schedule("s", "@every 1s", target="ticks.s")  # no sidecar purges what lies under the paused one
        paused = {f"{name}-X-Paused" if name == "Nats-Schedule" else name: v for name, v in active(stream, "s").items()}
        await stream.publish("s", paused)
        await stream.publish("policies", {**paused, "Nats-Schedule-X-Limit": "3"})
        await stream.publish("portable", {f"X-{name}": value for name, value in paused.items()})
        kept = [(await stream.messages(rest))[-1] for rest in ("s", "policies", "portable")]
    await upgraded.machine.install(V2_15)
    async with account_on(url) as account:
        stream = FlaggedStream(account, "S")
        blocked = await upgraded.graduate("S", "--json")
        assert (blocked.code, blocked.document["blocked_by"]) == (1, ["policies"])
        assert blocked.kinds == {"policies", "older", "portable", "paused"}
        said = await upgraded.graduate("S", "--force", "policies", "--json")
        assert (said.code, said.document["outcome"], said.document["removed"]) == (0, "graduated", 1), said
        await stream.schedule("other", "@every 1s", target="ticks.other")
        await stream.wait_for("ticks.other", 2)
        assert await stream.messages("ticks.s") == []
        assert [one for rest in ("s", "policies", "portable") for one in await stream.messages(rest)] == kept
        await stream.publish("s", active(stream, "s"))
        await stream.wait_for("ticks.s", 1)


def active(stream: FlaggedStream, rest: str) -> dict[str, str]:
    """Return the headers of a schedule that fires each second."""
    return stream.headers("@every 1s", f"ticks.{rest}")


PAST = "@at 2020-01-01T00:00:00Z"
Stored = tuple[str, dict[str, str], bytes]
"""What follows the stream in a subject, the headers, and the body; `{}` in a header stands for the stream."""


def scheduled(rest: str, pattern: str, target: str = "{}.out", **more: str) -> Stored:
    """Return a schedule."""
    headers = {f"Nats-Schedule-{name.replace('_', '-')}": value for name, value in more.items()}
    return rest, {"Nats-Schedule": pattern, "Nats-Schedule-Target": target, **headers}, b"body"


COVERED: tuple[Stored, ...] = (("s", {}, b"first"), scheduled("s", PAST), ("s", {}, b"plain"))
"""A schedule under a plain message."""
NOTHING: tuple[Stored, ...] = (scheduled("s", NEVER),)
PORTABLE = {"X-Nats-Schedule": NEVER, "X-Nats-Schedule-Target": "{}.out"}
STORIES: dict[str, tuple[tuple[Stored, ...], dict[str, Any]]] = {
    "covered": (COVERED, {}),
    "invalid": ((scheduled("s", PAST, "elsewhere"), scheduled("self", PAST, "{}.self")), {}),
    "rounded": ((scheduled("s", "@every 1h0.5s"),), {}),
    "gap": ((scheduled("s", "0 0 5 * * 4", Time_Zone="Africa/Cairo"),), {}),  # whose clock skips a midnight
    "far": ((scheduled("s", "@at 2300-01-01T00:00:00Z"),), {}),  # beyond what the server can count
    "doubled": ((("s", {**scheduled("s", NEVER)[1], **PORTABLE}, b"body"),), {}),
    "denied": (NOTHING, {"deny_purge": True, "allow_rollup_hdrs": False}),
    "full": (NOTHING, {"discard": "new"}),
    "queue": (COVERED, {"retention": "workqueue"}),
    "undeletable": (COVERED, {"deny_delete": True}),
}
"""By the kind of what blocks a graduation: what is stored, and the configuration of the stream."""


async def store(stream: FlaggedStream, messages: tuple[Stored, ...]) -> None:
    for rest, headers, body in messages:
        named = {name: value.replace("{}", stream.name) for name, value in headers.items()}
        await stream.publish(rest, named or "", body)


async def test_each_finding_blocks_changes_nothing_and_can_be_accepted(upgraded: Upgraded) -> None:
    url = await upgraded.machine.install(V2_11)
    async with account_on(url) as account:
        for name, (messages, config) in STORIES.items():
            await store(await marked(account, name, **config), messages)
    await upgraded.machine.install(V2_15)
    found: dict[str, tuple[int, list[str]]] = {}
    async with account_on(url) as account:
        for name in STORIES:
            before = await contents(account, name)
            dry, said = await upgraded.graduate(name, "--dry-run", "--json"), await upgraded.graduate(name, "--json")
            assert (dry.out, dry.code) == (said.out, said.code)
            assert await contents(account, name) == before
            found[name] = (said.code, said.document["blocked_by"])
        assert found == {
            **{name: (1, [name]) for name in ("covered", "invalid", "rounded", "gap", "far", "doubled")},
            "denied": (1, ["refused"]),
            "full": (1, ["refused"]),
            "queue": (1, ["covered"]),
            "undeletable": (1, ["covered"]),
        }
        for name in ("covered", "invalid", "queue", "undeletable"):
            kind = found[name][1][0]
            assert (await upgraded.graduate(name, "--force", kind)).code == 0
            await FlaggedStream(account, name).schedule("canary", f"@at {in_seconds(0.5)}", target="canary.out")
            await FlaggedStream(account, name).wait_for("canary.out")
            assert await account.messages(name, f"{name}.out") == []
            assert await account.messages(name, "elsewhere") == []
        bodies = [message.body for message in await account.messages("covered", "covered.s")]
        assert bodies == [b"first", b"plain"]
        left = [message.body for message in await account.messages("undeletable", "undeletable.s")]
        assert left == [b"plain"], "what lies under a schedule goes with it where single messages cannot be deleted"
        again = await upgraded.graduate("covered", "--json")
        assert (again.code, again.document["outcome"]) == (0, "native")
