"""The record of a stream's lease as the registry's bucket holds it: which instance holds which shards.

The rule: any client may write there, so a shard has no holder if no instance can have written what is there; a record
of a newer version is known to exist, and nothing else of it.
"""

from nats_scheduler.engine.leases import NO_HOLDER, UNHELD, Holders, Record
from nats_scheduler.engine.shards import SHARDS
from nats_scheduler.jetstream.foreign_json import Object
from nats_scheduler.jetstream.formats import UnknownFormatError
from nats_scheduler.jetstream.registry import Delivered


def record_of(value: Delivered, revision: int) -> Record:
    """Read a record."""
    if isinstance(value, UnknownFormatError):
        return Record(UNHELD, revision, is_foreign=True)
    return Record(holders_of(value), revision)


def value_of(holders: Holders) -> Object:
    """Write a record."""
    names = set(holders) - {NO_HOLDER}
    return {"holders": {name: [n for n, one in enumerate(holders) if one == name] for name in names}}


def holders_of(value: Object | None) -> Holders:
    """Read the holder of each shard."""
    holders = [NO_HOLDER] * SHARDS
    named = (value or {}).get("holders")
    for name, shards in named.items() if isinstance(named, dict) else ():
        for shard in shards if isinstance(shards, list) else ():
            if type(shard) is int and 0 <= shard < SHARDS:
                holders[shard] = name
    return tuple(holders)
