"""Streams that the sidecar and the commands create for themselves, made so that they fit into the account.

The rules:

- In a cluster a stream has three replicas; one if there is no room for three.
- Where it was to be in files, and the account has none, it is in memory, and the other way round.
- It has a size only if that was asked for, or if every stream of the account needs one: then `REQUIRED_BYTES`.
- What the operator has set stays; a refusal names the setting.

Cost: one request if the first attempt is taken, as nearly everywhere.
"""

from collections.abc import Mapping
from typing import Any

from nats_scheduler.control.errors import RefusedError
from nats_scheduler.jetstream.api import Config, JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.message.foreign_json import inner, integer

IN_USE = 10058
"""The server's code if another client created the stream at the same moment, with other settings."""

REPLICAS = 3
"""Replicas of these streams in a cluster."""

REPLICAS_REFUSED = frozenset({10005, 10074, 10120})
"""The server's codes if no three peers have room for it, if JetStream is not clustered, or if no tier has three."""

SIZE_REQUIRED = 10113
"""The server's code if every stream of the account needs a size."""

DOES_NOT_FIT = frozenset({10028, 10047, 10122})
"""The server's codes if the account has no room in memory, none in files, or allows no stream of this size."""

REQUIRED_BYTES = 16 * 1024 * 1024
"""The size of a bucket where every stream needs one: small, because the server reserves it in the account."""

OTHER_STORAGE = {"file": "memory", "memory": "file"}

ADAPTED = {
    "storage": "the account has no files: what is kept in memory is lost if all of its servers restart",
    "max_bytes": "every stream of the account needs a size: bucket_max_bytes sets another one",
}
"""Why a bucket is not as it would be elsewhere, by the field that differs."""


async def create_own(connection: Connection, api: JetStreamApi, config: Config, storage: str | None = None) -> Any:
    """Create a stream and return its information; None if another client was faster.

    `storage` is where it has to be; without one it is where `config` says, or else where the account has room.
    Raises `RefusedError`, which names the settings that may help.
    """
    asked = dict(config) if storage is None else {**config, "storage": storage}
    asked["num_replicas"] = REPLICAS if connection.server.cluster else 1
    while True:
        try:
            return await api.create_stream(asked)
        except RefusedError as error:
            if error.code == IN_USE:
                return None
            changes = await _changes(api, asked, error.code, may_move=storage is None)
            if not changes:
                raise _explained(error, asked) from None
            asked |= changes


async def _changes(api: JetStreamApi, asked: Config, code: int, *, may_move: bool) -> Config:
    """Return what to ask for instead; each change is made once at most."""
    if code in REPLICAS_REFUSED and asked["num_replicas"] > 1:
        return {"num_replicas": 1}
    if code == SIZE_REQUIRED and "max_bytes" not in asked:
        return {"max_bytes": REQUIRED_BYTES}
    if code in DOES_NOT_FIT and may_move:
        info, here, replicas = await api.info(), str(asked["storage"]), asked["num_replicas"]
        there = OTHER_STORAGE[here]
        if not room_of(info, here, replicas).total and room_of(info, there, replicas).total:
            return {"storage": there}
    return {}


def _explained(error: RefusedError, asked: Config) -> RefusedError:
    if error.code not in DOES_NOT_FIT:
        return error
    size = f"max_bytes {asked['max_bytes']}" if "max_bytes" in asked else "no max_bytes"
    setting = "failures_max_bytes" if asked.get("max_age") else "bucket_max_bytes"
    hint = f"{asked['storage']} with {size} does not fit into the account: set {setting} to less, or bucket_storage"
    return RefusedError(error.status, error.code, f"{error.description}: {hint}", error.request)


class Room:
    """The room that an account has in files or in memory, in bytes; a negative number stands for no limit."""

    def __init__(self, total: int, reserved: int, most: int, *, needs_size: bool) -> None:
        self.total = total
        self.free = total - reserved if total > 0 else total
        self.most = most
        """The largest size of a stream; 0 or less for no limit."""
        self.needs_size = needs_size

    @property
    def most_left(self) -> int:
        """The largest size for which there is room; less than 0 if there is no limit."""
        limits = [one for one in (self.free, self.most if self.most > 0 else -1) if one >= 0]
        return min(limits, default=-1)

    def takes(self, size: int) -> bool:
        """Return whether a stream of a size, 0 for none, fits."""
        return self.total != 0 and (self.free < 0 or size <= self.free) and (self.most <= 0 or size <= self.most)


def storage_for(info: Mapping[str, Any], replicas: int) -> str:
    """Return where a stream is created that was to be in files."""
    has_files, has_memory = (bool(room_of(info, storage, replicas).total) for storage in ("file", "memory"))
    return "memory" if has_memory and not has_files else "file"


def room_of(info: Mapping[str, Any], storage: str, replicas: int) -> Room:
    """Return the room for streams with some replicas, from the answer to INFO: of their tier, if there are tiers."""
    tiers = inner(info.get("tiers"))
    of = inner(tiers.get(f"R{replicas}")) if tiers else info
    limits, is_file = inner(of.get("limits")), storage == "file"
    return Room(
        integer(limits.get("max_storage" if is_file else "max_memory")),
        integer(of.get("reserved_storage" if is_file else "reserved_memory")),
        integer(limits.get("storage_max_stream_bytes" if is_file else "memory_max_stream_bytes")),
        needs_size=limits.get("max_bytes_required") is True,
    )
