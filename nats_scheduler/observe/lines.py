"""The log lines and advisories about what streams report, so many of each kind.

The rule: not more advisories are published than lines are logged (`observe.allowance`).
"""

from typing import Any

from nats_scheduler.message.advisory_messages import Publish, advisory_message, no_advice
from nats_scheduler.observe.allowance import Allowance
from nats_scheduler.observe.log import logger
from nats_scheduler.observe.metrics import Metrics


class Lines:
    """Where events are counted, logged and published."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._log = logger()
        self._allowance = Allowance(self._left_out)
        self.advise: Publish = no_advice
        """Publishes an advisory; `no_advice` while there is no connection."""

    def problem(self, action: str, **fields: Any) -> None:
        """Log a warning that needs the operator's attention."""
        # The limit is not per stream: a client could send any number of stream names.
        self._warn(action, "", fields)

    def _warn(self, kind: str, stream: str, fields: dict[str, Any]) -> bool:
        """Log a warning; return whether it was granted, so that not more advisories are published than lines."""
        if is_granted := self._allowance.grants(kind, stream):
            self._log.warning(kind, **fields)
        return is_granted

    def _advise(self, kind: str, stream: str, **fields: Any) -> None:
        self.advise(advisory_message(kind, stream, fields))

    def _left_out(self, kind: str, stream: str, count: int) -> None:
        self._log.warning("lines_suppressed", kind=kind, count=count, **({"stream": stream} if stream else {}))
