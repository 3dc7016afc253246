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

from nats_scheduler.control.errors import RefusedError, RejectedError
from nats_scheduler.control.transport import request_json
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.jetstream.streams import FlaggedStreams, StreamState
from nats_scheduler.message.capabilities import capabilities
from nats_scheduler.message.stream_rules import FLAG
from nats_scheduler.schedule.instants import MINUTE, SECOND
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.differential.differences import Allowance, Differences
from tests.differential.sides import ComparedSide, fresh_name
from tests.harness.blocks import block_to_send
from tests.harness.log_lines import capture_logs
from tests.harness.servers import EMULATED_VERSIONS, V2_10
from tests.harness.waiting import eventually

Config = dict[str, Any]
Outcome = tuple[Any, ...]
Say = Callable[["Streams", str, Config, str], Awaitable[Outcome]]
"""Asks one side to CREATE or UPDATE a stream, and returns what came of it."""

REFUSED_LATER = {"stream_refused", "flag_removal_ignored"}
"""The log events of the sidecar where a native server would have refused the request."""

STAYS_ON: Outcome = ("refused", 10052, "message schedules can not be disabled")

pytestmark = [
    pytest.mark.clause("stream-flag", "stream-implied", "stream-deny-purge", "stream-counter", "stream-discard-new"),
    pytest.mark.clause("stream-pedantic", "stream-mirror", "stream-sources", "stream-sealed", "stream-stays-on"),
    pytest.mark.clause("stream-json"),
]

# -- what is created, and what it is then changed to -----------------------------------------------------------------
# A case holds what differs from a stream on `<name>.>` with the flag; None leaves a field out. `{origin}` stands for a
# stream that exists on every side, `{n}` for the name of the case's own. What each means is for the servers to say.

ORIGIN = [{"name": "{origin}"}]
MIRROR = {"mirror": {"name": "{origin}"}, "subjects": None}
OFF = {"allow_msg_schedules": False}
UNSAID = {"allow_msg_schedules": None}

WRONG_TYPES: list[Any] = ["yes", "true", "", 1, 0, 1.5, [], [True], {}, {"on": True}]

CREATES: list[Config] = [
    {},
    UNSAID,
    OFF,
    *[{"allow_msg_schedules": value} for value in WRONG_TYPES],
    {"allow_msg_schedules": "yes", "discard": "new"},
    {"allow_msg_schedules": "yes", "sealed": True},
    {"allow_rollup_hdrs": True},
    {"allow_rollup_hdrs": False},
    {"deny_purge": True, "allow_rollup_hdrs": True},
    {"deny_purge": False, "allow_rollup_hdrs": True},
    {"subjects": None},
    {"allow_msg_ttl": True},
    {"allow_msg_ttl": True, "subject_delete_marker_ttl": MINUTE},
    {"subject_delete_marker_ttl": MINUTE},
    {"subject_delete_marker_ttl": MINUTE, "allow_rollup_hdrs": True},
    {"subject_delete_marker_ttl": SECOND // 2, "allow_msg_ttl": True, "allow_rollup_hdrs": True},
    {"subject_delete_marker_ttl": MINUTE, "pedantic": True},
    {"subject_delete_marker_ttl": MINUTE, "allow_msg_ttl": True, "pedantic": True},
    {"no_ack": True},
    {"sealed": True},
    {"sealed": True, "discard": "new", "deny_purge": True},
    {"discard": "new"},
    {"discard": "new", "sources": ORIGIN},
    {"allow_msg_counter": True},
    {"allow_msg_counter": True, "discard": "new"},
    {"allow_msg_counter": True, "pedantic": True},
    {"pedantic": True},
    {"pedantic": True, "allow_rollup_hdrs": True},
    {"pedantic": True, "discard": "new"},
    {"pedantic": True, "sources": ORIGIN},
    {"pedantic": False},
    {"sources": ORIGIN},
    {"sources": ORIGIN, "subjects": None},
    MIRROR,
    {**MIRROR, "subjects": ["{n}.>"]},
    {**MIRROR, "sources": ORIGIN},
    {**MIRROR, "subjects": ["{n}.>"], "sources": ORIGIN},
    {**MIRROR, "discard": "new"},
    {**MIRROR, "pedantic": True},
    {**MIRROR, "allow_msg_counter": True},
    {**OFF, "discard": "new"},
    {**OFF, "sources": ORIGIN},
    {**OFF, **MIRROR},
    {"deny_purge": True},
    {"deny_purge": True, "allow_rollup_hdrs": False},
]

UPDATES: list[tuple[Config, Config]] = [
    ({}, {}),
    (OFF, {}),
    (UNSAID, {}),
    (OFF, OFF),
    ({}, OFF),
    ({}, UNSAID),
    ({}, {**OFF, "discard": "new"}),
    ({}, {"allow_msg_schedules": "yes"}),
    ({}, {"allow_msg_schedules": 1}),
    (OFF, {"allow_msg_schedules": "yes"}),
    (OFF, {"allow_msg_schedules": []}),
    ({}, {"allow_rollup_hdrs": False}),
    ({}, {"allow_rollup_hdrs": True}),
    ({}, {"discard": "new"}),
    ({}, {"sources": ORIGIN}),
    ({}, {"sources": ORIGIN, "discard": "new"}),
    ({}, {"allow_msg_counter": True}),
    ({}, {"pedantic": True}),
    ({}, {"pedantic": True, "allow_rollup_hdrs": True}),
    ({}, {"deny_purge": True, "allow_rollup_hdrs": True}),
    ({}, {"allow_msg_ttl": True}),
    ({"allow_msg_ttl": True}, {"allow_msg_ttl": True}),
    ({"allow_msg_ttl": True}, {}),
    ({"allow_msg_ttl": True}, {"allow_msg_ttl": False}),
    ({"allow_msg_ttl": True}, {"discard": "new"}),
    ({"allow_msg_ttl": True}, OFF),
    ({}, {"sealed": True}),
    ({**OFF}, {"sealed": True}),
    ({**OFF, "discard": "new"}, {"discard": "new"}),
    ({**OFF, "discard": "new"}, {}),
    ({**OFF, "deny_purge": True}, {"deny_purge": True}),
    ({**OFF, "deny_purge": True}, {"deny_purge": False}),
    ({**OFF, "deny_purge": True}, {"deny_purge": True, "discard": "new"}),
    ({**OFF, "deny_purge": True}, {"deny_purge": True, "allow_rollup_hdrs": True}),
    ({**OFF, "sources": ORIGIN}, {"sources": ORIGIN}),
    ({**OFF, "sources": ORIGIN}, {}),
    ({**OFF, "sources": ORIGIN, "subjects": None}, {}),
    ({**OFF, **MIRROR}, MIRROR),
    ({**OFF, **MIRROR}, {}),
    ({}, MIRROR),
    ({}, {"deny_purge": True}),
    ({}, {"deny_purge": True, "allow_rollup_hdrs": False}),
]

# -- the sides -------------------------------------------------------------------------------------------------------


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
    answer = await request_json(one.side.account.connection, f"$JS.API.STREAM.{kind}.{name}", config)
    if "error" in answer:
        return ("refused", answer["error"]["err_code"], answer["error"]["description"])
    if one.side.is_native or (not was_served and (config[FLAG] is None or config[FLAG] is False)):
        return await one.outcome(name)
    return await eventually(lambda: _heard(one, name, kind, before), describe=f"a word on {config}")


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
    except RejectedError as refused:
        return ("refused", refused.rejection.code, refused.rejection.description)
    except RefusedError as error:
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


async def compare(
    streams: list[Streams],
    ask: Callable[[Streams, Say], Awaitable[list[Outcome]]],
    say: Say,
    cases: list[Any],
    *allowances: Allowance,
) -> None:
    """Ask natives by request and the older ones by `say`, and compare how every side takes the cases."""
    results = await asyncio.gather(*(ask(one, by_request if one.side.is_native else say) for one in streams))
    differences = Differences(allowances)
    for case, *outcomes in zip(cases, *results, strict=True):
        versions = [one.side.version for one in streams]
        differences.compare(str(case), dict(zip(versions, outcomes, strict=True)))
    differences.check(at_least=len(cases))


async def test_creating_by_request_is_answered_alike(streams: list[Streams]) -> None:
    await compare(streams, creates, by_request, CREATES, DENY_PURGE, OLDER_SERVER, LEFT_ALONE)


async def test_updating_by_request_is_answered_alike(streams: list[Streams]) -> None:
    await compare(streams, updates, by_request, UPDATES, DENY_PURGE, PROMOTION, OLDER_SERVER, TWO_FAULTS, LEFT_ALONE)


async def test_updating_with_stream_add_is_answered_alike(streams: list[Streams]) -> None:
    await compare(streams, updates, by_adding, UPDATES, PROMOTION, LEFT_ALONE)


@pytest.mark.clause("stream-repeated")
async def test_every_creation_that_was_accepted_is_accepted_again(streams: list[Streams]) -> None:
    """Byte for byte the same, as an application sends it at each of its starts; on a server of 2.10 or 2.11 too."""

    async def code_of_the_second(one: Streams, changes: Config) -> int | None:
        name = one.name()
        made = await by_request(one, name, changes, "CREATE")
        config = one.config(name, {**changes, "description": "CREATE"})
        answer = await request_json(one.side.account.connection, f"$JS.API.STREAM.CREATE.{name}", config)
        return answer.get("error", {}).get("err_code") if made[0] == "flagged" else None

    for one in streams:
        codes = await asyncio.gather(*(code_of_the_second(one, changes) for changes in CREATES))
        wrong = {str(changes): code for changes, code in zip(CREATES, codes, strict=True) if code is not None}
        assert wrong == {}, one.side.version


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
