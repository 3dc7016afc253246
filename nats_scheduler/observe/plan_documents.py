"""What applying files would do, as JSON objects: one vocabulary for the commands and for the micro service.

Rule: values are whole; what is no UTF-8 is shown as the caller wants it.
"""

from collections.abc import Callable

from typing_extensions import TypedDict  # not that of typing: pydantic refuses it before Python 3.12

from nats_scheduler.control.plan import Action, Step
from nats_scheduler.files.planning import StreamPlan
from nats_scheduler.message.headers import decoded


class PlanDocument(TypedDict):
    """What does not change of a stream that documents name, with their owner."""

    stream: str
    owner: str | None
    unchanged: int
    """Schedules that say the same already."""
    ended: list[str]
    """The subjects of schedules that are not added because their time has passed."""
    unlisted: int
    """Schedules of the owner that are in no document, and stay because nothing is pruned."""


class DifferenceDocument(TypedDict):
    """What a step changes."""

    name: str
    """A header, `body` or `paused`."""
    old: list[str]
    """The values before; empty if there is none."""
    new: list[str]


class StepDocument(TypedDict):
    """What is done to one schedule."""

    stream: str
    subject: str
    action: Action
    differences: list[DifferenceDocument]
    notes: list[str]


def plan_document(one: StreamPlan) -> PlanDocument:
    """Describe a plan without its steps."""
    plan = one.plan
    return {
        "stream": plan.stream,
        "owner": one.owner,
        "unchanged": plan.unchanged,
        "ended": list(plan.ended),
        "unlisted": plan.unlisted,
    }


def step_document(stream: str, step: Step, shown: Callable[[bytes], str] = decoded) -> StepDocument:
    """Describe a step; `shown` returns a value as text, and by default bytes that are not UTF-8 as `\\udcXX`."""
    return {
        "stream": stream,
        "subject": step.subject,
        "action": step.action,
        "differences": [
            {"name": one.name, "old": list(map(shown, one.old)), "new": list(map(shown, one.new))}
            for one in step.differences
        ],
        "notes": list(step.notes),
    }
