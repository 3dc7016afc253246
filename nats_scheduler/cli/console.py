"""The console script: the commands, or what to install if the extra for them is not there.

Rule: nothing is imported that the distribution installs with its extra `run`.
Cost: the look for these packages, some microseconds. Limit: an extra in another version is not noticed.
"""

import sys

from nats_scheduler.extras import installation, missing

EXIT_NOT_INSTALLED = 2
"""The exit code of wrong use, as `cli.output` has it."""


def main() -> None:
    """Run the command that was typed; end with one line if the extra `run` is not installed."""
    if missing("run"):
        sys.stderr.write(f"nats-scheduler: error: the commands need the extra 'run': {installation('run')}\n")
        sys.exit(EXIT_NOT_INSTALLED)
    from nats_scheduler.cli.main import main as commands

    commands()
