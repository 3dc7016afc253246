"""Files of credentials that are missing, empty, damaged or refused: named in words, and never the end of a sidecar.

At start `run` ends with 2 over a file that holds nothing usable; while it runs a secret may be rotated under it, so
that this is reported and waited for.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nkeys
import pytest

from nats_scheduler.jetstream.dial import check_credentials
from nats_scheduler.jetstream.errors import CredentialsError
from nats_scheduler.settings.connection import ConnectionSettings
from tests.conftest import StartServer
from tests.harness.account import WAIT_SECONDS, Running, started_sidecar
from tests.harness.certificates import Authority, tls_config
from tests.harness.jwts import Key, Operator
from tests.harness.processes import sidecar
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

KINDS = ("nkey", "creds", "tls_cert", "tls_key", "tls_ca")

FAULTS: dict[str, Callable[[Path], object]] = {
    "missing": lambda file: None,
    "empty": lambda file: file.write_bytes(b""),
    "blank": lambda file: file.write_bytes(b" \n\n"),
    "a folder": lambda file: file.mkdir(),
    "not readable": lambda file: file.symlink_to(file.name),  # permissions mean nothing to root; a loop does
    "garbage": lambda file: file.write_bytes(bytes(range(256)) * 4),
    "text": lambda file: file.write_bytes(b"it has moved to the vault\n"),
    "larger than any": lambda file: file.write_bytes(b"A" * 2_000_000),
}


@dataclass
class Login:
    """A server that asks for one kind of credentials, and the settings that it accepts."""

    config: str
    settings: dict[str, Any]
    file: Path
    """The one that is damaged."""
    refused: bytes | None
    """The same kind of file, sound, whom the server does not accept; None where that is not for the server."""
    scheme: str = "nats"

    def to(self, url: str) -> ConnectionSettings:
        """Return the settings for a server with this URL."""
        return ConnectionSettings.model_validate(
            {"servers": (url.replace("nats://", f"{self.scheme}://"),), **self.settings}
        )


def login(kind: str, folder: Path) -> Login:
    """Return a login whose file of `kind` can be damaged."""
    if kind == "nkey":
        key, file = Key(nkeys.PREFIX_BYTE_USER), folder / "user.nk"
        file.write_bytes(key.seed)
        other = Key(nkeys.PREFIX_BYTE_USER).seed
        return Login(f"authorization {{ users: [{{ nkey: {key.public} }}] }}\n", {"nkey": file}, file, other)
    if kind == "creds":
        operator, file = Operator(), folder / "user.creds"
        operator.user().write(file)
        expired = operator.user(expires=int(time.time()) - 10).write(folder / "expired.creds").read_bytes()
        return Login(operator.config, {"creds": file}, file, expired)
    authority = Authority(folder)
    server, client = authority.issue("server"), authority.issue("client", host="sidecar")
    settings = {"tls_ca": authority.file, "tls_cert": client.cert, "tls_key": client.key}
    config = tls_config(server, clients=authority)
    other = Authority(folder, "stranger").file.read_bytes() if kind == "tls_ca" else None
    return Login(config, settings, Path(settings[kind]), other, "tls")


def damage(file: Path, fault: str) -> None:
    """Put something else where a file was."""
    file.unlink()
    FAULTS[fault](file)


def mend(file: Path, sound: bytes) -> None:
    """Put the file back, whatever is there."""
    if file.is_dir():
        file.rmdir()
    file.unlink(missing_ok=True)
    file.write_bytes(sound)


# -- at start --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_cannot_be_used_is_named_and_nothing_of_it_told(kind: str, fault: str, tmp_path: Path) -> None:
    one = login(kind, tmp_path)
    check_credentials(one.to("nats://127.0.0.1:4222"))
    damage(one.file, fault)
    with pytest.raises(CredentialsError) as told:
        check_credentials(one.to("nats://127.0.0.1:4222"))
    assert str(one.file) in str(told.value)
    assert kind in str(told.value)
    assert "vault" not in str(told.value)


@pytest.mark.parametrize("kind", ["nkey", "creds"])
def test_a_file_that_was_cut_short_anywhere_is_named(kind: str, tmp_path: Path) -> None:
    one = login(kind, tmp_path)
    sound = one.file.read_bytes()
    seed_ends = sound.rindex(b"\n-") if kind == "creds" else len(sound)
    for end in range(0, seed_ends, 7):
        one.file.write_bytes(sound[:end])
        with pytest.raises(CredentialsError) as told:
            check_credentials(one.to("nats://127.0.0.1:4222"))
        assert str(one.file) in str(told.value)


def test_a_seed_with_a_wrong_letter_and_one_of_somebody_else_are_named(tmp_path: Path) -> None:
    one = login("nkey", tmp_path)
    seed = one.file.read_bytes()
    one.file.write_bytes(seed[:20] + (b"B" if seed[20:21] == b"A" else b"A") + seed[21:])
    with pytest.raises(CredentialsError, match="damaged"):
        check_credentials(one.to("nats://127.0.0.1:4222"))
    one.file.write_bytes(Key(nkeys.PREFIX_BYTE_ACCOUNT).seed)
    with pytest.raises(CredentialsError, match="SU"):
        check_credentials(one.to("nats://127.0.0.1:4222"))
    two = login("creds", tmp_path)
    other = Key(nkeys.PREFIX_BYTE_USER).seed.decode()
    text = two.file.read_text().splitlines()
    two.file.write_text("\n".join(other if line.startswith("SU") else line for line in text))
    with pytest.raises(CredentialsError, match="not that of the JWT"):
        check_credentials(two.to("nats://127.0.0.1:4222"))


@pytest.mark.parametrize(("jwt", "seed"), [("garbage", "garbage"), ("a.b.c", "SU"), ("", "")])
def test_a_token_or_seed_of_a_variable_that_is_none_is_told_without_it(jwt: str, seed: str) -> None:
    settings = ConnectionSettings.model_validate({"user_jwt": jwt, "user_seed": seed})
    with pytest.raises(CredentialsError, match="user_jwt and user_seed") as told:
        check_credentials(settings)
    assert "garbage" not in str(told.value)


def test_a_decorated_seed_and_windows_lines_are_understood(tmp_path: Path) -> None:
    one = login("nkey", tmp_path)
    seed = one.file.read_bytes()
    one.file.write_bytes(b"-----BEGIN USER NKEY SEED-----\r\n" + seed + b"\r\n------END USER NKEY SEED------\r\n")
    check_credentials(one.to("nats://127.0.0.1:4222"))
    two = login("creds", tmp_path)
    two.file.write_bytes(two.file.read_bytes().replace(b"\n", b"\r\n"))
    check_credentials(two.to("nats://127.0.0.1:4222"))


async def test_run_ends_with_2_over_a_file_that_cannot_be_used_and_names_it(tmp_path: Path) -> None:
    file = tmp_path / "user.nk"
    file.write_text("garbage")
    with sidecar("run", "-s", "nats://127.0.0.1:1", "--nkey", str(file), folder=tmp_path) as process:
        assert await process.wait_for_exit() == 2
        assert "user.nk holds no seed" in process.stderr


# -- while it runs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_file_that_was_damaged_meanwhile_is_told_and_waited_for(
    start_server: StartServer, tmp_path: Path, kind: str
) -> None:
    one = login(kind, tmp_path)
    sound = one.file.read_bytes()
    server = await start_server(V2_11, config=one.config)
    async with started_sidecar(one.to(server.url)) as running:
        await serving(running)
        for fault in FAULTS:
            damage(one.file, fault)
            reason = await shut_out(running)
            assert str(one.file) in reason, (fault, reason)
            mend(one.file, sound)
            await serving(running)
        if one.refused is not None:
            mend(one.file, one.refused)
            assert await shut_out(running)
            mend(one.file, sound)
            await serving(running)


async def test_an_expired_jwt_is_told_with_its_time(start_server: StartServer, tmp_path: Path) -> None:
    one = login("creds", tmp_path)
    server = await start_server(V2_11, config=one.config)
    assert one.refused is not None
    one.file.write_bytes(one.refused)
    async with started_sidecar(one.to(server.url)) as running:
        told = await running.told_of("connect_failed")
        assert "the JWT expires at 20" in told["reason"]


async def serving(running: Running) -> None:
    """Wait until the account is served."""
    async with asyncio.timeout(WAIT_SECONDS):
        await running.sidecar.serving.wait()


async def shut_out(running: Running) -> str:
    """End the connection, and return why there is no other one."""
    running.problems.clear()
    assert running.sidecar.connection is not None
    running.sidecar.connection.end("ended by the test")
    told = await eventually(
        lambda: running.told("connect_failed"), within_seconds=WAIT_SECONDS, describe=lambda: str(running.problems)
    )
    return str(told[-1]["reason"])
