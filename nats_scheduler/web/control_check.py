"""Whether the sidecars make the changes that the page asks for: said on each page, and in the log at start.

Rule: only what a sidecar has answered counts. One that does not answer, an older one that does not say it, and the
server itself where no sidecar runs, are not said to refuse anything.
Cost: none on a page, which asks for health anyway; a request every `INTERVAL_SECONDS` until the first sidecar answers.
"""

import asyncio
from collections.abc import Iterable

from nats_scheduler.observe.log import logger
from nats_scheduler.service.schemas import HealthAnswer
from nats_scheduler.service.sidecar_answers import HEALTH, Answers

INTERVAL_SECONDS = 5.0
"""The pause between two questions at start."""

MAX_NAMED = 3
"""Most sidecars that the sentence names."""


def refusal_of(answers: Iterable[HealthAnswer], rule: str | None) -> str:
    """Return in one sentence which sidecars refuse what the page asks for, and what to set; "" if none is known to.

    `rule` is the one under which the page asks (`web_control_rule`): a sidecar without it leaves requests to those that
    have it, while any sidecar may receive a request without a rule.
    """
    known = [one for one in answers if "allow_control" in one]
    if rule is not None:
        if not known or any(rule in one.get("control_rules", ()) for one in known):
            return ""
        return f"No sidecar has the rule '{rule}' of web_control_rule: add it to control_rules of each sidecar."
    refusing = [one["instance"] for one in known if not one.get("allow_control")]
    if not refusing:
        return ""
    more = f" and {len(refusing) - MAX_NAMED} more" if len(refusing) > MAX_NAMED else ""
    named = f"{', '.join(refusing[:MAX_NAMED])}{more}"
    return f"Changes are refused by {'sidecar' if len(refusing) == 1 else 'sidecars'} {named}: set allow_control there."


async def report_refusal(source: Answers, rule: str | None) -> None:
    """Write into the log what `refusal_of` says of the first sidecar that answers, and end."""
    while True:
        answer = (await source.get(HEALTH)).data
        if answer is not None and "allow_control" in answer:
            break
        await asyncio.sleep(INTERVAL_SECONDS)
    if sentence := refusal_of([answer], rule):
        logger().warning("control_refused", reason=sentence)
