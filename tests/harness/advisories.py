"""Listen to the advisories of an account, and hold each of them to the schema.

The rule: an advisory that the schema does not describe fails the test that asks for any.
"""

import json
from typing import Any, Self

from jsonschema import Draft202012Validator

from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.message.advisory_messages import ADVISORY_PREFIX, ADVISORY_TYPE, advisory_subject
from nats_scheduler.observe.advisories import KINDS, advisories_schema
from tests.harness.account import flushed
from tests.harness.waiting import eventually

SCHEMA = Draft202012Validator(advisories_schema())
IN_EACH = {"type", "stream"}
"""The keys of all kinds."""


class HeardAdvisories:
    """The advisories that were published, by kind."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, dict[str, Any]]] = []
        self.faults: list[str] = []

    @classmethod
    async def of(cls, connection: Connection, stream: str = "*") -> Self:
        """Begin to listen to what is said of a stream; what is published from now on is heard.

        On a server that tests share, name the stream: the sidecar of a test serves the streams of its neighbours too.
        """
        heard = cls()
        for subject in (f"{ADVISORY_PREFIX}.*.{stream}", f"{ADVISORY_PREFIX}.*.{stream}.>"):
            connection.subscribe(subject, lambda to, _reply, _headers, body: heard._hear(to.decode(), body))
        await flushed(connection)
        return heard

    async def first(self, kind: str) -> dict[str, Any]:
        """Wait for the first advisory of a kind; raises AssertionError where any was not as the schema says."""
        found = await eventually(
            lambda: next((body for heard, body in self.bodies if heard == kind), None),
            describe=lambda: f"the advisory {kind} among {self.bodies}",
        )
        assert self.faults == []
        return found

    def _hear(self, subject: str, body: bytes) -> None:
        kind = subject.removeprefix(f"{ADVISORY_PREFIX}.").partition(".")[0]
        heard: dict[str, Any] = json.loads(body)
        self.bodies.append((kind, heard))
        self.faults += [f"{subject}: {error.message}" for error in SCHEMA.iter_errors(heard)]
        expected = advisory_subject(kind, heard["stream"], heard.get("schedule") or heard.get("subject") or "")
        if (
            heard["type"] != f"{ADVISORY_TYPE}.{kind}"
            or subject != expected
            or set(heard) != {*KINDS[kind].keys, *IN_EACH}
        ):
            self.faults.append(f"{subject}: {heard}")
