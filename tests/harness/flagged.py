"""A flagged stream as its users see it: what they publish, what they take through consumers, what is stored.

Its rule: subjects are named by what stands behind `<stream>.`, so that a test reads the same for every stream.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.engine.events import Ending, FiresMissed
from nats_scheduler.jetstream.connection import frame
from nats_scheduler.message.headers import MSG_ID, header_value
from nats_scheduler.message.identity import parse_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.harness.account import CLOCK, Account, Running, account_on, sidecar_with
from tests.harness.leads import ATTEMPTS, OvertakenError, with_more_time
from tests.harness.waiting import PATIENCE_SECONDS, eventually, instant_reached

FLAGGED = {"nats-scheduler.allow_msg_schedules": "true"}
"""The metadata that flags a stream where no sidecar sees its creation, and the server drops the field."""
FLAG = {"metadata": FLAGGED}
"""The configuration of a stream that was served before."""
AS_ADOPTED = {**FLAG, "allow_rollup_hdrs": True}
"""With this the sidecar has nothing to update.

A node of a server before 2.12 that restarts after a stream was created and updated, and before its next snapshot of
the assignments, has forgotten the stream; should it come to lead, the whole cluster removes it.
"""


def at(due: int) -> str:
    """Return the pattern of a delay until an instant (ns)."""
    return f"@at {format_rfc3339(due)}"


def fire_time_of(fire: StoredMessage) -> int:
    """Return the time (ns) that a fire of a sidecar stands for, from its identity."""
    identity = parse_identity((header_value(fire.block, MSG_ID) or b"").decode())
    assert identity is not None, fire
    return identity[2]


def left_out(fires: Iterable[StoredMessage], missed: Iterable[FiresMissed], step: int = SECOND) -> set[int]:
    """Return the times between the first and the last fire of a schedule that have no fire, and were not reported.

    A busy machine may stop the process for longer than an interval; then one fire makes up for those before it.
    """
    times = [fire_time_of(fire) for fire in fires]
    assert times == sorted(set(times)), "none is doubled"
    reported = {time for one in missed if one.made_up is not None for time in range(one.first, one.made_up, step)}
    return set(range(times[0], times[-1], step)) - set(times) - reported


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
            except SchedulerError:
                return False
            return True

        await eventually(stored, describe=f"{rest} is stored")

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

    async def canary(self, seconds: float = 0.0, *, due: int | None = None) -> None:
        """Wait until a schedule that is due in `seconds`, or at an instant (ns), has fired and is purged.

        On a stream with `max_age` it may end before a busy machine fires it: then another one is stored.
        """

        async def fired(lead: float) -> None:
            instant = CLOCK.now() + int(lead * SECOND) if due is None else due
            await self.schedule("canary", at(instant), target="canary.out")
            await instant_reached(instant, CLOCK.now)
            await self.gone("canary")
            if await self.messages("canary.out"):
                return
            if await self._max_age():
                raise OvertakenError("the max_age of the canary was over")
            await self.wait_for("canary.out")

        await with_more_time(fired, [seconds] * ATTEMPTS)

    async def _max_age(self) -> int:
        return int((await self.account.api.stream(self.name))["config"].get("max_age") or 0)

    async def gone(self, rest: str) -> None:
        """Wait until nothing is stored on a subject of the stream."""
        await self.left(rest, [])

    async def left(self, rest: str, bodies: list[bytes]) -> None:
        """Wait until just these bodies are stored on a subject of the stream, in this order."""
        found: list[bytes] = []

        async def are_left() -> bool:
            nonlocal found
            found = [message.body or b"" for message in await self.messages(rest)]
            return found == bodies

        await eventually(are_left, describe=lambda: f"{bodies} on {rest} of {self.name}, not {found}")

    async def stored_on(self, rest: str) -> int:
        """Return how many messages are stored on the subjects of a filter."""
        return await self.account.number_on(self.name, self.subject(rest))

    async def each_fired_once(self, count: int) -> None:
        """Wait until no schedule is left on `s.*`, and show that each of `count` numbered ones fired once to `out`."""

        async def are_purged() -> bool:
            return await self.stored_on("s.*") == 0

        await eventually(
            are_purged, within_seconds=2 * PATIENCE_SECONDS, describe="every schedule has fired and is purged"
        )
        assert sorted(int(one.body or b"-1") for one in await self.messages("out")) == list(range(count))

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

        def is_over() -> bool:
            self.check_time()
            return len(taken) >= count

        await eventually(is_over, describe=lambda: f"{count} taken: {taken}")
        connection.unsubscribe(number)
        return taken

    def check_time(self) -> None:
        """Raise `OvertakenError` if the clock has overtaken what is told here; here nothing is."""

    async def acknowledge(self, message: Delivered, word: bytes = b"+ACK") -> None:
        """Acknowledge a message and wait until the server has taken the acknowledgement."""
        await self.account.connection.request(message.reply, word, deadline=PATIENCE_SECONDS)


@dataclass
class Served(FlaggedStream):
    """A flagged stream that a sidecar in this process serves."""

    sidecar: Running
    url: str = ""
    version: str = ""

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the events of one kind about the stream."""
        return self.sidecar.of(self.name, kind)

    async def none_left_out(self, fires: Sequence[StoredMessage], rest: str, step: int = SECOND) -> None:
        """Show that each time of the schedule on a subject has a fire, or is reported.

        A report follows the acknowledgement of the fire that makes up for others, so it may come after that fire.
        """

        def none_left_out() -> bool:
            missed = [one for one in self.of(FiresMissed) if one.schedule == self.subject(rest)]
            return left_out(fires, missed, step) == set()

        await eventually(none_left_out, describe="each time of the schedule has a fire or is reported")

    async def reported(self, kind: type[Any], count: int = 1) -> list[Any]:
        """Wait for events of one kind about the stream."""
        return await self.sidecar.reported(self.name, kind, count)

    async def ended(self, rest: str) -> Ending:
        """Wait until the schedule on a subject has ended and return why."""
        return await self.sidecar.ended(self.name, self.subject(rest))


@asynccontextmanager
async def served_on(
    url: str, name: str = "S", *, clock: Clock = CLOCK, config: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Served]:
    """Create a stream with this configuration, and serve it by a sidecar with these settings until it owns it.

    The sidecar of a stream that is there already serves it as it is, if no configuration is given.
    """
    chosen = SidecarSettings(connection=ConnectionSettings(servers=(url,)), **settings)
    async with account_on(url) as account, sidecar_with(chosen, clock) as running:
        if config is not None or await account.api.stream(name) is None:
            await account.create(name, **(config or {}))
        await running.ready(name)
        await running.healthy()  # what is read before it is taken over is not reported
        yield Served(account, name, running, url)
