"""Ways to reach a server: each way in leads to fires, each way that is barred is named in words, without a secret."""

import asyncio
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nkeys

from nats_scheduler.engine.events import FireStored
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.runtime.embedded import EmbeddedServer, free_port
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.conftest import StartServer
from tests.harness.account import (
    Account,
    Running,
    account_on,
    in_seconds,
    sidecar_on,
    sidecar_with,
    started_sidecar,
)
from tests.harness.certificates import Authority, tls_config
from tests.harness.flagged import FLAG, FlaggedStream
from tests.harness.jwts import Key, Operator
from tests.harness.log_lines import capture_logs
from tests.harness.servers import V2_11
from tests.harness.waiting import PATIENCE_SECONDS

SECRET = "swordfish"  # noqa: S105 - it guards a server on loopback
AUTHORIZATION = "(?i)authorization"


@dataclass
class Way:
    """A server's configuration, and the settings that lead, or do not lead, into it."""

    config: str
    settings: dict[str, Any]
    scheme: str = "nats"
    says: str = AUTHORIZATION
    """The message where it does not lead in."""
    tls_first: bool = False

    def to(self, url: str) -> ConnectionSettings:
        """Return the settings for a server with this URL."""
        return ConnectionSettings.model_validate(
            {"servers": (url.replace("nats://", f"{self.scheme}://"),), **self.settings}
        )


def ways_in(folder: Path) -> dict[str, Way]:
    """Return all ways that lead in."""
    authority, operator = Authority(folder), Operator()
    server, client = authority.issue("server"), authority.issue("client", host="sidecar")
    ca = {"tls_ca": authority.file}
    mutual = {**ca, "tls_cert": client.cert, "tls_key": client.key}
    key, user = Key(nkeys.PREFIX_BYTE_USER), operator.user()
    (folder / "user.nk").write_bytes(key.seed)
    with_nkey = f"authorization {{ users: [{{ nkey: {key.public} }}] }}\n"
    return {
        "user": Way(f"authorization {{ user: u, password: {SECRET} }}\n", {"user": "u", "password": SECRET}),
        "token": Way(f"authorization {{ token: {SECRET} }}\n", {"token": SECRET}),
        "nkey": Way(with_nkey, {"nkey": folder / "user.nk"}),
        "creds": Way(operator.config, {"creds": user.write(folder / "user.creds")}),
        "jwt": Way(operator.config, {"user_jwt": user.jwt, "user_seed": user.seed}),
        "tls": Way(tls_config(server), ca, "tls"),
        "mutual tls": Way(tls_config(server, clients=authority), mutual, "tls"),
        "tls first": Way(tls_config(server, first=True), {**ca, "tls_first": True}, "tls", tls_first=True),
    }


def barred_ways(folder: Path) -> dict[str, Way]:
    """Return ways that do not lead in, with what is said then."""
    authority, stranger, operator = Authority(folder), Authority(folder, "stranger"), Operator()
    server, ca = authority.issue("server"), {"tls_ca": authority.file}
    expired, elsewhere = authority.issue("expired", expired=True), authority.issue("elsewhere", host="example.com")
    foreign = Operator().user()
    seed = Key(nkeys.PREFIX_BYTE_USER)
    (folder / "wrong.nk").write_bytes(seed.seed)
    password = f"authorization {{ user: u, password: {SECRET} }}\n"
    with_nkey = f"authorization {{ users: [{{ nkey: {Key(nkeys.PREFIX_BYTE_USER).public} }}] }}\n"
    return {
        "wrong password": Way(password, {"user": "u", "password": "hunter2-" + SECRET}),
        "wrong nkey": Way(with_nkey, {"nkey": folder / "wrong.nk"}),
        "creds of another operator": Way(operator.config, {"creds": foreign.write(folder / "wrong.creds")}),
        "expired creds": Way(
            operator.config,
            {"creds": operator.user(expires=int(time.time()) - 10).write(folder / "expired.creds")},
            says=f"{AUTHORIZATION}.*the JWT expires at 20",
        ),
        "unknown authority": Way(tls_config(server), {"tls_ca": stranger.file}, "tls", "(?i)certificate"),
        "expired certificate": Way(tls_config(expired), ca, "tls", "(?i)certificate.*expired"),
        "another host's certificate": Way(tls_config(elsewhere), ca, "tls", "(?i)certificate"),
        "no client certificate": Way(tls_config(server, clients=authority), ca, "tls", "(?i)certificate"),
        "plain server": Way("", {**ca, "user": "u", "password": SECRET}, "tls", "TLS was asked for"),
    }


async def fires(way: Way, url: str) -> None:
    """Show that a sidecar that goes this way fires."""
    settings = way.to(url)
    async with started_sidecar(settings) as running:
        connection = await Dialer(settings).dial()
        try:
            await fire_one(Account(connection, JetStreamApi(connection)), running)
        finally:
            await connection.close()


async def fire_one(account: Account, running: Running, name: str = "S") -> None:
    """Create a stream, and see a schedule fire in it."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        await running.sidecar.serving.wait()
    await account.create(name)
    await running.ready(name)
    await FlaggedStream(account, name).canary(0.1)


async def test_each_way_in_leads_to_fires(start_server: StartServer, tmp_path: Path) -> None:
    ways = ways_in(tmp_path)
    servers = await asyncio.gather(
        *(start_server(V2_11, config=way.config, tls_first=way.tls_first) for way in ways.values())
    )
    with capture_logs() as lines:
        came = await asyncio.gather(
            *(fires(way, server.url) for way, server in zip(ways.values(), servers, strict=True)),
            return_exceptions=True,
        )
    assert {name: error for name, error in zip(ways, came, strict=True) if error is not None} == {}
    assert SECRET not in str(lines)


async def is_barred(way: Way, url: str) -> str:
    """Show that this way does not lead in and is tried on; returns what was said."""
    async with started_sidecar(way.to(url)) as running:
        told = await running.told_of("connect_failed")
        assert not running.sidecar.serving.is_set()
        return str(told["reason"])


async def test_each_barred_way_is_told_in_words_without_a_secret(start_server: StartServer, tmp_path: Path) -> None:
    ways = barred_ways(tmp_path)
    servers = await asyncio.gather(*(start_server(V2_11, config=way.config) for way in ways.values()))
    with capture_logs() as lines:
        said = await asyncio.gather(
            *(is_barred(way, server.url) for way, server in zip(ways.values(), servers, strict=True)),
            return_exceptions=True,
        )
    wrong = {n: s for (n, way), s in zip(ways.items(), said, strict=True) if not re.search(way.says, str(s))}
    assert wrong == {}
    assert SECRET not in str(lines)
    assert "SUA" not in str(lines)


async def test_rotated_credentials_are_used_when_the_old_ones_expire(start_server: StartServer, tmp_path: Path) -> None:
    operator = Operator()
    server = await start_server(V2_11, config=operator.config)
    creds = operator.user(expires=int(time.time()) + 3).write(tmp_path / "user.creds")
    settings = ConnectionSettings(servers=(server.url,), creds=creds)
    owner = operator.user()
    async with (
        started_sidecar(settings) as running,
        account_on(server.url, user_jwt=owner.jwt, user_seed=owner.seed) as account,
    ):
        await fire_one(account, running, "A")
        await running.told_of("connect_failed")  # the old ones have expired, and the file is as it was
        operator.user().write(creds)
        await running.ready("A", times=2)
        await fire_one(account, running, "B")


async def hub_and_leaf(start_server: StartServer) -> tuple[EmbeddedServer, EmbeddedServer]:
    """Start a hub, and a leaf node with a JetStream of its own."""
    port = free_port()
    hub = await start_server(V2_11, config=f'jetstream {{ domain: hub }}\nleafnodes {{ listen: "127.0.0.1:{port}" }}\n')
    remote = f'leafnodes {{ remotes: [{{ url: "nats://127.0.0.1:{port}" }}] }}\n'
    leaf = await start_server(V2_11, config=f"jetstream {{ domain: leaf }}\n{remote}")
    return hub, leaf


async def test_at_a_leaf_node_two_sidecars_serve_the_hub_and_the_leaf(start_server: StartServer) -> None:
    hub, leaf = await hub_and_leaf(start_server)
    async with account_on(hub.url) as at_hub, account_on(leaf.url) as at_leaf:
        await at_hub.create("FAR", **FLAG)
        await at_leaf.create("NEAR", **FLAG)
        hub_from_there = SidecarSettings(connection=ConnectionSettings(servers=(leaf.url,), js_domain="hub"))
        async with sidecar_with(hub_from_there) as far, sidecar_on(leaf.url) as near:
            await far.ready("FAR")
            await near.ready("NEAR")
            for account, name, running in ((at_hub, "FAR", far), (at_leaf, "NEAR", near)):
                await FlaggedStream(account, name).schedule("at", f"@at {in_seconds(0.3)}")
                assert len(await account.wait_for(name, f"{name}.out")) == 1
                await running.reported(name, FireStored)
                kept = {m.subject.split(".", 2)[2] for m in await account.messages("KV_nats_scheduler", "$KV.>")}
                assert f"stream.{name}" in kept
                assert {key for key in kept if key.startswith("owner.")} == {f"owner.emulated.{name}"}
                assert len([key for key in kept if key.startswith("instance.")]) == 1


async def test_a_connection_that_ends_with_the_sidecar_leaves_nothing_in_flight(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        await account.create("ORDERS", **FLAG)
        await running.ready("ORDERS")
        assert running.sidecar.connection is not None
        running.sidecar.connection.end("the test ends it")
        running.sidecar.stop()
    assert running.told("connection_lost") == [{"reason": "the test ends it"}]
