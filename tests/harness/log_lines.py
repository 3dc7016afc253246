"""The log lines of this process, as data: what a test collects instead of writing it, and what every test judges."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nats_scheduler.observe.log import Configured, TextLines, fields_of
from tests.observe.log_reference import fault_of

Line = dict[str, Any]
"""The fields of a line, its `event` and `log_level`, and as `exc_info` the error whose traceback it has."""


def line_of(record: logging.LogRecord) -> Line:
    """Return a line as data."""
    line = {**fields_of(record), "event": record.msg, "log_level": record.levelname.lower()}
    if record.exc_info:
        line["exc_info"] = record.exc_info[1]
    return line


class KeptLines(logging.Handler):
    """Keeps lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Line] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines.append(line_of(record))


class JudgedLines(logging.Handler):
    """Writes lines to standard error, and notes how they differ from what the reference says.

    Standard error is what it was when this began: what a command of this process writes is collected in another file,
    and a sidecar beside it must not write into that.
    """

    def __init__(self) -> None:
        super().__init__()
        self._file = sys.stderr
        self.faults: list[str] = []
        self.setFormatter(TextLines(has_colors=False))

    def emit(self, record: logging.LogRecord) -> None:
        """Judge a line, and write it: what a command of this process answers is read from standard output."""
        line = line_of(record)
        if (fault := fault_of(line["log_level"], line)) is not None:
            self.faults.append(fault)
        print(self.format(record), file=self._file)


@contextmanager
def handled_by(handler: logging.Handler, level: int = logging.NOTSET) -> Iterator[None]:
    """Give the lines of this process to a handler, and to nothing else; from a level on, if one is given."""
    lines, configured = logging.getLogger("nats_scheduler"), Configured.lines
    before = lines.handlers[:], lines.level, lines.propagate
    lines.handlers[:] = [handler]
    lines.propagate = False
    Configured.lines = lines  # a command that ran in this process has configured it anew
    if level:
        lines.setLevel(level)
    try:
        yield
    finally:
        lines.handlers[:], lines.propagate = before[0], before[2]
        lines.setLevel(before[1])
        Configured.lines = configured


@contextmanager
def capture_logs() -> Iterator[list[Line]]:
    """Collect lines instead of writing them."""
    kept = KeptLines()
    with handled_by(kept):
        yield kept.lines
