"""Log lines: one event, one action name, followed by keys and values; text for people, JSON for machines.

The names are stable: a search for `schedule_rejected` still works in a year.
Lines go to standard error, so that standard output contains only the output of a command.
Control characters in the text of a publisher are escaped, because a header may contain a terminal's escape sequences.
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

READER_GONE_ERRNOS = (errno.EPIPE, errno.EIO, errno.EBADF)
"""The reader of a pipe has ended, the terminal is closed, or there never was a file."""


def configure_logging(form: Literal["text", "json"], level: str) -> None:
    """Set the format and the lowest level of log lines for this process."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _escape_control_characters,
    ]
    last = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=_wants_colors(sys.stderr), pad_event_to=24)
    )
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, last],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(_FailSafeFile(sys.stderr)),  # type: ignore[arg-type]
        cache_logger_on_first_use=False,
    )


def _wants_colors(file: TextIO) -> bool:
    """Return whether lines are coloured: on a terminal, unless `NO_COLOR` is set (https://no-color.org)."""
    return file.isatty() and not os.environ.get("NO_COLOR")


class _FailSafeFile:
    """A text file for log lines; if a line cannot be written, it is lost, without an exception.

    The terminal may be closed, the reader of a pipe may have ended, or the disk may be full: fires must continue.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Write the text if possible."""
        with suppress(OSError, ValueError):  # ValueError: the file is closed
            return self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the file; if its reader is gone for ever, write to nothing from now on."""
        try:
            self._file.flush()
        except (OSError, ValueError) as error:
            if getattr(error, "errno", None) in READER_GONE_ERRNOS:
                # The rest of the old file's buffer would raise an error again when the process ends.
                self._file = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115


def _escape_control_characters(_logger: Any, _level: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape the characters of every text that are not printable."""
    return {key: _printable(value) if isinstance(value, str) else value for key, value in fields.items()}


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def logger() -> Any:
    """Return the logger of this package with its present configuration, bound once: binding costs more than a line."""
    return structlog.get_logger("nats_scheduler").bind()
