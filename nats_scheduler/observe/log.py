"""Log lines: one event, one action name, key and value behind it; text for people, JSON for machines.

The names are stable: whoever greps for `schedule_rejected` today does so in a year.
Lines go to standard error, so that a command's output stays its own.
What a publisher wrote is shown with its control characters escaped: a header may hold a terminal's orders.
"""

import errno
import logging
import os
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TextIO

import structlog

NOBODY_READS = (errno.EPIPE, errno.EIO, errno.EBADF)
"""The reader of a pipe is gone, the terminal is closed, or there never was a file."""


def configure_logging(form: Literal["text", "json"], level: str) -> None:
    """Set the form and the least level of log lines for this process."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _without_orders,
    ]
    last = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=24)
    )
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, last],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(_Surviving(sys.stderr)),  # type: ignore[arg-type]
        cache_logger_on_first_use=False,
    )


class _Surviving:
    """A text file to write lines to; a line that cannot be written is lost, and nothing else.

    The terminal may be closed, the reader of a pipe gone, the disk full: no reason to stop firing.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Write what can be written."""
        with suppress(OSError, ValueError):  # the latter: the file is closed
            return self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Hand over what was written; where nobody will ever take it, do without the file from now on."""
        try:
            self._file.flush()
        except (OSError, ValueError) as error:
            if getattr(error, "errno", None) in NOBODY_READS:
                # What is left in the old file's buffer would be an error once more when the process ends.
                self._file = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115


def _without_orders(_logger: Any, _level: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape what is not printable in every text."""
    return {key: _printable(value) if isinstance(value, str) else value for key, value in fields.items()}


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def logger() -> Any:
    """Return the logger of this package, as it is configured now: bound once, since to bind costs more than a line."""
    return structlog.get_logger("nats_scheduler").bind()
