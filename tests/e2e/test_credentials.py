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

from nats_scheduler.control.errors import NotConnectedError
from nats_scheduler.jetstream.credentials import check_credentials
from nats_scheduler.settings.connection_settings import ConnectionSettings
from tests.conftest import StartServer
from tests.harness.account import Running, started_sidecar
from tests.harness.certificates import Authority, tls_config
from tests.harness.jwts import Key, Operator
from tests.harness.servers import V2_11
from tests.harness.waiting import PATIENCE_SECONDS, eventually

KINDS = ("nkey", "creds", "tls_cert", "tls_key", "tls_ca")
FAULTS: dict[str, Callable[[Path], object]] = {
    "missing": lambda file: None,
    "empty": lambda file: file.write_bytes(b""),
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

    def __post_init__(self) -> None:
        self.sound = self.file.read_bytes()

    def to(self, url: str = "nats://127.0.0.1:4222") -> ConnectionSettings:
        """Return the settings for a server with this URL."""
        servers = (url.replace("nats://", f"{self.scheme}://"),)
        return ConnectionSettings.model_validate({"servers": servers, **self.settings})

    def damage(self, fault: str) -> None:
        """Put something else where the file was."""
        self.file.unlink()
        FAULTS[fault](self.file)

    def put(self, content: bytes | None = None) -> None:
        """Put a file there, the sound one if no other is given, whatever is there."""
        if self.file.is_dir():
            self.file.rmdir()
        self.file.unlink(missing_ok=True)
        self.file.write_bytes(self.sound if content is None else content)

    def fault(self, content: bytes) -> str:
        """Return what is said of a file with this content."""
        self.put(content)
        with pytest.raises(NotConnectedError) as told:
            check_credentials(self.to())
        return str(told.value)


def login(kind: str, folder: Path) -> Login:
    """Return a login whose file of `kind` can be damaged."""
    folder.mkdir(exist_ok=True)
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
    stranger = Authority(folder, "stranger").file.read_bytes() if kind == "tls_ca" else None
    return Login(config, settings, Path(settings[kind]), stranger, "tls")


# -- at start --------------------------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_used_is_named_without_its_content(tmp_path: Path) -> None:
    for kind in KINDS:
        one = login(kind, tmp_path / kind)
        check_credentials(one.to())
        for fault in FAULTS:
            one.damage(fault)
            with pytest.raises(NotConnectedError) as told:
                check_credentials(one.to())
            said = str(told.value)
            assert (str(one.file) in said, kind in said, "vault" in said) == (True, True, False), (kind, fault, said)
            one.put()


def test_what_is_wrong_with_a_seed_or_a_token_is_said_without_it(tmp_path: Path) -> None:
    """Decorated seeds and the lines of Windows are understood."""
    one, two = login("nkey", tmp_path / "nkey"), login("creds", tmp_path / "creds")
    seed = one.sound
    assert "damaged" in one.fault(seed[:20] + (b"B" if seed[20:21] == b"A" else b"A") + seed[21:])
    assert "SU" in one.fault(Key(nkeys.PREFIX_BYTE_ACCOUNT).seed)
    other = Key(nkeys.PREFIX_BYTE_USER).seed
    lines = [other if line.startswith(b"SU") else line for line in two.sound.splitlines()]
    assert "not that of the JWT" in two.fault(b"\n".join(lines))
    for jwt, variable in (("garbage", "garbage"), ("a.b.c", "SU"), ("", "")):
        settings = ConnectionSettings.model_validate({"user_jwt": jwt, "user_seed": variable})
        with pytest.raises(NotConnectedError, match="user_jwt and user_seed") as told:
            check_credentials(settings)
        assert "garbage" not in str(told.value)
    one.put(b"-----BEGIN USER NKEY SEED-----\r\n" + seed + b"\r\n------END USER NKEY SEED------\r\n")
    two.put(two.sound.replace(b"\n", b"\r\n"))
    for login_ in (one, two):
        check_credentials(login_.to())


# -- while it runs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["creds", "tls_ca"])
async def test_a_file_that_was_damaged_meanwhile_is_told_and_waited_for(
    start_server: StartServer, tmp_path: Path, kind: str
) -> None:
    one = login(kind, tmp_path)
    server = await start_server(V2_11, config=one.config)
    async with started_sidecar(one.to(server.url)) as running:
        await serving(running)
        for fault in ("missing", "garbage"):
            one.damage(fault)
            reason = await shut_out(running)
            assert str(one.file) in reason, (fault, reason)
            one.put()
            await serving(running)
        if one.refused is not None:
            one.put(one.refused)
            reason = await shut_out(running)
            assert reason
            assert kind != "creds" or "the JWT expires at 20" in reason
            one.put()
            await serving(running)


async def serving(running: Running) -> None:
    """Wait until the account is served."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        await running.sidecar.serving.wait()


async def shut_out(running: Running) -> str:
    """End the connection, and return why there is no other one."""
    running.problems.clear()
    assert running.sidecar.connection is not None
    running.sidecar.connection.end("ended by the test")
    told = await eventually(lambda: running.told("connect_failed"), describe=lambda: str(running.problems))
    return str(told[-1]["reason"])
