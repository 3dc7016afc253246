"""The endpoint about all streams of the account that carry schedules: who fires them.

The rule: they are looked up when it is asked, also those that no sidecar serves; `streams.list` is about what is held.
Cost: the server's list of streams, and up to one request to it for each stream; at most twice a second, however many
ask. Limit: a page of that list, 256 streams, takes some milliseconds to read, as it does every 30 s anyway.
"""

from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.encoding import FRAME_BYTES, encode_items, with_items
from nats_scheduler.service.endpoint import Asked, Document
from nats_scheduler.service.micro import UNAVAILABLE, ServiceError
from nats_scheduler.service.names import name_cursor, read_name_cursor
from nats_scheduler.service.schemas import StreamsRequest


async def list_modes(asked: Asked, request: StreamsRequest) -> Document:
    """Return a page of the streams that carry schedules, by name."""
    after = read_name_cursor(request.cursor)
    await asked.turns.moment_without_fires()
    try:
        found = [one for one in await asked.deployment.stream_modes() if one["stream"] > after]
    except JetStreamError as error:
        raise ServiceError(UNAVAILABLE, f"the streams cannot be read: {error}") from None
    items = await asked.turns.run(encode_items(found[: request.limit], dict, asked.room - FRAME_BYTES))
    answer = {
        "at": format_rfc3339(asked.deployment.now()),
        "instance": asked.deployment.instance,
        "cursor": name_cursor(found[len(items) - 1]["stream"]) if len(items) < len(found) else None,
    }
    return with_items(answer, "streams", items)
