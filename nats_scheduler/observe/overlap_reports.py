"""Report what `X-Overlap` and `X-Timeout` do to fires: what is skipped, timed out, or cannot be found out.

The rule: what a policy was given to do is logged at the level info; what its author has to know of is a warning.
"""

from nats_scheduler.engine.events import FinishUnknown, FiresSkipped, FireTimedOut
from nats_scheduler.observe.lines import Lines
from nats_scheduler.schedule.rfc3339 import format_rfc3339


class OverlapReports(Lines):
    """Counts, logs and publishes what became of fires that came due while the fire before was unfinished."""

    def _of_overlap(self, stream: str, event: FiresSkipped | FireTimedOut | FinishUnknown) -> None:
        """Report one event."""
        if isinstance(event, FiresSkipped):
            self._overlap_skipped(stream, event)
        elif isinstance(event, FireTimedOut):
            self._timed_out(stream, event)
        else:
            self._finish_unknown(stream, event)

    def _overlap_skipped(self, stream: str, event: FiresSkipped) -> None:
        self._metrics.skipped.labels(stream, "X-Overlap").inc(event.count)
        if self._allowance.grants("fires_skipped", stream):
            counted = {"dropped": event.count, "policy": f"X-Overlap: {event.overlap}"}
            fields = {"schedule": event.schedule, "since": format_rfc3339(event.first), **counted}
            self._log.info("fires_skipped", stream=stream, **fields)
            self._advise("fires_skipped", stream, seq=event.sequence, **fields)

    def _timed_out(self, stream: str, event: FireTimedOut) -> None:
        self._metrics.timed_out.labels(stream).inc()
        fields = {"schedule": event.schedule, "seq": event.sequence, "stored_as": event.unfinished}
        fields |= {"stored": format_rfc3339(event.stored_at), "due": format_rfc3339(event.due)}
        fields |= {"reason": event.reason or "it is unfinished"}
        if self._warn("fire_timed_out", stream, {"stream": stream, **fields}):
            self._advise("fire_timed_out", stream, **fields)

    def _finish_unknown(self, stream: str, event: FinishUnknown) -> None:
        fields = {"schedule": event.schedule, "seq": event.sequence}
        fields |= {"due": format_rfc3339(event.due), "reason": event.reason}
        if self._warn("finish_unknown", stream, {"stream": stream, **fields}):
            self._advise("finish_unknown", stream, **fields)
