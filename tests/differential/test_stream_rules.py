"""A stream that should carry schedules is taken or refused alike by servers, by `stream add`, and by the sidecar.

A server up to 2.11 takes almost every configuration and drops the flag.
So a tool that sends its request there gets its refusal from the sidecar, which has seen the request: with the code that
a native server would have answered.
`nats-scheduler stream add` refuses before anything is sent.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from nats_scheduler.jetstream.errors import ApiError
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.jetstream.streams import FlaggedStreams, StreamRefusedError, StreamState
from nats_scheduler.message.capabilities import capabilities
from nats_scheduler.message.stream_rules import FLAG
from nats_scheduler.settings.sidecar import SidecarSettings
from tests.differential.differences import Allowance, Differences
from tests.differential.sides import ComparedSide, fresh_name
from tests.differential.stream_cases import CREATES, OFF, UPDATES, Config
from tests.harness.account import WAIT_SECONDS
from tests.harness.blocks import block_to_send
from tests.harness.log_lines import capture_logs
from tests.harness.servers import EMULATED_VERSIONS, V2_10
from tests.harness.waiting import eventually

Outcome = tuple[Any, ...]
Say = Callable[["Streams", str, Config, str], Awaitable[Outcome]]
"""Asks one side to CREATE or UPDATE a stream, and returns what came of it."""

REFUSED_LATER = {"stream_refused", "flag_removal_ignored"}
"""The log events of the sidecar where a native server would have refused the request."""

STAYS_ON: Outcome = ("refused", 10052, "message schedules can not be disabled")

pytestmark = [
    pytest.mark.clause("stream-flag"),
    pytest.mark.clause("stream-implied"),
    pytest.mark.clause("stream-deny-purge"),
    pytest.mark.clause("stream-counter"),
    pytest.mark.clause("stream-discard-new"),
    pytest.mark.clause("stream-pedantic"),
    pytest.mark.clause("stream-mirror"),
    pytest.mark.clause("stream-sources"),
    pytest.mark.clause("stream-sealed"),
    pytest.mark.clause("stream-stays-on"),
    pytest.mark.clause("stream-json"),
]


@dataclass
class Streams:
    """The streams of one side, and what its sidecar logs."""

    side: ComparedSide
    base: str
    said: list[dict[str, Any]]
    flagged: FlaggedStreams
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(10_000)))

    @property
    def origin(self) -> str:
        """The stream that mirrors and sources take from."""
        return f"{self.base}origin"

    def name(self) -> str:
        """Return a name for a stream; no other side has it, so that each log line belongs to one side."""
        return f"{self.base}n{next(self.numbers)}"

    def config(self, name: str, changes: Config) -> Config:
        """Return a configuration as a tool sends it."""
        told = json.loads(json.dumps(changes).replace("{origin}", self.origin).replace("{n}", name))
        whole = {"name": name, "subjects": [f"{name}.>"], FLAG: True, "storage": "memory", **told}
        return {key: value for key, value in whole.items() if value is not None or key == FLAG}

    def refusals(self, name: str) -> list[Outcome]:
        """Return what the sidecar has said against a stream."""
        lines = [line for line in self.said if line.get("stream") == name and line["event"] in REFUSED_LATER]
        return [_refusal_in(line) for line in lines]

    def is_served(self, name: str) -> bool:
        """Return whether the sidecar serves a stream."""
        return self.side.sidecar is not None and name in self.side.sidecar.sidecar.served

    async def outcome(self, name: str) -> Outcome:
        """Return what a stream is like now."""
        state = await self.flagged.recall(StreamState.from_info(await self.side.account.api.stream(name)))
        if state.config.get("sealed"):
            return ("sealed",)
        implied = tuple(bool(state.config.get(key)) for key in ("allow_rollup_hdrs", "deny_purge"))
        return ("flagged", *implied, state.rules.allow_msg_ttl) if state.is_flagged else ("plain",)


def _refusal_in(line: dict[str, Any]) -> Outcome:
    if line["event"] != "stream_refused":
        return STAYS_ON
    return ("refused", line["code"], line["description"])


@pytest.fixture
async def streams(sides: list[ComparedSide]) -> Any:
    """Give each side streams of its own and a stream to take from, and delete all of it in the end."""
    with capture_logs() as said:
        found = [await _streams(side, said) for side in sides]
        yield found
        for one in found:
            names = [info["config"]["name"] async for info in one.side.account.api.streams()]
            for name in names:
                if name.startswith(one.base):
                    await one.side.account.api.call(f"STREAM.DELETE.{name}")


async def _streams(side: ComparedSide, said: list[dict[str, Any]]) -> Streams:
    api, connection = side.account.api, side.account.connection
    server = capabilities(await api.info(), connection.server.version, connection.server.max_payload)
    registry = Registry(connection, api, SidecarSettings().registry_bucket)
    if side.is_native:
        await registry.open()
    one = Streams(side, fresh_name(), said, FlaggedStreams(api, registry, server))
    await side.account.create(one.origin, allow_msg_schedules=False)
    return one


# -- two ways to ask -------------------------------------------------------------------------------------------------


async def by_request(one: Streams, name: str, changes: Config, kind: str) -> Outcome:
    """Send the raw request of a foreign tool; where the server takes it, wait for what the sidecar says or does."""
    config = one.config(name, {**changes, "description": kind})
    was_served, before = one.is_served(name), len(one.refusals(name))
    answer = await one.side.account.connection.request_json(f"$JS.API.STREAM.{kind}.{name}", config)
    if "error" in answer:
        return ("refused", answer["error"]["err_code"], answer["error"]["description"])
    if one.side.is_native or (not was_served and (config[FLAG] is None or config[FLAG] is False)):
        return await one.outcome(name)
    return await eventually(
        lambda: _heard(one, name, kind, before), within_seconds=WAIT_SECONDS, describe=f"a word on {config}"
    )


async def _heard(one: Streams, name: str, kind: str, before: int) -> Outcome | None:
    """Return what the sidecar says or does after a request; None while it has not come to it."""
    assert one.side.sidecar is not None
    outcome = await one.outcome(name)
    service = one.side.sidecar.sidecar.served.get(name)
    if len(one.refusals(name)) > before:  # said before the stream is served, so looked at last
        return one.refusals(name)[before]
    if service is None:
        return outcome if outcome == ("sealed",) else None
    return outcome if service.state.config["description"] == kind and outcome[0] == "flagged" else None


async def by_adding(one: Streams, name: str, changes: Config, kind: str) -> Outcome:
    """Ask as `nats-scheduler stream add` does."""
    try:
        await one.flagged.add(one.config(name, {**changes, "description": kind}))
    except StreamRefusedError as refused:
        return ("refused", refused.rejection.code, refused.rejection.description)
    except ApiError as error:
        return ("refused", error.code, error.description)
    return await one.outcome(name)


async def creates(one: Streams, say: Say) -> list[Outcome]:
    """Ask for every configuration, all at once."""
    return list(await asyncio.gather(*(say(one, one.name(), changes, "CREATE") for changes in CREATES)))


async def updates(one: Streams, say: Say) -> list[Outcome]:
    """Create and then update streams, all at once."""

    async def changed(old: Config, new: Config) -> Outcome:
        name = one.name()
        made = await say(one, name, old, "CREATE")
        assert made[0] != "refused", (old, made)
        return await say(one, name, new, "UPDATE")

    return list(await asyncio.gather(*(changed(old, new) for old, new in UPDATES)))


# -- what the document explains --------------------------------------------------------------------------------------

DENIED = ("refused", 10052, "stream configuration update can not cancel deny purge")


def _is_denied(wanted: Any, given: Any) -> bool:
    """A native server drops deny_purge from the request; an older one has put it in force before the sidecar looks."""
    return bool(wanted[0] == "flagged" and given == DENIED)


def _is_mirror_kept(wanted: Any, given: Any) -> bool:
    """A mirror becomes a stream of its own from 2.12 on; an older server refuses that by itself."""
    return bool(wanted[0] == "flagged" and given[:2] == ("refused", 10055))


def _is_from_the_older_server(wanted: Any, given: Any) -> bool:
    """Both refuse; the older server does so before the sidecar could, by a check that a newer one makes later."""
    by_itself = ("can not be sealed", "TTL status can not be disabled", "mirror configuration can not be updated")
    return bool(wanted[0] == given[0] == "refused" and given[2].endswith(by_itself))


def _is_left_alone(wanted: Any, given: Any) -> bool:
    """Roll-ups are not switched on before a schedule needs them: a repeated creation would be refused."""
    return bool(wanted[0] == given[0] == "flagged" and wanted[1] and not given[1] and wanted[2:] == given[2:])


LEFT_ALONE = Allowance("stream-implied", EMULATED_VERSIONS, _is_left_alone)
OLDER_SERVER = Allowance("stream-flag", EMULATED_VERSIONS, _is_from_the_older_server)


def _is_the_other_of_two_faults(wanted: Any, given: Any) -> bool:
    """Flag and TTLs switched off in one request: the server of 2.10 knows neither, and the flag is named."""
    return bool(wanted[0] == "refused" and wanted[2] == "message TTL status can not be disabled" and given == STAYS_ON)


TWO_FAULTS = Allowance("stream-stays-on", (V2_10,), _is_the_other_of_two_faults)
PROMOTION = Allowance("stream-mirror", EMULATED_VERSIONS, _is_mirror_kept)
DENY_PURGE = Allowance("stream-deny-purge", EMULATED_VERSIONS, _is_denied)


async def compared(
    streams: list[Streams], ask: Callable[[Streams, Say], Awaitable[list[Outcome]]], say: Say, cases: list[Any]
) -> dict[str, list[Outcome]]:
    """Ask natives by request and the older ones by `say`; return the outcomes by version."""
    results = await asyncio.gather(*(ask(one, by_request if one.side.is_native else say) for one in streams))
    assert all(len(outcomes) == len(cases) for outcomes in results)
    return {one.side.version: outcomes for one, outcomes in zip(streams, results, strict=True)}


async def compare(
    streams: list[Streams],
    ask: Callable[[Streams, Say], Awaitable[list[Outcome]]],
    say: Say,
    cases: list[Any],
    *allowances: Allowance,
) -> None:
    """Compare how every side takes the cases."""
    by_version = await compared(streams, ask, say, cases)
    differences = Differences(allowances)
    for number, case in enumerate(cases):
        differences.compare(str(case), {version: outcomes[number] for version, outcomes in by_version.items()})
    differences.check(at_least=len(cases))


async def test_creating_by_request_is_answered_alike(streams: list[Streams]) -> None:
    await compare(streams, creates, by_request, CREATES, DENY_PURGE, OLDER_SERVER, LEFT_ALONE)


async def test_creating_with_stream_add_is_answered_alike(streams: list[Streams]) -> None:
    await compare(streams, creates, by_adding, CREATES, LEFT_ALONE)


async def test_updating_by_request_is_answered_alike(streams: list[Streams]) -> None:
    await compare(streams, updates, by_request, UPDATES, DENY_PURGE, PROMOTION, OLDER_SERVER, TWO_FAULTS, LEFT_ALONE)


async def test_updating_with_stream_add_is_answered_alike(streams: list[Streams]) -> None:
    await compare(streams, updates, by_adding, UPDATES, PROMOTION, LEFT_ALONE)


@pytest.mark.clause("stream-repeated")
async def test_every_creation_that_was_accepted_is_accepted_again(streams: list[Streams]) -> None:
    """Byte for byte the same, as an application sends it at each of its starts; on a server of 2.10 or 2.11 too."""

    async def repeated(one: Streams, changes: Config) -> Outcome:
        name = one.name()
        made = await by_request(one, name, changes, "CREATE")
        config = one.config(name, {**changes, "description": "CREATE"})
        answer = await one.side.account.connection.request_json(f"$JS.API.STREAM.CREATE.{name}", config)
        return made[:1], answer.get("error", {}).get("err_code")

    wrong = {}
    for one in streams:
        for changes in CREATES:
            made, code = await repeated(one, changes)
            if made == ("flagged",) and code is not None:
                wrong[one.side.version, str(changes)] = code
    assert wrong == {}


@pytest.mark.clause("stream-api-level")
async def test_only_a_native_server_asks_for_an_api_level(streams: list[Streams]) -> None:
    """It notes the level that schedules need, and refuses what asks for more than it has; an older one does neither."""

    async def asked(one: Streams) -> Outcome:
        name, other = one.name(), one.name()
        await by_request(one, name, {}, "CREATE")
        metadata = (await one.side.account.api.stream(name))["config"].get("metadata") or {}
        body = json.dumps(one.config(other, OFF)).encode()
        block = block_to_send({"Nats-Required-Api-Level": "99"})
        reply = await one.side.account.connection.request(f"$JS.API.STREAM.CREATE.{other}", body, block)
        error = json.loads(reply.body).get("error", {})
        return int(metadata.get("_nats.req.level", "0")), error.get("code", 0), error.get("err_code", 0)

    older = Allowance("stream-api-level", EMULATED_VERSIONS, lambda _wanted, given: given == (0, 0, 0))
    differences = Differences((older,))
    results = await asyncio.gather(*(asked(one) for one in streams))
    differences.compare("levels", {one.side.version: found for one, found in zip(streams, results, strict=True)})
    assert results[0] == (2, 412, 10185)
    differences.check()
