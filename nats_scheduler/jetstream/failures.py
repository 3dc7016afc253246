"""The stream that keeps advisories, so that what went wrong can still be read a week later.

The rule: nothing waits for it, and nothing depends on it. Advisories are published as they are without it; the stream
takes them as it takes any message on its subjects. Each is published with a reply subject, so that a refusal is seen.
The first advisories of a connection wait in memory until the stream exists, or for `RELEASE_AFTER_SECONDS`.
A stream that exists stays as it is: an operator may have edited it, and another sidecar may have other settings.

Cost: one request when the connection is made and one a minute; one short answer for each advisory.
Limit: if the stream is full of other schedules' failures (`max_bytes`), the oldest are discarded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import NO_RESPONDERS, Connection, frame
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.foreign_json import inner, read_object
from nats_scheduler.jetstream.registry import create_replicated
from nats_scheduler.message.subjects import subject_matches
from nats_scheduler.schedule.instants import HOUR

ADVISORY_SUBJECTS = "nats_scheduler.advisory.>"
"""What the stream keeps."""

DUPLICATE_WINDOW_NS = HOUR
"""So long (ns) the same advisory is stored once, for instance if a sidecar restarts again and again."""

RELEASE_AFTER_SECONDS = 2.0
"""Longest wait of an advisory for the stream to exist."""

MAX_WAITING = 1_000
"""The most advisories that wait; beyond that the oldest is published."""


class WrongStreamError(JetStreamError):
    """The stream of that name does not take advisories."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream {stream} exists and does not have the subject {ADVISORY_SUBJECTS}: name another one")


@dataclass(frozen=True, slots=True)
class FailureLimits:
    """The stream's name, and what it keeps at most if the sidecar creates it."""

    name: str
    max_age: int
    """Nanoseconds."""
    max_bytes: int
    per_schedule: int
    """Of each kind."""


class FailuresStream:
    """The stream, and the advisories of one connection."""

    def __init__(
        self, connection: Connection, api: JetStreamApi, limits: FailureLimits, lost: Callable[[str], None]
    ) -> None:
        """Let advisories wait from now on; `lost` is called for each that is not kept, with the reason.

        The reason is empty if no stream took it: why there is none is reported elsewhere.
        """
        self._connection = connection
        self._api = api
        self._limits = limits
        self._lost = lost
        self._inbox = connection.inbox("advised")
        connection.subscribe(self._inbox, self._answered)
        self._waiting: deque[bytes] | None = deque()
        asyncio.get_running_loop().call_later(RELEASE_AFTER_SECONDS, self.release)

    def publish(self, subject: str, body: bytes, block: bytes) -> None:
        """Publish an advisory, now or when the stream exists; one that the server does not take is left out."""
        if len(block) + len(body) > self._connection.server.max_payload:
            self._lost("it is larger than the server's max_payload")
            return
        message = frame(subject, self._inbox, block, body)
        if self._waiting is None:
            self._connection.write(message)
            return
        self._waiting.append(message)
        if len(self._waiting) > MAX_WAITING:
            self._connection.write(self._waiting.popleft())

    def release(self) -> None:
        """Publish what waits, and from now on at once."""
        if self._waiting and not self._connection.is_lost:
            self._connection.write(b"".join(self._waiting))
        self._waiting = None

    async def ensure(self) -> None:
        """Create the stream if it does not exist; raises `JetStreamError` if it cannot be used.

        In a cluster it has three replicas; one if the cluster has no room for three.
        """
        info = await self._api.stream(self._limits.name)
        if info is None:
            created = await create_replicated(self._connection, self._api, self._config())
            info = created or await self._api.stream(self._limits.name)
        subjects = inner(inner(info).get("config")).get("subjects")
        taken = subjects if isinstance(subjects, list) else ()
        if not any(subject_matches(ADVISORY_SUBJECTS, str(subject)) for subject in taken):
            raise WrongStreamError(self._limits.name)

    def _config(self) -> dict[str, Any]:
        limits = self._limits
        return {
            "name": limits.name,
            "description": "nats-scheduler: advisories about what went wrong",
            "subjects": [ADVISORY_SUBJECTS],
            "max_age": limits.max_age,
            "max_bytes": limits.max_bytes,
            "max_msgs_per_subject": limits.per_schedule,
            "duplicate_window": min(DUPLICATE_WINDOW_NS, limits.max_age),
            "discard": "old",
            "storage": "file",
            "allow_direct": True,
        }

    def _answered(self, _subject: bytes, _reply: bytes, block: bytes, body: bytes) -> None:
        if block.startswith(NO_RESPONDERS):
            self._lost("")
            return
        error = inner((read_object(body) or {}).get("error"))
        if error:
            self._lost(f"{error.get('description')} ({error.get('err_code')})")
