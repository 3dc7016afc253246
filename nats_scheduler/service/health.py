"""The endpoint about the health of one instance: any one of them, or the one that is named."""

from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.endpoint import Asked, Document
from nats_scheduler.service.schemas import HealthAnswer, NoKeys

MAX_REASONS = 100
"""Reasons that are listed: one for each stream that is not ready, and there may be thousands of streams."""


async def get(asked: Asked, _request: NoKeys) -> Document:
    """Return whether this instance is ready, and why not."""
    reasons = asked.deployment.not_ready()
    answer: HealthAnswer = {
        "at": format_rfc3339(asked.deployment.now()),
        "instance": asked.deployment.instance,
        "ready": not reasons,
        "reasons": reasons[:MAX_REASONS],
        "notes": asked.deployment.notes()[:MAX_REASONS],
    }
    return answer
