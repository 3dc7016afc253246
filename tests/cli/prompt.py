"""The command line against a server, as most tests of commands use it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import Result

from tests.harness.account import Account, account_on
from tests.harness.flagged import FLAGGED
from tests.harness.processes import sidecar_command
from tests.harness.terminal import Terminal, start_on_terminal

Cli = Callable[..., Result]


FAR = "2200-01-01T00:00:00Z"
NEVER = f"@at {FAR}"

EACH_SECOND = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "ORDERS.out"}
WRONG = {"Nats-Schedule": "@often", "Nats-Schedule-Target": "ORDERS.out"}


@dataclass(frozen=True)
class Prompt:
    """A server, and the command line against it."""

    cli: Cli
    url: str
    account: Account

    async def says(self, line: str, *words: str, **options: Any) -> Result:
        """Run a command, in a thread, in which it has an event loop of its own; `words` may contain blanks."""
        return await asyncio.to_thread(self.cli, *line.split(), *words, "--server", self.url, **options)

    async def shows(self, line: str, *words: str, **options: Any) -> str:
        """Run a command that must succeed; return what it prints."""
        said = await self.says(line, *words, **options)
        assert said.exit_code == 0, said.output
        return said.stdout

    async def document(self, line: str, *words: str, **options: Any) -> dict[str, Any]:
        """Run a command that must succeed; return its document."""
        document: dict[str, Any] = json.loads(await self.shows(line, *words, "--json", **options))
        return document

    async def create(self, name: str = "ORDERS", **config: Any) -> None:
        """Create a stream with the flag."""
        await self.account.create(name, metadata=FLAGGED, **config)

    async def schedule(
        self, subject: str, pattern: str, target: str = "", x: str = "", body: bytes = b"body", **more: str
    ) -> int:
        """Store a schedule; `more` are headers without `Nats-Schedule-`, with `_` for `-`; `x` is a prefix of all."""
        name = f"{x}Nats-Schedule"
        headers = {name: pattern, f"{name}-Target": target or f"{subject.partition('.')[0]}.out"}
        headers |= {f"{name}-{key.replace('_', '-')}": value for key, value in more.items()}
        return await self.account.publish(subject, headers, body)


def words(text: str) -> set[str]:
    """Return the words of a text: on a terminal it may be folded between them."""
    return set(text.split())


@asynccontextmanager
async def prompt_on(cli: Cli, url: str) -> AsyncIterator[Prompt]:
    """Connect to a server, on which commands run too."""
    async with account_on(url) as account:
        yield Prompt(cli, url, account)


@asynccontextmanager
async def at_a_terminal(*words: str, folder: Path) -> AsyncIterator[Terminal]:
    """Run the program at a real terminal, in a process of its own."""
    terminal = await start_on_terminal([*sidecar_command(), *words], folder=folder)
    try:
        yield terminal
    finally:
        await terminal.close()
