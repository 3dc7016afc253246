"""A stream on which commands change schedules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from click.testing import Result

from nats_scheduler.message.headers import decoded, header_items
from nats_scheduler.message.stored import StoredMessage
from tests.cli.prompt import Cli
from tests.harness.account import Account, account_on
from tests.harness.flagged import FLAGGED

READING = frozenset({"history", "ls", "info"})
"""Commands that change nothing."""

NOT_OF_THE_SCHEDULE = ("Nats-Rollup", "Nats-Expected-")


@dataclass(frozen=True)
class Site:
    """A stream, and the command line."""

    cli: Cli
    url: str
    account: Account
    stream: str

    def subject(self, rest: str) -> str:
        """Return a subject of the stream."""
        return f"{self.stream}.{rest}"

    async def run(self, command: str, *words: str) -> Result:
        """Run a command about the stream, in a thread with a loop of its own; `.` begins a subject of the stream."""
        by = () if command in READING else ("--by", "ops")
        whole = [self.subject(word[1:]) if word.startswith(".") else word for word in words]
        return await asyncio.to_thread(self.cli, command, self.stream, *whole, "--server", self.url, *by)

    async def done(self, command: str, *words: str) -> dict[str, Any]:
        """Run a command that must succeed; return its document."""
        said = await self.run(command, *words, "--json")
        assert said.exit_code == 0, said.output
        document: dict[str, Any] = json.loads(said.stdout)
        return document

    async def refuses(self, code: int, error: str, command: str, *words: str) -> str:
        """Run a command that must end with an exit code and an error; return all that it printed as errors."""
        said = await self.run(command, *words)
        assert (said.exit_code, error in said.stderr) == (code, True), said.stderr
        return said.stderr

    async def publish(self, rest: str, pattern: str, **more: str) -> int:
        """Store a schedule; more headers are named without `Nats-Schedule-`, with `_` for `-`."""
        headers = {"Nats-Schedule": pattern, "Nats-Schedule-Target": self.subject("out")}
        headers |= {f"Nats-Schedule-{key.replace('_', '-')}": value for key, value in more.items()}
        return await self.account.publish(self.subject(rest), headers)

    async def last(self, rest: str) -> StoredMessage | None:
        """Return the last message on a subject."""
        return await self.account.api.message(self.stream, last_by_subj=self.subject(rest))

    async def stored(self, rest: str) -> StoredMessage:
        """Return the last message on a subject, which must be there."""
        message = await self.last(rest)
        assert message is not None
        return message

    async def headers(self, rest: str) -> dict[str, str]:
        """Return the headers of the last message on a subject, without those of its publish and of the server."""
        found = {decoded(name): decoded(value) for name, value in header_items((await self.stored(rest)).block)}
        return {name: value for name, value in found.items() if not name.startswith(NOT_OF_THE_SCHEDULE)}

    async def fires(self, rest: str = "out") -> list[StoredMessage]:
        """Return what is stored on a target."""
        return await self.account.messages(self.stream, self.subject(rest))


@asynccontextmanager
async def site_on(cli: Cli, url: str, stream: str) -> AsyncIterator[Site]:
    """Create a stream, and remove it at the end; no sidecar runs."""
    async with account_on(url) as account:
        await account.create(stream, allow_msg_ttl=True, metadata=FLAGGED)
        try:
            yield Site(cli, url, account, stream)
        finally:
            await account.api.call(f"STREAM.DELETE.{stream}")
