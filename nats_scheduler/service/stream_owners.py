"""Who owns and who stands by each stream, put together from what the instances of an account say of themselves. Pure.

The rules: an owner counts only while it is alive, since one that is not fires nothing. The standbys are in the order in
which they take the stream over (`engine.ownership.order`).
Cost: some microseconds for each stream of each instance.
Limit: a stream that no instance names has no row.
"""

from collections import defaultdict
from collections.abc import Sequence

from nats_scheduler.engine.ownership.order import order_of
from nats_scheduler.service.schemas import InstanceDocument, InstancesDocument, OwnershipDocument, OwnsDocument


def instances_document(at: str, instances: Sequence[InstanceDocument]) -> InstancesDocument:
    """Return instances as they were at a time (RFC 3339), and the owner and the standbys of each stream."""
    return {"at": at, "instances": list(instances), "streams": ownership_of(instances)}


def ownership_of(instances: Sequence[InstanceDocument]) -> list[OwnershipDocument]:
    """Return the owner and the standbys of each stream that the instances name, by name and mode."""
    alive = [one for one in instances if one["state"] == "alive"]
    owned = {(part["stream"], part["mode"]): (one, part) for one in instances for part in one["owns"]}
    standbys: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for one in alive:
        for stood_by in one["stands_by"]:
            standbys[stood_by["stream"], stood_by["mode"]].append(one["id"])
    may_stand_by = len(alive) > 1 and any(one["standbys"] for one in alive)
    return [
        _document(key, owned.get(key), standbys[key], lacks_standby=may_stand_by and not standbys[key])
        for key in sorted({*owned, *standbys})
    ]


def _document(
    key: tuple[str, str],
    owned: tuple[InstanceDocument, OwnsDocument] | None,
    standbys: Sequence[str],
    *,
    lacks_standby: bool,
) -> OwnershipDocument:
    stream, mode = key
    found: OwnershipDocument = {
        "stream": stream,
        "mode": mode,
        "owner": None,
        "owner_since": None,
        "takeover_reason": None,
        "standbys": order_of(f"{mode}.{stream}", standbys),
        "owner_before": "",
        "lost_owner": None,
        "lacks_standby": lacks_standby,
    }
    if owned is None:
        return found
    owner, part = owned
    if owner["state"] != "alive":
        found["lost_owner"] = owner["id"]
    else:
        found["owner"], found["owner_since"] = owner["id"], part["since"]
        found["owner_before"], found["takeover_reason"] = part["before"], part["reason"]
    return found
