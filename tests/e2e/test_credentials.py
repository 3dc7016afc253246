"""Files of credentials that are missing, empty or damaged are named in words, and without what they hold.

They are read at each connect; that a sidecar waits for other ones is in `test_connecting`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nkeys
import pytest

from nats_scheduler.control.errors import NotConnectedError
from nats_scheduler.jetstream.credentials import check_credentials
from nats_scheduler.settings.connection_settings import ConnectionSettings
from tests.harness.certificates import Authority
from tests.harness.jwts import Key, Operator

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
    """Settings with one kind of credentials."""

    given: dict[str, Any]
    file: Path
    """The one that is damaged."""

    def __post_init__(self) -> None:
        self.sound = self.file.read_bytes()

    @property
    def settings(self) -> ConnectionSettings:
        """The settings."""
        return ConnectionSettings.model_validate({"servers": ("tls://127.0.0.1:4222",), **self.given})

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
            check_credentials(self.settings)
        return str(told.value)


def login(kind: str, folder: Path) -> Login:
    """Return a login whose file of `kind` can be damaged."""
    folder.mkdir(exist_ok=True)
    if kind == "nkey":
        file = folder / "user.nk"
        file.write_bytes(Key(nkeys.PREFIX_BYTE_USER).seed)
        return Login({"nkey": file}, file)
    if kind == "creds":
        file = Operator().user().write(folder / "user.creds")
        return Login({"creds": file}, file)
    authority = Authority(folder)
    client = authority.issue("client", host="sidecar")
    settings = {"tls_ca": authority.file, "tls_cert": client.cert, "tls_key": client.key}
    return Login(settings, Path(settings[kind]))


def test_a_file_that_cannot_be_used_is_named_without_its_content(tmp_path: Path) -> None:
    for kind in KINDS:
        one = login(kind, tmp_path / kind)
        check_credentials(one.settings)
        for fault in FAULTS:
            one.damage(fault)
            with pytest.raises(NotConnectedError) as told:
                check_credentials(one.settings)
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
        check_credentials(login_.settings)
