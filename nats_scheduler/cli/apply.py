"""`nats-scheduler apply`: make the schedules of streams those of files.

Rule: what will be done is shown before, and is confirmed; what was shown is what is done. A schedule that another
client has changed since is left as it is and reported, and the others are done. So an apply that failed or was killed
is finished by running it again.
Cost: see `cli.planning` and `control.applying`; `control.each.MAX_AT_ONCE` schedules are changed at a time.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from nats_scheduler.cli.changing import Access, How, change_options, error_about, in_store
from nats_scheduler.cli.many import change_each
from nats_scheduler.cli.output import EXIT_FAILED, CommandError, print_json, print_warning, printable
from nats_scheduler.cli.plan_output import plans_document, print_plans
from nats_scheduler.cli.planning import Wanted, plan_all, wanted_options
from nats_scheduler.cli.progress import ProgressBar, progress_bar
from nats_scheduler.control.applying import carrying_out
from nats_scheduler.control.changes import Author
from nats_scheduler.control.each import Done
from nats_scheduler.control.port import ScheduleStore
from nats_scheduler.files.planning import StreamPlan
from nats_scheduler.observe.change_documents import change_document
from nats_scheduler.settings.load import ResolvedSettings

MAX_STEPS_SHOWN = 200
"""The most changes of one stream that are shown for people."""


@click.command("apply")
@wanted_options
@click.option("--yes", is_flag=True, help="Do it without a question.")
@change_options
def command(resolved: ResolvedSettings, wanted: Wanted, yes: bool, how: How) -> None:
    """Make the schedules of streams those of files.

    FILE is a file of schedules, a directory of such files, or - for standard input.
    Schedules that are in no file stay, unless --prune is given and they carry the owner's label.
    Exit codes: 0 done, 1 a schedule could not be changed, a stream would not accept the files, or the server refuses
    or is not reached, 2 wrong use, settings, or files.
    """
    can_ask = sys.stdin.isatty() and sys.stderr.isatty()
    if not (yes or how.dry_run or can_ask):
        raise click.UsageError("--yes is needed where nobody can be asked; --dry-run shows what would be done")
    plans = in_store(resolved, lambda access: plan_all(access, wanted))
    if not how.as_json:
        print_plans(plans, MAX_STEPS_SHOWN)
    number = sum(len(one.plan.steps) for one in plans)
    done: list[Done] = []
    if number and not how.dry_run:
        if not yes:  # the connection is closed while a person reads the question
            click.confirm(f"make {number:,} change{'' if number == 1 else 's'}?", abort=True, err=True)
        done = in_store(resolved, lambda access: _carry_out(access, plans, how.author), quiet=True)
    if how.as_json:
        print_json({"dry_run": how.dry_run, **plans_document(plans), **_document(plans, done)})
    else:
        _print(plans, done)
    if any(one.failures for one in done):
        raise click.exceptions.Exit(EXIT_FAILED)


async def _carry_out(access: Access, plans: Sequence[StreamPlan], author: Author) -> list[Done]:
    with progress_bar() as bar:
        return [await _carry_out_one(access.store, one, author, bar) for one in plans]


async def _carry_out_one(store: ScheduleStore, one: StreamPlan, author: Author, bar: ProgressBar) -> Done:
    subjects = [step.subject for step in one.plan.steps]
    operation = carrying_out(store, one.served, one.plan.steps, author)
    return await change_each(subjects, operation, lambda number: bar.show(one.plan.stream, number, len(subjects)))


def _print(plans: Sequence[StreamPlan], done: Sequence[Done]) -> None:
    for plan, one in zip(plans, done, strict=False):
        planned = {step.subject: step.notes for step in plan.plan.steps}
        for change in one.changes.values():
            for note in change.notes:
                if note not in planned[change.subject]:
                    print_warning(printable(f"{change.subject}: {note}"))
        for subject, error in one.failures.items():
            CommandError(f"stream {plan.plan.stream}: {error_about(subject, error)}").show()
        counts = [f"{number:,} {kind}" for kind, number in Counter(c.kind.value for c in one.changes.values()).items()]
        counts += [f"{len(one.failures):,} failed"] if one.failures else []
        if counts:
            click.echo(f"stream {plan.plan.stream}: {', '.join(counts)}")


def _document(plans: Sequence[StreamPlan], done: Sequence[Done]) -> dict[str, Any]:
    errors = [
        {"stream": plan.plan.stream, "subject": subject, "err_code": error.code, "message": str(error)}
        for plan, one in zip(plans, done, strict=False)
        for subject, error in one.failures.items()
    ]
    return {"changes": [change_document(change) for one in done for change in one.changes.values()], "errors": errors}
