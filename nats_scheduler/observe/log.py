"""Log lines: one event, one action name, key and value behind it; text for people, JSON for machines.

The names are stable: whoever greps for `schedule_rejected` today does so in a year.
Lines go to standard error, so that a command's output stays its own.
What a publisher wrote is shown with its control characters escaped: a header may hold a terminal's orders.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Literal

import structlog


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
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


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
