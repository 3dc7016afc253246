"""Who owns which stream, as the instances write it into the registry's bucket.

The rule: instances are named in the order of their start, by what their heartbeats say; their logs name none of them.
Cost: a request for each record, so it is asked seldom, and never while something is measured.
"""

import json
from typing import Any

from nats_scheduler.jetstream.api import JetStreamApi

BUCKET = "KV_nats_scheduler"
HEARTBEATS = "$KV.nats_scheduler.instance.*"
OWNERS = "$KV.nats_scheduler.owner.*.>"


async def instances(api: JetStreamApi) -> list[str]:
    """Return the names of the instances, the one that began first at the front."""
    found = await _values(api, HEARTBEATS)
    return [_name(key) for key in sorted(found, key=lambda key: str(found[key].get("since")))]


async def owners(api: JetStreamApi) -> dict[str, str]:
    """Return the owner of each stream that has one."""
    found = await _values(api, OWNERS)
    # The key is `owner.<mode>.<stream>`.
    return {key.split(".", 4)[4]: str(value["owner"]) for key, value in found.items() if value.get("owner")}


async def _values(api: JetStreamApi, keys: str) -> dict[str, dict[str, Any]]:
    """Return what is stored in the bucket under some keys, by key; nothing as long as there is no bucket."""
    found: dict[str, dict[str, Any]] = {}
    if await api.stream(BUCKET) is None:
        return found
    message = await api.message(BUCKET, seq=1, next_by_subj=keys)
    while message is not None:
        if message.body:
            found[message.subject] = json.loads(message.body)
        message = await api.message(BUCKET, seq=message.sequence + 1, next_by_subj=keys)
    return found


def _name(key: str) -> str:
    return key.rpartition(".")[2]
