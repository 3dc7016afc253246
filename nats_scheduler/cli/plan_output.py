"""What `diff` and `apply` print of a plan: lines for people, and a document.

Rule: of each schedule that is changed, each header is shown before and after; nothing that stays is shown.
Limit: values are cut for people; the document has them whole, with bytes that are not UTF-8 as `\\udcXX`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import click

from nats_scheduler.cli.output import print_warning, printable
from nats_scheduler.control.plan import Action, Difference, Step
from nats_scheduler.files.planning import StreamPlan
from nats_scheduler.message.headers import decoded, header_value
from nats_scheduler.observe.plan_documents import plan_document, step_document
from nats_scheduler.schedule.invalid import MAX_SHOWN_CHARS

MARKS = {Action.ADD: "+", Action.REMOVE: "-"}
"""What a line begins with; all other changes have a `~`."""

_WORDS = {
    Action.ADD: "to add",
    Action.REPLACE: "to change",
    Action.PAUSE: "to pause",
    Action.RESUME: "to resume",
    Action.REMOVE: "to remove",
}


def print_plans(plans: Sequence[StreamPlan], most: int | None = None) -> None:
    """Print what would be done in each stream, at most so many changes of each; notes go to standard error."""
    for one in plans:
        steps = one.plan.steps
        shown = steps if most is None else steps[:most]
        for step in shown:
            click.echo("\n".join(map(printable, _lines(step, one))))
        if len(shown) < len(steps):
            click.echo(f"and {len(steps) - len(shown):,} more in stream {one.plan.stream}: `diff` shows all of them")
        click.echo(printable(summary(one)))
        for step in shown:
            for note in step.notes:
                print_warning(printable(f"{step.subject}: {note}"))


def summary(one: StreamPlan) -> str:
    """Return the numbers of one plan as one line."""
    plan = one.plan
    numbers = Counter(step.action for step in plan.steps)
    parts = [f"{numbers[action]:,} {words}" for action, words in _WORDS.items() if numbers[action]]
    parts.append(f"{plan.unchanged:,} unchanged")
    if plan.ended:
        parts.append(f"{len(plan.ended):,} not added, because their time has passed")
    if plan.unlisted:
        parts.append(f"{plan.unlisted:,} of {one.owner} in no file (--prune removes them)")
    return f"stream {plan.stream}: {', '.join(parts)}"


def plans_document(plans: Sequence[StreamPlan]) -> dict[str, Any]:
    """Describe plans."""
    return {
        "streams": [*map(plan_document, plans)],
        "steps": [step_document(one.plan.stream, step) for one in plans for step in one.plan.steps],
    }


def _lines(step: Step, one: StreamPlan) -> Iterator[str]:
    yield f"{MARKS.get(step.action, '~')} {one.plan.stream}  {step.subject}"
    if step.action is Action.ADD:
        yield f"    {_described(step)}"
    for difference in step.differences:
        yield f"    {difference.name}: {_value(difference, difference.old)} → {_value(difference, difference.new)}"


def _described(step: Step) -> str:
    """Return what a new schedule is, in one line: its pattern and its target."""
    names = (b"Nats-Schedule", b"X-Nats-Schedule", b"Nats-Schedule-X-Paused", b"X-Nats-Schedule-X-Paused")
    found = [(name, value) for name in names if (value := header_value(step.block, name)) is not None]
    targets = (b"Nats-Schedule-Target", b"X-Nats-Schedule-Target", b"X-Nats-Schedule-X-Target")
    target = next((value for name in targets if (value := header_value(step.block, name)) is not None), b"")
    name, pattern = found[0] if found else (b"", b"")
    paused = ", paused" if name.endswith(b"Paused") else ""
    return f"{decoded(pattern)} → {decoded(target)}{paused}"


def _value(difference: Difference, values: Sequence[bytes]) -> str:
    if not values:
        return "none"
    if difference.name == "paused":
        return decoded(values[0])
    return ", ".join(map(_shown, values))


def _shown(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"{len(value):,} bytes"
    return repr(text) if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]!r}… ({len(value):,} bytes)"
