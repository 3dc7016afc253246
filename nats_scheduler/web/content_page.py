"""The page that shows what a schedule would send, or what a fire has stored: its body and all its headers.

The rule: it is a page of its own, which a click leads to, so that a body is neither read nor shown with each view of a
schedule; and it does not update itself.
Cost: one request, two for a schedule. Limits: those of `observe.message_contents`.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from nats_scheduler.observe.message_contents import MAX_HEADERS, body_lines
from nats_scheduler.service import sidecar_answers
from nats_scheduler.service.sidecar_answers import NOTHING, Answers, AnswerState
from nats_scheduler.web.rendering import sequence_in

NOT_FOUND, OK = 404, 200


async def content_values(source: Answers, query: Mapping[str, str]) -> Mapping[str, Any]:
    """Ask for the content of the schedule that a query names, or of its fire; return what the page shows of it."""
    stream, subject, fire = query.get("stream", ""), query.get("subject", ""), query.get("fire", "")
    one: dict[str, object] = {"stream": stream, "subject": subject}
    sequence = sequence_in(fire) or 0  # which no sidecar takes for one
    of_fire = {"fire": sequence, "fire_stream": query.get("fire_stream") or None} if fire else {}
    found, of_schedule = await asyncio.gather(
        source.get(sidecar_answers.CONTENT, {**one, **of_fire}), _schedule(source, {} if fire else one)
    )
    content = found.data
    schedule = None if of_schedule.data is None else of_schedule.data["schedule"]
    return {
        "title": f"Fire {fire} of {subject}" if fire else f"What {subject} sends",
        "status": NOT_FOUND if found.code == NOT_FOUND else OK,
        "is_still": True,
        "stream": stream,
        "subject": subject,
        "fire": fire,
        "found": found,
        "content": content,
        "headers": [] if content is None else content["headers"][:MAX_HEADERS],
        "body": None if content is None else body_lines(content),
        "schedule": schedule,
    }


async def _schedule(source: Answers, asked: Mapping[str, object]) -> AnswerState[Any]:
    return await source.get(sidecar_answers.SCHEDULE, asked) if asked else NOTHING
