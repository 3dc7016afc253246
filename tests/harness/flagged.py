"""A flagged stream as its users see it: what they publish, what they take through consumers, what is stored.

Its rule: subjects are named by what stands behind `<stream>.`, so that a test reads the same for every stream.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from nats_scheduler.jetstream.connection import frame
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.harness.account import CLOCK, WAIT_SECONDS, Account
from tests.harness.waiting import eventually, instant_reached

ELECTION_SECONDS = 60.0
"""Longest wait for a stream of a cluster to have a leader, on a busy machine."""


class Delivered(NamedTuple):
    """A message that a consumer was given."""

    subject: str
    reply: str
    block: bytes
    body: bytes


@dataclass
class FlaggedStream:
    """A stream that carries the flag, on one server."""

    account: Account
    name: str

    def subject(self, rest: str) -> str:
        """Return a subject of the stream."""
        return f"{self.name}.{rest}"

    async def call(self, request: str, body: Any = None) -> Any:
        """Ask JetStream for something about the stream, such as `STREAM.PURGE`."""
        return await self.account.api.call(f"{request}.{self.name}", body)

    # -- messages ------------------------------------------------------------------------------------------------

    async def publish(self, rest: str, headers: Mapping[str, str] | str = "", body: bytes = b"body") -> int:
        """Store a message on a subject of the stream."""
        return await self.account.publish(self.subject(rest), headers, body)

    async def schedule(
        self,
        rest: str,
        pattern: str,
        body: bytes = b"body",
        target: str = "out",
        more: Mapping[str, str] | None = None,
    ) -> int:
        """Store a schedule; further headers are named without `Nats-Schedule-`."""
        return await self.publish(rest, self.headers(pattern, target, more), body)

    async def schedule_soon(self, rest: str, pattern: str, body: bytes = b"body", target: str = "out") -> None:
        """Store a schedule once, as soon as somebody answers: in a cluster, a stream may have no leader for a while."""

        async def stored() -> bool:
            try:
                # Whatever became of an attempt before: the second one is a duplicate.
                await self.publish(rest, {**self.headers(pattern, target), "Nats-Msg-Id": rest}, body)
            except JetStreamError:
                return False
            return True

        await eventually(stored, within_seconds=ELECTION_SECONDS, describe=f"{rest} is stored")

    def headers(self, pattern: str, target: str = "out", more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the headers of a schedule."""
        headers = {"Nats-Schedule": pattern, "Nats-Schedule-Target": self.subject(target)}
        return headers | {f"Nats-Schedule-{name}": text for name, text in (more or {}).items()}

    async def wait_for(self, rest: str, count: int = 1) -> list[StoredMessage]:
        """Wait for messages on a subject of the stream."""
        return await self.account.wait_for(self.name, self.subject(rest), count)

    async def messages(self, rest: str) -> list[StoredMessage]:
        """Return what is stored on a subject of the stream, which may hold wildcards."""
        return await self.account.messages(self.name, self.subject(rest))

    async def count(self) -> int:
        """Return how many messages the stream holds."""
        return int((await self.account.api.stream(self.name))["state"]["messages"])

    async def canary(self, seconds: float) -> None:
        """Wait until a schedule that is due in `seconds` has fired and is purged."""
        due = CLOCK.now() + int(seconds * SECOND)
        await self.schedule("canary", f"@at {format_rfc3339(due)}", target="canary.out")
        await instant_reached(due, CLOCK.now)
        await self.wait_for("canary.out")

        async def purged() -> bool:
            return not await self.messages("canary")

        await eventually(purged, within_seconds=WAIT_SECONDS, describe=f"the canary of {self.name} is purged")

    # -- consumers -----------------------------------------------------------------------------------------------

    async def add_consumer(self, durable: str, rest: str = ">", **config: Any) -> None:
        """Create a durable consumer with explicit acknowledgements."""
        wanted = {"durable_name": durable, "ack_policy": "explicit", "filter_subject": self.subject(rest), **config}
        body = {"stream_name": self.name, "config": wanted}
        await self.account.api.call(f"CONSUMER.DURABLE.CREATE.{self.name}.{durable}", body)

    async def consumers(self) -> list[str]:
        """Return the names of the stream's consumers."""
        return (await self.call("CONSUMER.NAMES")).get("consumers") or []

    async def take(self, durable: str, count: int = 1) -> list[Delivered]:
        """Take messages through a consumer, without acknowledging them."""
        taken: list[Delivered] = []

        def sink(subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
            if not block.startswith(b"NATS/1.0 "):
                taken.append(Delivered(subject.decode(), reply.decode(), block, body))

        connection = self.account.connection
        inbox = connection.inbox(f"take.{self.name}.{durable}.{count}")
        number = connection.subscribe(inbox, sink)
        request = b'{"batch": %d}' % count
        connection.write(frame(f"$JS.API.CONSUMER.MSG.NEXT.{self.name}.{durable}", inbox, b"", request))
        await eventually(
            lambda: len(taken) >= count, within_seconds=WAIT_SECONDS, describe=lambda: f"{count} taken: {taken}"
        )
        connection.unsubscribe(number)
        return taken

    async def acknowledge(self, message: Delivered, word: bytes = b"+ACK") -> None:
        """Acknowledge a message and wait until the server has taken the acknowledgement."""
        await self.account.connection.request(message.reply, word, deadline=WAIT_SECONDS)
