"""Ask every other instance the same, for an answer that is put together from what each of them knows.

The rule: all are asked at once, each within `HOLDER_DEADLINE_SECONDS`, and an answer names those that did not answer.
An instance of an older version, which does not have the endpoint, counts as one that did not answer.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from nats_scheduler.jetstream.foreign_json import Object
from nats_scheduler.service.endpoint import Asked


@dataclass
class Answers:
    """What the other instances answer."""

    by_instance: dict[str, Object] = field(default_factory=dict)
    unanswered: list[str] = field(default_factory=list)
    """Those that do not answer."""


async def ask_others(asked: Asked, endpoint: str, request: Mapping[str, object]) -> Answers:
    """Ask all other instances that may be alive."""
    others = sorted(asked.deployment.other_instances())
    found = await asyncio.gather(*(asked.ask(other, endpoint, request) for other in others))
    answers = Answers()
    for other, answer in zip(others, found, strict=True):
        if answer is None:
            answers.unanswered.append(other)
        else:
            answers.by_instance[other] = answer
    return answers
