"""The progress of `doctor`: a bar on the terminal of standard error, and nothing in a pipe.

Rule: standard output has the answer and nothing else, so the bar is on standard error, and it is removed at the end.
Cost: rich is imported only for a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from nats_scheduler.doctor.gather import Progress


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Show progress while the block runs, as far as it is reported to what is given."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _steps: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("connecting", total=None)
        yield lambda what, done, steps: bar.update(task, description=what, completed=done, total=steps)
