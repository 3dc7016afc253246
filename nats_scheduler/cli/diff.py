"""`nats-scheduler diff`: what `apply` would do with these files.

Rule: the plan is the one that `apply` carries out. The exit codes are those of `diff(1)`: 1 is a difference.
"""

from __future__ import annotations

import click

from nats_scheduler.cli.changing import in_store
from nats_scheduler.cli.output import EXIT_WRONG_USE, CommandError, print_json
from nats_scheduler.cli.plan_output import plans_document, print_plans
from nats_scheduler.cli.planning import Wanted, plan_all, wanted_options
from nats_scheduler.files.planning import StreamPlan
from nats_scheduler.settings.load import ResolvedSettings

EXIT_DIFFERENT = 1


@click.command("diff")
@wanted_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(resolved: ResolvedSettings, wanted: Wanted, as_json: bool) -> None:
    """Show what `apply` would do with files of schedules.

    FILE is a file of schedules, a directory of such files, or - for standard input.
    Exit codes: 0 no difference, 1 differences, 2 wrong use, a file that is wrong or that a stream would not accept, or
    the server refuses or is not reached.
    """
    plans = _planned(resolved, wanted)
    differ = any(one.plan.steps for one in plans)
    if as_json:
        print_json({"differences": differ, **plans_document(plans)})
    else:
        print_plans(plans)
    raise click.exceptions.Exit(EXIT_DIFFERENT if differ else 0)


def _planned(resolved: ResolvedSettings, wanted: Wanted) -> list[StreamPlan]:
    try:
        return in_store(resolved, lambda access: plan_all(access, wanted))
    except CommandError as error:
        raise CommandError(error.message, EXIT_WRONG_USE) from None
