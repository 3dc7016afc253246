"""The list of permissions in `docs/operating/security.md` is sufficient, and each entry of it is necessary.

Servers are started with one account for each case: one whose sidecar has the whole list, and one for each entry whose
sidecar lacks it.
All sidecars of a mode run at the same time and live the same life.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from nats_scheduler.control.transport import request_json
from nats_scheduler.jetstream.calendar_bucket import CalendarBucket
from nats_scheduler.jetstream.streams import METADATA_TTL_FLAG
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.settings.connection_settings import ConnectionSettings
from tests.conftest import StartServer
from tests.harness.account import Account, Running, account_on, in_seconds, started_sidecar
from tests.harness.permissions import MODES, OPTIONAL, Permission, accounts, permissions_of, url_of
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import PATIENCE_SECONDS, eventually, few_at_once

VERSIONS = {"2.10": V2_10, "2.11": V2_11, "portable": V2_15, "native": V2_15}
ASKED_ONLY_IN_NEED = "$JS.API.CONSUMER.INFO.*.*"
"""The subject that is asked only where the consumer stays silent, as it does without the next one."""
AT_THE_END = ("$JS.API.CONSUMER.DELETE.*.*", "$JS.API.STREAM.PURGE.*", "$JS.API.STREAM.DELETE.nats_scheduler_canary")
"""The subjects that are asked only when the sidecar ends, in some mode at least."""
ASKED_OF_OTHERS = Permission("publish", "nats_scheduler.v1.>", (OPTIONAL,) * 4)
"""The permission that is used only if there are other instances: `tests/service/test_shared.py` takes it away."""
ASKED_EACH_HOUR = "$JS.API.CONSUMER.LIST.*"
"""The subject that is asked once an hour: `tests/runtime/test_consumption.py` takes it away."""
WORK = "work.orders"
"""Where the consumer of the account's owner delivers."""
NEXT = "$JS.API.CONSUMER.MSG.NEXT.*.*"
STREAMS: dict[str, dict[str, Any]] = {
    "ORDERS": {"subjects": ["orders.>"], "allow_msg_ttl": True},
    "JOBS": {"subjects": ["jobs.>"], "retention": "workqueue"},
}


each_mode = pytest.mark.parametrize(
    "mode", [mode if mode == "2.11" else pytest.param(mode, marks=pytest.mark.deep) for mode in MODES]
)


LIVES_AT_ONCE = 6
"""Sidecars that share the event loop of the test: of forty each would answer a ping too late."""


@dataclass
class Life:
    """One account's life: its owner, and the sidecar of a user with few permissions."""

    mode: str
    account: Account
    running: Running

    @property
    def prefix(self) -> str:
        return "X-" if self.mode == "portable" else ""

    def headers(self, pattern: str, target: str, **more: str) -> dict[str, str]:
        """Return the headers of a schedule in the spelling of the mode."""
        named = {"": pattern, "-Target": target, **{f"-{name}": value for name, value in more.items()}}
        return {f"{self.prefix}Nats-Schedule{name}": value for name, value in named.items()}

    async def create_streams(self) -> None:
        for name, config in STREAMS.items():
            if self.mode == "2.11" and "allow_msg_ttl" not in config:
                config = {**config, "metadata": {METADATA_TTL_FLAG: "true"}}  # as if it came from 2.10
            await self.account.create(name, allow_msg_schedules=self.mode != "portable", **config)
        await self._create_consumer()

    async def _create_consumer(self) -> None:
        """Create a consumer that finishes what it is given."""
        self.account.connection.subscribe(WORK, lambda *_message: None)
        config = {"durable_name": "workers", "filter_subject": "orders.worked", "deliver_subject": WORK}
        body = {"stream_name": "ORDERS", "config": {**config, "ack_policy": "none"}}
        await self.account.api.call("CONSUMER.DURABLE.CREATE.ORDERS.workers", body)

    async def publish_schedules(self) -> None:
        """Store schedules of all kinds, on streams of both kinds."""
        soon, publish = f"@at {in_seconds(0.5)}", self.account.publish
        await publish("orders.sample", body=b"sampled")
        await publish("orders.at", self.headers(soon, "orders.out"))
        await publish("orders.at-\udcff", self.headers(soon, "orders.not-utf-8"))
        await publish("orders.every", self.headers("@every 1s", "orders.tock", Source="orders.sample"))
        await publish("orders.ttl", self.headers(soon, "orders.short", TTL="1s"))
        await publish("orders.rollup", self.headers(soon, "orders.one", Rollup="sub"))
        await publish("jobs.at", self.headers(soon, "jobs.out"))
        if self.mode == "native":
            return
        await publish("orders.invalid", {f"{self.prefix}Nats-Schedule": "@every soon"})
        skip, of_workers = {"X-Overlap": "skip"}, {"X-Consumer": "workers"}
        await publish("orders.overlap", self.headers("@every 1s", "orders.worked", **skip, **of_workers))
        await publish("jobs.overlap", self.headers("@every 1s", "jobs.worked", **skip))
        calendars = CalendarBucket(self.account.connection, self.account.api, "nats_scheduler_calendars")
        await calendars.open()
        await calendars.write("work", b"# every day\n", 0)
        named = {"X-Except": "calendar:work"}
        await publish("orders.planned", self.headers(soon, "orders.by-calendar", **named))

    async def expect_everything(self) -> None:
        """Wait for what all these schedules are to bring about."""
        wait_for = self.account.wait_for
        by_sidecar = () if self.mode == "native" else ("orders.by-calendar",)
        for subject in ("orders.out", "orders.not-utf-8", "orders.one", "jobs.out", *by_sidecar):
            assert len(await wait_for(subject.partition(".")[0].upper(), subject)) == 1
        assert {message.body for message in await wait_for("ORDERS", "orders.tock", 2)} == {b"sampled"}
        if self.mode != "native":
            await wait_for("ORDERS", "orders.worked", 2)
            [unfinished] = await wait_for("JOBS", "jobs.worked")
            await self.account.api.delete_message("JOBS", unfinished.sequence)
            [following] = await wait_for("JOBS", "jobs.worked")
            assert following.sequence > unfinished.sequence
        gone = {"orders.at", "orders.at-\udcff", "orders.short", "jobs.at"}

        async def are_gone() -> bool:
            kept = [message.subject for stream in STREAMS for message in await self.account.messages(stream, ">")]
            return gone.isdisjoint(kept)

        await eventually(are_gone, describe="what is done or expired is removed")

    async def expect_answers(self) -> None:
        """Ask about what is stored, also where the server itself fires it and the sidecar reads it for that."""
        asked = {"stream": "ORDERS", "filter": "orders.every"}
        page = await request_json(self.account.connection, "nats_scheduler.v1.schedules.list", asked)
        fired_by = "server" if self.mode == "native" else "sidecar"
        assert [(one["subject"], one["fired_by"]) for one in page["schedules"]] == [("orders.every", fired_by)]
        jobs = await request_json(self.account.connection, "nats_scheduler.v1.schedules.list", {"stream": "JOBS"})
        assert jobs["mode"] == page["mode"]

    async def live(self) -> None:
        """Do what the owner of the account does, as soon as the sidecar serves or has reported what it lacks."""
        running = self.running
        await eventually(
            lambda: running.sidecar.serving.is_set() or running.told("permission_denied"),
            describe="it serves, or says why not",
        )
        await self.create_streams()
        await self.publish_schedules()
        self.account.connection.write(b"PUB nats_scheduler.v1.health.get _INBOX.x 0\r\n\r\n")

    def is_denied(self, permission: Permission) -> bool:
        """Return whether the sidecar has reported that it lacks a permission."""
        told = self.running.told("permission_denied")
        return any(
            each["operation"] == permission.act and matches(each["subject"], permission.subject) for each in told
        )


def matches(subject: str, pattern: str) -> bool:
    """Return whether a denied subject, which may be a filter itself, is what a permission would have allowed."""
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        return given[: len(wanted) - 1] == wanted[:-1]
    return len(wanted) == len(given) and all(w in ("*", g) for w, g in zip(wanted, given, strict=True))


@asynccontextmanager
async def life_of(url: str, number: int, mode: str) -> AsyncIterator[Life]:
    """Run the sidecar of one account beside the account's owner."""
    settings: dict[str, Any] = {"canary_interval": SECOND}
    if mode == "portable":
        settings["portable_streams"] = tuple(STREAMS)
    limited = ConnectionSettings(servers=(url_of(url, f"sidecar-{number}"),))
    async with account_on(url_of(url, f"admin-{number}")) as account, started_sidecar(limited, **settings) as running:
        yield Life(mode, account, running)


def without(permission: Permission, mode: str) -> list[Permission]:
    """Return the list of a mode without an entry, and without the one that keeps it from being needed."""
    taken = {permission.subject, NEXT} if permission.subject == ASKED_ONLY_IN_NEED else {permission.subject}
    return [each for each in permissions_of(mode) if each.act != permission.act or each.subject not in taken]


@each_mode
async def test_the_list_is_sufficient(start_server: StartServer, mode: str) -> None:
    server = await start_server(VERSIONS[mode], config=accounts([permissions_of(mode)]))
    async with life_of(server.url, 0, mode) as life:
        running = life.running
        async with asyncio.timeout(PATIENCE_SECONDS):
            await running.sidecar.serving.wait()
        await life.create_streams()
        for name in STREAMS:
            await running.ready(name)
        await life.publish_schedules()
        await life.expect_everything()
        await running.healthy()
        assert (await request_json(life.account.connection, "nats_scheduler.v1.health.get"))["ready"]
        await life.expect_answers()
        assert running.sidecar.connection is not None
        running.sidecar.connection.write(b"PUB " + b"x" * 5000 + b" 0\r\n\r\n")  # the server hangs up over it
        for name in STREAMS:
            await running.ready(name, times=2)
        await life.account.publish("orders.again", life.headers(f"@at {in_seconds(0.3)}", "orders.back"))
        await life.account.wait_for("ORDERS", "orders.back")
    assert running.was_clean
    assert running.told("permission_denied") == []
    assert "Violation" not in server.log.read_text("utf-8")


async def lacks(url: str, number: int, mode: str, permission: Permission) -> str:
    """Live without a permission; returns what was wrong with that, "" where all is as it should be."""
    try:
        async with life_of(url, number, mode) as life:
            await life.live()
            if permission.needed_in(mode) == OPTIONAL:
                await life.expect_everything()
            if permission.subject not in AT_THE_END:
                await eventually(lambda: life.is_denied(permission))
    except AssertionError as error:
        return f"without {permission}: {error}, told {life.running.problems}"
    return "" if life.is_denied(permission) else f"{permission} was not asked for"


@each_mode
async def test_each_entry_is_necessary_and_told_where_it_lacks(start_server: StartServer, mode: str) -> None:
    """And the optional ones are optional."""
    asked = [entry for entry in permissions_of(mode) if entry.subject != ASKED_EACH_HOUR]
    entries = [entry for entry in asked if entry != ASKED_OF_OTHERS]
    server = await start_server(VERSIONS[mode], config=accounts([without(entry, mode) for entry in entries]))
    lives = (lacks(server.url, number, mode, entry) for number, entry in enumerate(entries))
    assert [wrong for wrong in await few_at_once(lives, LIVES_AT_ONCE) if wrong] == []
