"""Accounts in which every stream needs a size, or that have no files: the sidecar starts, and says so once."""

from pathlib import Path
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
from tests.harness.jwts import Operator
from tests.harness.log_lines import capture_logs
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import eventually

USERS = {
    "memory": "max_mem: 100MB, max_file: 0",
    "sized": "max_mem: 0, max_file: 1GB, max_bytes_required: true",
    "both": "max_mem: 100MB, max_file: 0, max_bytes_required: true",
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
    "both": ("memory", REQUIRED_BYTES),
}
OWN = ("KV_nats_scheduler", "nats_scheduler_failures")


def url_of(url: str, user: str) -> str:
    return url.replace("nats://", f"nats://{user}:p@")


@pytest.fixture(params=[V2_10, V2_11, V2_15])
async def url(request: pytest.FixtureRequest, start_server: StartServer) -> str:
    return (await start_server(request.param, config=f"accounts {{ {ACCOUNTS} }}")).url


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
async def test_the_sidecar_starts_in_memory_or_with_a_size_where_nothing_else_fits(url: str, user: str) -> None:
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


async def test_files_that_are_full_are_not_replaced_by_memory_and_the_settings_decide(url: str) -> None:
    async with account_on(url_of(url, "full")) as account:
        large = Registry(account.connection, account.api, "large", BucketLimits(max_bytes=2 * 1024 * 1024))
        with pytest.raises(RefusedError, match="bucket_storage"):
            await large.open()
        there = Registry(account.connection, account.api, "there", BucketLimits(64 * 1024, "memory"))
        assert await there.open()
        config = await config_of(account, "KV_there")
        assert (config["storage"], config["max_bytes"]) == ("memory", 64 * 1024)


async def filled(bucket: Registry) -> None:
    for number in range(100):
        await bucket.put(f"other.{number}", {"filling": "x" * 2_000})


async def test_a_full_bucket_still_takes_values_in_place_of_others(url: str) -> None:
    async with account_on(url_of(url, "full")) as account:
        bucket = Registry(account.connection, account.api, "b", BucketLimits(max_bytes=64 * 1024))
        await bucket.open()
        await bucket.put("owner.ORDERS", {"owner": "one"})
        with pytest.raises(RefusedError, match="10077"):
            await filled(bucket)
        for owner in ("two", "six"):
            await bucket.put("owner.ORDERS", {"owner": owner})
        assert (await bucket.get("owner.ORDERS")) == {"owner": "six"}


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


NO_FILES: dict[str, Any] = {
    "mem_storage": 10**8,
    "disk_storage": 0,
    "streams": -1,
    "consumer": -1,
    "max_bytes_required": True,
}


@pytest.mark.parametrize("version", [V2_11, V2_15])
@pytest.mark.parametrize("is_tiered", [False, True], ids=["one limit", "a tier"])
async def test_the_limits_of_an_account_of_an_operator_count_too(
    version: str, start_server: StartServer, tmp_path: Path, *, is_tiered: bool
) -> None:
    operator = Operator(jetstream=False, tiered_limits={"R1": NO_FILES}) if is_tiered else Operator(**NO_FILES)
    server = await start_server(version, config=operator.config)
    creds = operator.user().write(tmp_path / "user.creds")
    connection = ConnectionSettings(servers=(server.url,), creds=creds)
    with capture_logs() as lines:
        async with started_sidecar(connection) as running:
            await running.healthy()
    (said,) = [line for line in lines if line["event"] == "bucket_adapted"]
    assert (said["storage"], said["max_bytes"]) == ("memory", REQUIRED_BYTES)
