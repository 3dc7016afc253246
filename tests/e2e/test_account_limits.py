"""Accounts in which every stream needs a size, or that have no files: the sidecar starts, and says so once."""

from typing import Any

import pytest

from nats_scheduler.control.errors import RefusedError
from nats_scheduler.jetstream.own_streams import REQUIRED_BYTES
from nats_scheduler.jetstream.registry import BucketLimits, Registry
from nats_scheduler.message.findings import Code
from nats_scheduler.settings.connection_settings import ConnectionSettings
from tests.conftest import StartServer
from tests.doctor.examined import codes_on, findings_on, of
from tests.harness.account import Account, account_on, sidecar_on, started_sidecar
from tests.harness.flagged import FlaggedStream
from tests.harness.log_lines import capture_logs
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

USERS = {
    "memory": "max_mem: 100MB, max_file: 0",
    "sized": "max_mem: 0, max_file: 1GB, max_bytes_required: true",
    "small": "max_mem: 0, max_file: 10MB, max_bytes_required: true",
    "full": "max_mem: 100MB, max_file: 1MB",
}
ACCOUNTS = "\n".join(
    f"{name.upper()} {{ jetstream: {{ {limits} }}, users: [{{ user: {name}, password: p }}] }}"
    for name, limits in USERS.items()
)
CREATED = {
    "memory": ("memory", -1),
    "sized": ("file", REQUIRED_BYTES),
}
OWN = ("KV_nats_scheduler", "nats_scheduler_failures")


def url_of(url: str, user: str) -> str:
    return url.replace("nats://", f"nats://{user}:p@")


@pytest.fixture
async def url(start_server: StartServer) -> str:
    return (await start_server(V2_11, config=f"accounts {{ {ACCOUNTS} }}")).url


async def fires(account: Account, storage: str) -> None:
    """Have a stream of this storage with a size, and wait for fires in it."""
    await account.create("S", storage=storage, max_bytes=1024 * 1024)
    stream = FlaggedStream(account, "S")
    await stream.schedule("s", "@every 1s")
    await stream.wait_for("out", 2)


async def config_of(account: Account, stream: str) -> dict[str, Any]:
    async def is_there() -> dict[str, Any] | None:
        info = await account.api.stream(stream)
        return None if info is None else dict(info["config"])

    return await eventually(is_there, describe=f"stream {stream}")


@pytest.mark.parametrize("user", CREATED)
async def test_it_starts_in_memory_or_with_a_size_if_nothing_else_fits(url: str, user: str) -> None:
    storage, size = CREATED[user]
    with capture_logs() as lines:
        async with account_on(url_of(url, user)) as account, sidecar_on(url_of(url, user)):
            await fires(account, storage)
            for name in OWN:
                assert (await config_of(account, name))["storage"] == storage
            assert (await config_of(account, OWN[0]))["max_bytes"] == size
        async with sidecar_on(url_of(url, user)) as again:
            await again.ready("S")
    said = [line for line in lines if line["event"] == "bucket_adapted"]
    assert [(line["storage"], line["max_bytes"]) for line in said] == [(storage, size)]


async def test_what_does_not_fit_is_refused_with_the_setting_that_helps(url: str) -> None:
    with capture_logs() as lines:
        async with started_sidecar(ConnectionSettings(servers=(url_of(url, "small"),))):
            await eventually(lambda: any(line["event"] == "jetstream_unavailable" for line in lines))
    reason = next(line["reason"] for line in lines if line["event"] == "jetstream_unavailable")
    assert "(server code 10047)" in reason
    assert f"file with max_bytes {REQUIRED_BYTES} does not fit into the account: set bucket_max_bytes to less" in reason
    sizes = {"bucket_max_bytes": 10 * 1024 * 1024 // 3, "failures_max_bytes": 10 * 1024 * 1024 // 3}  # as doctor says
    async with account_on(url_of(url, "small")) as account, sidecar_on(url_of(url, "small"), **sizes):
        await fires(account, "file")


async def filled(bucket: Registry) -> None:
    for number in range(100):
        await bucket.put(f"other.{number}", {"filling": "x" * 2_000})


async def test_the_doctor_finds_what_does_not_fit_and_what_is_full(url: str) -> None:
    for user in (*CREATED, "full"):
        assert not {Code.BUCKET_DOES_NOT_FIT, Code.BUCKET_FULL} & await codes_on(url_of(url, user)), user
    (found,) = of(await findings_on(url_of(url, "small")), Code.BUCKET_DOES_NOT_FIT)
    share = 10 * 1024 * 1024 // 3
    assert found.command == f"nats-scheduler run --bucket-max-bytes {share} --failures-max-bytes {share}"
    async with account_on(url_of(url, "full")) as account:
        limits = BucketLimits(max_bytes=64 * 1024)
        bucket = Registry(account.connection, account.api, "nats_scheduler", limits)
        await bucket.open()
        assert Code.BUCKET_FULL not in await codes_on(url_of(url, "full"))
        with pytest.raises(RefusedError, match="10077"):
            await filled(bucket)
        (found,) = of(await findings_on(url_of(url, "full")), Code.BUCKET_FULL)
    assert found.command == f"nats stream edit KV_nats_scheduler --max-bytes {128 * 1024}"
