"""The endpoint about the instances of the account: who is there, and who holds what.

Cost: two requests to the server for each instance, one for each stream.
"""

from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.encoding import FRAME_BYTES, encode_items, with_items
from nats_scheduler.service.endpoint import Asked, Document
from nats_scheduler.service.micro import UNAVAILABLE, ServiceError
from nats_scheduler.service.names import name_cursor, read_name_cursor
from nats_scheduler.service.port import Instance
from nats_scheduler.service.schemas import InstanceDocument, InstancesRequest


async def list_instances(asked: Asked, request: InstancesRequest) -> Document:
    """Return a page of instances, by id."""
    after = read_name_cursor(request.cursor)
    try:
        fleet = await asked.deployment.fleet()
    except JetStreamError as error:
        raise ServiceError(UNAVAILABLE, f"the registry's bucket cannot be read: {error}") from None
    found = sorted((one for one in fleet.instances if one.name > after), key=lambda one: one.name)
    wanted = found[: request.limit]
    room = asked.room - FRAME_BYTES
    items = await asked.turns.run(encode_items(wanted, lambda one: instance_document(one, fleet.at), room))
    answer = {
        "at": format_rfc3339(fleet.at),
        "instance": asked.deployment.instance,
        "cursor": name_cursor(wanted[len(items) - 1].name) if len(items) < len(found) else None,
    }
    return with_items(answer, "instances", items)


def instance_document(one: Instance, at: int) -> InstanceDocument:
    """Return an instance, as it is at an instant (ns) of the server's clock."""
    return {
        "id": one.name,
        "state": one.state(at),
        "since": None if one.since is None else format_rfc3339(one.since),
        "last_heartbeat": None if one.heartbeat_at is None else format_rfc3339(one.heartbeat_at),
        "age_nanoseconds": None if one.heartbeat_at is None else max(at - one.heartbeat_at, 0),
        "serves": None if one.serves is None else list(one.serves),
        "unable": [{"stream": key.partition(".")[2], "reason": why} for key, why in sorted(one.unable.items())],
        "holds": [{"stream": part.stream, "mode": part.mode, "shards": list(part.shards)} for part in one.parts],
    }
