"""The way a stream is served is found out by what there is: the server's flag, a sidecar's answer, its bucket."""

from typing import Any

import pytest

from nats_scheduler.client import ForbiddenError, NotServedError, Sidecar, StreamNotFoundError
from nats_scheduler.client import serving as found_out
from nats_scheduler.client.client_wire import wire_of
from nats_scheduler.client.jetstream_requests import JetStreamRequests
from nats_scheduler.client.serving import Serving, Servings, dialects_of
from nats_scheduler.jetstream import streams
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.dialect import ADR51, PORTABLE, Dialect
from nats_scheduler.service.endpoint import SUBJECTS
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.client.conftest import Connect
from tests.conftest import StartServer
from tests.harness.account import account_on, sidecar_on
from tests.harness.servers import ALL_VERSIONS, NATIVE_VERSIONS, V2_10, V2_12, V2_15

LEVELS = dict(zip(ALL_VERSIONS, (0, 1, 3, 4, 5), strict=True))
BOTH = (ADR51, PORTABLE)


async def found(connect: Connect, url: str, stream: str, **options: object) -> Serving:
    wire = wire_of(await connect(url, **options))
    return await Servings(wire, JetStreamRequests(wire)).of(stream)


def test_the_names_are_those_of_the_sidecar() -> None:
    assert f"{SUBJECTS}.streams.modes" == found_out.MODES_SUBJECT
    assert (found_out.METADATA_FLAG, found_out.METADATA_TTL_FLAG) == (streams.METADATA_FLAG, streams.METADATA_TTL_FLAG)
    assert found_out.TTL_FLAG == streams.TTL_FLAG
    assert SidecarSettings.model_fields["registry_bucket"].default == found_out.DEFAULT_BUCKET


# -- on servers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [V2_12, V2_15])
async def test_a_native_stream_is_served_without_a_sidecar(
    start_server: StartServer, connect: Connect, version: str
) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account:
        await account.create("S", allow_msg_ttl=True)
        serving = await found(connect, server.url, "S")
    assert serving.served.is_native
    assert (serving.served.dialects, serving.sidecar) == ((ADR51,), Sidecar.SILENT)
    assert serving.served.server == Capabilities(version, LEVELS[version])
    assert serving.served.rules.allow_msg_ttl


@pytest.mark.parametrize("version", [V2_10, V2_15])
async def test_a_sidecar_that_answers_fires_portable_headers_everywhere(
    start_server: StartServer, connect: Connect, version: str
) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account, sidecar_on(server.url, portable_streams=["P"]) as sidecar:
        await account.create("S")
        await account.create("P", allow_msg_schedules=False)
        await account.create("PLAIN", allow_msg_schedules=False)
        await sidecar.ready("S")
        flagged = await found(connect, server.url, "S")
        named = await found(connect, server.url, "P")
        with pytest.raises(NotServedError, match="does not serve it; create or update the stream with allow_msg"):
            await found(connect, server.url, "PLAIN")
    is_native = version in NATIVE_VERSIONS
    assert (flagged.served.dialects, flagged.served.is_native) == (BOTH, is_native)
    assert flagged.sidecar is (Sidecar.FIRES_PORTABLE if is_native else Sidecar.FIRES_ALL)
    assert (named.served.dialects, named.served.is_native, named.sidecar) == (
        (PORTABLE,),
        False,
        Sidecar.FIRES_PORTABLE,
    )
    assert flagged.served.server.api_level == named.served.server.api_level == LEVELS[version]


async def test_a_stream_that_a_sidecar_has_served_is_served_while_none_runs(
    start_server: StartServer, connect: Connect
) -> None:
    """The TTLs that 2.10 does not keep are found in the bucket too."""
    server = await start_server(V2_10)
    async with account_on(server.url) as account:
        await account.create("MARKED", allow_msg_schedules=False, metadata={streams.METADATA_FLAG: "true"})
        for stream in ("S", "MARKED"):
            with pytest.raises((NotServedError, StreamNotFoundError)):
                await found(connect, server.url, stream)
        async with sidecar_on(server.url) as sidecar:
            await account.create("S", allow_msg_ttl=True)
            await account.create("WITHOUT")
            for stream, has_ttl in (("S", True), ("WITHOUT", False)):
                await sidecar.ready(stream)
                assert (await found(connect, server.url, stream)).served.rules.allow_msg_ttl is has_ttl
        for stream, has_ttl in (("S", True), ("MARKED", False), ("WITHOUT", False)):
            serving = await found(connect, server.url, stream)
            assert (serving.served.dialects, serving.sidecar) == (BOTH, Sidecar.SILENT)
            assert serving.served.rules.allow_msg_ttl is has_ttl
        await account.create("LATER")
        with pytest.raises(NotServedError, match=r"the server is older than 2\.12, and no sidecar answers; start one"):
            await found(connect, server.url, "LATER")


async def test_each_operation_looks_at_what_fires_then(start_server: StartServer, connect: Connect) -> None:
    """A program goes on when a sidecar is started, and when the server itself fires."""
    server = await start_server(V2_15)
    wire = wire_of(await connect(server.url))
    servings = Servings(wire, JetStreamRequests(wire))
    async with account_on(server.url) as account:
        await account.create("S", allow_msg_schedules=False)
        with pytest.raises(NotServedError):
            await servings.of("S")
        async with sidecar_on(server.url, portable_streams=["S"]) as sidecar:
            await sidecar.ready("S")
            assert (await servings.of("S")).served.dialects == (PORTABLE,)
            config = (await account.api.stream("S"))["config"]
            await account.api.update_stream({**config, "allow_msg_schedules": True})
            assert (await servings.of("S")).served.is_native


PERMITTED = """
authorization { users: [
  { user: admin, password: p }
  { user: program, password: p, permissions: { publish: { allow: ["$JS.API.STREAM.INFO.>"] } } }
] }
"""


async def test_a_user_who_may_not_ask_is_told_what_is_missing(start_server: StartServer, connect: Connect) -> None:
    server = await start_server(V2_15, config=PERMITTED)
    async with account_on(server.url.replace("nats://", "nats://admin:p@")) as account:
        await account.create("S")
        await account.create("PLAIN", allow_msg_schedules=False)
        as_program: dict[str, Any] = {"user": "program", "password": "p"}
        with pytest.raises(NotServedError, match=r"may not ask a sidecar \(publish to nats_scheduler.v1.streams.modes"):
            await found(connect, server.url, "PLAIN", **as_program)
        assert (await found(connect, server.url, "S", **as_program)).sidecar is Sidecar.UNKNOWN
        requests = JetStreamRequests(wire_of(await connect(server.url, **as_program)))
        with pytest.raises(ForbiddenError, match=r"STREAM\.MSG\.GET"):
            await requests.message("S", seq=1)


# -- the rule itself -----------------------------------------------------------------------------------------------


def test_what_fires_decides_the_spellings() -> None:
    flag: dict[str, Any] = {"allow_msg_schedules": True}
    cases: list[tuple[dict[str, Any], int, Sidecar, bool, tuple[Dialect, ...] | None]] = [
        (flag, 4, Sidecar.SILENT, False, (ADR51,)),
        (flag, 4, Sidecar.FIRES_PORTABLE, False, BOTH),
        ({}, 1, Sidecar.FIRES_ALL, False, BOTH),
        ({}, 4, Sidecar.FIRES_PORTABLE, False, (PORTABLE,)),
        ({}, 4, Sidecar.FIRES_ALL, False, (PORTABLE,)),  # it answered before an upgrade of the server
        ({}, 1, Sidecar.SILENT, True, BOTH),
        ({}, 1, Sidecar.SILENT, False, None),
        ({}, 4, Sidecar.SILENT, False, None),
        ({"mirror": {"name": "M"}}, 1, Sidecar.SILENT, True, None),
        ({**flag, "sealed": True}, 4, Sidecar.FIRES_PORTABLE, False, None),
    ]
    for config, level, sidecar, remembered, expected in cases:
        try:
            found = dialects_of(
                {"name": "S", **config}, Capabilities(api_level=level), sidecar, is_remembered=remembered
            )
        except NotServedError:
            found = None
        assert found == expected, (config, level, sidecar, remembered)
