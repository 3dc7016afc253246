"""An operator with an account and users, as `nsc` would make them: keys, signed JWTs, creds files.

Its rule: everything is made here and now; nothing is read from the machine.
"""

import base64
import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nkeys

UNLIMITED = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1) | {"wildcards": True}
JETSTREAM = UNLIMITED | dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)


class Key:
    """One key pair: its public half names it, its seed signs."""

    def __init__(self, kind: int) -> None:
        self.seed = nkeys.encode_seed(os.urandom(32), kind)
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public = self._pair.public_key.decode()

    def claims(self, of: "Key", name: str, nats: dict[str, Any], expires: int | None = None) -> str:
        """Return a JWT that says `nats` of a key, signed by this one; `expires` in seconds since the Unix epoch."""
        said: dict[str, Any] = {"iat": int(time.time()), "iss": self.public, "name": name, "sub": of.public}
        said |= {"exp": expires} if expires is not None else {}
        said["nats"] = {**nats, "version": 2}
        said["jti"] = base64.b32encode(hashlib.sha256(json.dumps(said).encode()).digest()).decode().rstrip("=")
        signed = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part(said)}"
        return f"{signed}.{_base64(self._pair.sign(signed.encode()))}"


@dataclass(frozen=True, slots=True)
class User:
    """A user's JWT and seed."""

    jwt: str
    seed: str

    def write(self, file: Path) -> Path:
        """Write a creds file, in one step, as a tool that rotates it does."""
        text = (
            f"-----BEGIN NATS USER JWT-----\n{self.jwt}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{self.seed}\n------END USER NKEY SEED------\n"
        )
        fresh = file.with_suffix(".new")
        fresh.write_text(text, "utf-8")
        fresh.replace(file)
        return file


class Operator:
    """An operator with a system account and one account, which may use JetStream."""

    def __init__(self) -> None:
        self._operator, self._system, self._account = (
            Key(kind) for kind in (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_ACCOUNT)
        )

    @property
    def config(self) -> str:
        """The server's configuration: who may say what an account is, and the two accounts."""
        own = {"type": "operator", "system_account": self._system.public}
        accounts = {
            self._system.public: self._named(self._system, "SYS", UNLIMITED),
            self._account.public: self._named(self._account, "SHOP", JETSTREAM),
        }
        preload = "\n".join(f"  {key}: {token}" for key, token in accounts.items())
        operator = self._operator.claims(self._operator, "OP", own)
        return f"operator: {operator}\nresolver: MEMORY\nresolver_preload: {{\n{preload}\n}}\n"

    def user(self, *, expires: int | None = None) -> User:
        """Return a new user of the account."""
        key = Key(nkeys.PREFIX_BYTE_USER)
        may = {"type": "user", "subs": -1, "data": -1, "payload": -1, "pub": {}, "sub": {}}
        return User(self._account.claims(key, "sidecar", may, expires), key.seed.decode())

    def _named(self, account: Key, name: str, limits: dict[str, Any]) -> str:
        return self._operator.claims(account, name, {"type": "account", "limits": limits})


def _part(said: dict[str, Any]) -> str:
    return _base64(json.dumps(said, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
