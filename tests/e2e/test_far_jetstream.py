"""A sidecar that is not connected to the JetStream that it serves: across a leaf node, or from another account."""

from nats_scheduler.engine.events import FireStored
from nats_scheduler.jetstream.streams import METADATA_FLAG
from nats_scheduler.runtime.embedded import EmbeddedServer, free_port
from nats_scheduler.settings.connection import ConnectionSettings
from nats_scheduler.settings.sidecar import SidecarSettings
from tests.conftest import StartServer
from tests.harness.account import WAIT_SECONDS, Running, account_on, in_seconds, sidecar_on, sidecar_with
from tests.harness.flagged import FlaggedStream
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

MARKED = {"metadata": {METADATA_FLAG: "true"}}


async def hub_and_leaf(start_server: StartServer) -> tuple[EmbeddedServer, EmbeddedServer]:
    """Start a hub, and a leaf node with a JetStream of its own."""
    port = free_port()
    hub = await start_server(V2_11, config=f'jetstream {{ domain: hub }}\nleafnodes {{ listen: "127.0.0.1:{port}" }}\n')
    remote = f'leafnodes {{ remotes: [{{ url: "nats://127.0.0.1:{port}" }}] }}\n'
    leaf = await start_server(V2_11, config=f"jetstream {{ domain: leaf }}\n{remote}")
    return hub, leaf


def across(url: str) -> SidecarSettings:
    """Return the settings of a sidecar that serves the hub from elsewhere."""
    return SidecarSettings(connection=ConnectionSettings(servers=(url,), js_domain="hub"))


async def expect_fires(stream: FlaggedStream, running: Running) -> None:
    """Show that a schedule of each kind fires, and by whom."""
    await stream.schedule("at", f"@at {in_seconds(0.3)}", target="once")
    await stream.schedule("every", "@every 1s", target="ticks")
    assert len(await stream.wait_for("once")) == 1
    await stream.wait_for("ticks", 2)
    await eventually(
        lambda: len(running.of(stream.name, FireStored)) >= 3, within_seconds=WAIT_SECONDS, describe="they are ours"
    )


async def test_a_sidecar_at_a_leaf_node_serves_the_domain_of_the_hub_beside_one_that_serves_the_leaf(
    start_server: StartServer,
) -> None:
    hub, leaf = await hub_and_leaf(start_server)
    async with account_on(hub.url) as at_hub, account_on(leaf.url) as at_leaf:
        await at_hub.create("FAR", **MARKED)
        await at_leaf.create("NEAR", **MARKED)
        async with sidecar_with(across(leaf.url)) as far, sidecar_on(leaf.url) as near:
            await far.ready("FAR")
            await near.ready("NEAR")
            await expect_fires(FlaggedStream(at_hub, "FAR"), far)
            await expect_fires(FlaggedStream(at_leaf, "NEAR"), near)
            for account, name in ((at_hub, "FAR"), (at_leaf, "NEAR")):
                kept = {m.subject.split(".", 2)[2] for m in await account.messages("KV_nats_scheduler", "$KV.>")}
                assert f"stream.{name}" in kept
                assert {key for key in kept if key.startswith("lease.")} == {f"lease.emulated.{name}"}
                assert len([key for key in kept if key.startswith("instance.")]) == 1


EXPORTED = ("$KV.nats_scheduler.>", "FAR.>")
"""The subjects on which the sidecar publishes besides requests to JetStream: of its bucket, and of its fires."""


def two_accounts() -> str:
    """Write the configuration of a server where one account has JetStream, and another imports it."""
    exports = ", ".join(f'{{ service: "{subject}" }}' for subject in EXPORTED)
    imports = ", ".join(f'{{ service: {{ account: OWNER, subject: "{subject}" }} }}' for subject in EXPORTED)
    api = '{ service: { account: OWNER, subject: "$JS.API.>" }, to: "JS.acme.>" }'
    return f"""accounts {{
        OWNER {{
            jetstream: enabled
            users: [{{ user: owner, password: p }}]
            exports: [{{ service: "$JS.API.>", response: stream }}, {exports}]
        }}
        GUEST {{ users: [{{ user: guest, password: p }}], imports: [{api}, {imports}] }}
    }}
    """


async def test_a_sidecar_serves_a_jetstream_that_its_account_imports_under_a_prefix(start_server: StartServer) -> None:
    server = await start_server(V2_11, config=two_accounts())
    owner, guest = (server.url.replace("nats://", f"nats://{user}:p@") for user in ("owner", "guest"))
    settings = SidecarSettings(connection=ConnectionSettings(servers=(guest,), js_api_prefix="JS.acme"))
    async with account_on(owner) as account:
        await account.create("FAR", **MARKED)
        async with sidecar_with(settings) as running:
            await running.ready("FAR")
            await expect_fires(FlaggedStream(account, "FAR"), running)
