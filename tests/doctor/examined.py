"""The doctor as a test asks it: in this process, or as a command."""

import os
from collections.abc import Callable

from nats_scheduler.cli.doctor import gather_facts
from nats_scheduler.doctor.examination import examine
from nats_scheduler.doctor.facts import AccountFacts
from nats_scheduler.message.findings import Code, Finding
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.settings.load import resolve_settings
from tests.harness.account import CLOCK


async def findings_on(
    server: EmbeddedServer | str, stream: str | None = None, now: Callable[[], int] = CLOCK.now
) -> list[Finding]:
    """Examine an account; `server` may be addresses, joined by commas."""
    return list(examine(await facts_on(server, stream, now)).findings)


async def facts_on(
    server: EmbeddedServer | str, stream: str | None = None, now: Callable[[], int] = CLOCK.now
) -> AccountFacts:
    """Gather the facts of an account."""
    url = server if isinstance(server, str) else server.url
    resolved = resolve_settings({"servers": url, "no_context": True}, _environment(), None)
    return await gather_facts(resolved, stream, now, lambda _what, _done, _steps: None)


async def codes_on(server: EmbeddedServer | str) -> set[Code]:
    """Return the codes of what is found."""
    return {finding.code for finding in await findings_on(server)}


def of(findings: list[Finding], code: Code) -> list[Finding]:
    """Return the findings of one code."""
    return [finding for finding in findings if finding.code is code]


def _environment() -> dict[str, str]:
    """Return an environment without the settings of this machine."""
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
