"""The machine on which a page is followed: what its scene says, on loopback, in a folder of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from nats_scheduler.runtime.embedded import free_port
from tests.harness.account import Account, account_on, sidecar_on
from tests.harness.flagged import FLAGGED
from tests.harness.processes import clean_environment, sidecar
from tests.harness.upgrades import machine_in
from tests.harness.waiting import eventually
from tests.house.coming_from import STREAM_FILE
from tests.house.sources import ROOT
from tests.site.scenes import Scene

BUCKET = "KV_nats_scheduler"
KEYS = "$KV.nats_scheduler"


@dataclass(frozen=True)
class Machine:
    """Where a page is followed."""

    folder: Path
    url: str
    metrics_port: int
    environment: Mapping[str, str]

    @property
    def port(self) -> int:
        """Return the port of the server."""
        return int(self.url.rpartition(":")[2])

    async def serves(self, stream: str) -> None:
        """Wait until a sidecar serves a stream, and all commands can see it."""
        async with account_on(self.url) as account:
            await is_served(stream, account)


async def is_served(stream: str, account: Account) -> None:
    """Wait until a heartbeat names a stream, and it has an owner: that is what commands read."""

    async def is_known() -> bool:
        heartbeats = await account.messages(BUCKET, f"{KEYS}.instance.*")
        owner = await account.api.message(BUCKET, last_by_subj=f"{KEYS}.owner.emulated.{stream}")
        return owner is not None and any(stream.encode() in (one.body or b"") for one in heartbeats)

    await eventually(is_known, describe=f"a sidecar serves {stream}")


@asynccontextmanager
async def machine_for(scene: Scene, folder: Path) -> AsyncIterator[Machine]:
    """Start what a scene says, and end it."""
    work = folder / "work"
    for name, text in {"orders.json": STREAM_FILE, **scene.files}.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    (work / "deploy").symlink_to(ROOT / "deploy")
    metrics = free_port()
    async with AsyncExitStack() as stack:
        url = f"nats://127.0.0.1:{free_port()}"
        if scene.version is not None:
            url = await _serve(scene, folder, metrics, stack)
        home = clean_environment(work / "home")
        known = {"NATS_URL": url, "NATS_SCHEDULER_WEB_PORT": "0", "NO_COLOR": "1", "COLUMNS": "200"}
        known["PYTHONPATH"] = str(ROOT)  # the program of this checkout
        yield Machine(work, url, metrics, {**home, **known})


async def _serve(scene: Scene, folder: Path, metrics: int, stack: AsyncExitStack) -> str:
    """Start the server and the sidecar, and store what the scene has."""
    server = await stack.enter_async_context(machine_in(folder / "server"))
    assert scene.version is not None
    url = await server.install(scene.before or scene.version)
    account = await stack.enter_async_context(account_on(url)) if not scene.before else None
    if account is None:
        async with account_on(url) as first:
            await _store(scene, first)
        await server.install(scene.version)
    else:
        await _store(scene, account)
    if not scene.has_sidecar:
        return url
    if scene.serves_metrics:
        words = ["run", "--server", url, "--metrics-port", str(metrics)]
        words += [f"--{name.replace('_', '-')}={value}" for name, value in scene.settings.items()]
        process = stack.enter_context(sidecar(*words, folder=folder / "sidecar"))
        await process.wait_for_line("stream_served" if scene.streams else "ready")
        return url
    running = await stack.enter_async_context(sidecar_on(url, **scene.settings))
    if account is not None:
        for stream in scene.streams:
            if stream["allow_msg_schedules"]:
                await running.ready(stream["name"])
                await is_served(stream["name"], account)
    return url


async def _store(scene: Scene, account: Account) -> None:
    """Create the streams of the scene, publish its schedules, and add its consumer."""
    for config in scene.streams:
        known = {key: value for key, value in config.items() if key != "allow_msg_schedules"}
        flag = {"metadata": FLAGGED} if config["allow_msg_schedules"] else {}
        asked_for = {**known, **flag} if scene.has_sidecar else config
        await account.api.call(f"STREAM.CREATE.{config['name']}", asked_for)
    for subject, headers, body in scene.schedules:
        await account.publish(subject, headers, body.encode())
    if scene.consumer:
        wanted = {"durable_name": scene.consumer, "filter_subject": "orders.due", "ack_policy": "explicit"}
        request = {"stream_name": "ORDERS", "config": wanted}
        await account.api.call(f"CONSUMER.DURABLE.CREATE.ORDERS.{scene.consumer}", request)
