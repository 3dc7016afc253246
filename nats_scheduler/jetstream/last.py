"""Find the last message on a subject, also if a server up to 2.11 does not.

There `STREAM.MSG.GET` with `last_by_subj` finds nothing once the last message of a subject was deleted by its sequence,
although an earlier one is stored; the guard of 2.11 refuses as if there were none.
`STREAM.INFO` counts it. A read of the next message on the subject finds it, and corrects the server's record of the
last one.

Cost: if there is none, one request more on these servers and none on others; if there is an earlier one, three.
"""

from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.foreign_json import inner
from nats_scheduler.message.stored import StoredMessage


async def last_on(api: JetStreamApi, stream: str, subject: str) -> StoredMessage | None:
    """Return the last message on a subject that JSON can name; None if there is none."""
    message = await api.message(stream, last_by_subj=subject)
    if message is not None or api.finds_last:
        return message
    info = await api.call(f"STREAM.INFO.{stream}", {"subjects_filter": subject})
    if not inner(inner(info.get("state")).get("subjects")):
        return None
    first = await api.message(stream, seq=1, next_by_subj=subject)
    return first and (await api.message(stream, last_by_subj=subject) or first)
