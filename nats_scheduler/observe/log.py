"""Log lines: one event, one action name, followed by keys and values; text for people, JSON for machines.

The names are stable: a search for `schedule_rejected` still works in a year.
Lines go to standard error, so that standard output contains only the output of a command.
Control characters in the text of a publisher are escaped, because a header may contain a terminal's escape sequences.

They are written with Python's own `logging`: a library for such lines, with what it imports, took 6 MB of each sidecar
and a tenth of a second of each start.
"""

import asyncio
import errno
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TextIO

READER_GONE_ERRNOS = (errno.EPIPE, errno.EIO, errno.EBADF)
"""The reader of a pipe has ended, the terminal is closed, or there never was a file."""

ACTION_WIDTH = 24
"""Shorter names are padded to this number of characters, so that the fields of most lines begin in one column."""
LEVEL_WIDTH = 9

QUOTED = frozenset(" \t=\r\n\"'")
"""A text with one of these is quoted."""

RESET, BOLD, DIM, CYAN, MAGENTA = "\033[0m", "\033[1m", "\033[2m", "\033[36m", "\033[35m"
LEVEL_COLORS = {"debug": "\033[32m", "info": "\033[32m", "warning": "\033[33m", "error": "\033[31m"}


class Configured:
    """The configuration that this process has at the moment."""

    lines = logging.getLogger("nats_scheduler")


def configure_logging(form: Literal["text", "json"], level: str) -> None:
    """Set the format and the lowest level of log lines for this process."""
    handler = logging.StreamHandler(_FailSafeFile(sys.stderr))
    has_colors = sys.stderr.isatty() and not os.environ.get("NO_COLOR")  # https://no-color.org
    handler.setFormatter(JsonLines() if form == "json" else TextLines(has_colors=has_colors))
    Configured.lines = logging.Logger("nats_scheduler", level.upper())
    Configured.lines.addHandler(handler)


def logger() -> "Logger":
    """Return what writes log lines with the present configuration, whatever is configured after that."""
    return Logger(Configured.lines)


class Logger:
    """Writes lines: each has the name of an action, and fields."""

    def __init__(self, lines: logging.Logger) -> None:
        self._lines = lines

    def debug(self, action: str, /, **fields: Any) -> None:
        """Write what only helps to find a defect."""
        self._write(logging.DEBUG, action, fields)

    def info(self, action: str, /, **fields: Any) -> None:
        """Write what is as it should be."""
        self._write(logging.INFO, action, fields)

    def warning(self, action: str, /, **fields: Any) -> None:
        """Write what an operator should look at."""
        self._write(logging.WARNING, action, fields)

    def error(self, action: str, /, *, exc_info: BaseException | None = None, **fields: Any) -> None:
        """Write a defect of this program, with the traceback of an error."""
        self._write(logging.ERROR, action, fields, exc_info)

    @property
    def writes_debug(self) -> bool:
        """True if lines that only help to find a defect are written."""
        return self._lines.isEnabledFor(logging.DEBUG)

    def _write(self, level: int, action: str, fields: dict[str, Any], error: BaseException | None = None) -> None:
        self._lines.log(level, action, exc_info=error, extra={"fields": fields})


def fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    """Return the fields of a line."""
    fields: Mapping[str, Any] = record.__dict__.get("fields", {})
    return fields


class TextLines(logging.Formatter):
    """Lines for people: the time, the level, the action, and the fields in the order of the alphabet."""

    def __init__(self, *, has_colors: bool) -> None:
        """Write lines, with the escape sequences of a terminal if they have colors."""
        super().__init__()
        self._has_colors = has_colors

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the traceback below it if there is one."""
        level, fields = record.levelname.lower(), fields_of(record)
        parts = [
            self._in(DIM, _time_of(record)),
            f"[{self._in(LEVEL_COLORS.get(level, '') + BOLD, level.ljust(LEVEL_WIDTH))}]",
            self._in(BOLD, _printable(record.msg).ljust(ACTION_WIDTH)),
            *(f"{self._in(CYAN, key)}={self._in(MAGENTA, _text_of(fields[key]))}" for key in sorted(fields)),
        ]
        return "\n".join([" ".join(parts).rstrip(" "), *_traceback_of(record)])

    def _in(self, color: str, text: str) -> str:
        return f"{color}{text}{RESET}" if self._has_colors else text


class JsonLines(logging.Formatter):
    """Lines for machines: a JSON object each."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; what JSON has no form for is written as Python writes it."""
        line = {key: _printable(value) if isinstance(value, str) else value for key, value in fields_of(record).items()}
        line |= {"event": _printable(record.msg), "level": record.levelname.lower(), "timestamp": _time_of(record)}
        for text in _traceback_of(record):
            line["exception"] = text
        return json.dumps(line, default=repr)


def _time_of(record: logging.LogRecord) -> str:
    written = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
    return written.replace("+00:00", "Z")


def _traceback_of(record: logging.LogRecord) -> list[str]:
    """Return the traceback of a line in one text; nothing if it has none."""
    return [logging.Formatter().formatException(record.exc_info)] if record.exc_info else []


def _text_of(value: Any) -> str:
    """Return the value of a field for people: quoted if it would be unclear where it ends."""
    if not isinstance(value, str):
        return repr(value)
    text = _printable(value)
    return text if QUOTED.isdisjoint(text) else repr(text)


def _printable(text: str) -> str:
    """Escape the characters that are not printable."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


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


MAX_LINES = 100
"""The maximum number of lines of one kind about one stream in one period."""

PERIOD_SECONDS = 60.0
"""The length of a period, from its first line on."""


class Allowance:
    """Decides which lines may be written: at most `most` of one kind about one stream in a period.

    Then one line has the number of those that were left out. So a client that floods a stream with mistakes floods
    neither the log nor its disk; counters count all mistakes. It is used on the event loop.
    """

    def __init__(
        self, left_out: Callable[[str, str, int], None], *, period: float = PERIOD_SECONDS, most: int = MAX_LINES
    ) -> None:
        """Begin; `left_out` is called with kind, stream and number at the end of a period (s) with too many lines."""
        self._left_out = left_out
        self._period = period
        self._most = most
        self._counts: dict[tuple[str, str], int] = {}

    def grants(self, kind: str, stream: str) -> bool:
        """Count one more line; return whether it may be written."""
        key = kind, stream
        count = self._counts.get(key, 0)
        self._counts[key] = count + 1
        if count == 0:
            asyncio.get_running_loop().call_later(self._period, self._end_period, key)
        return count < self._most

    def _end_period(self, key: tuple[str, str]) -> None:
        left_out = self._counts.pop(key) - self._most
        if left_out > 0:
            self._left_out(*key, left_out)
