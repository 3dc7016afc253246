"""Report what becomes of snapshots, with which engines begin.

The rule: this is a part of `observe.reporter.Reporter`, and only that uses it.
Cost: a log line each, some a day for a large stream.
"""

from nats_scheduler.message.rejection import MAX_KEPT_CHARS
from nats_scheduler.observe.lines import Lines


class SnapshotReports(Lines):
    """Logs what concerns snapshots."""

    def snapshot_written(self, stream: str, schedules: int, through: int) -> None:
        """Report that a snapshot was written that knows everything up to the sequence `through`."""
        self._log.info("snapshot_written", stream=stream, schedules=schedules, through=through)

    def snapshot_used(self, stream: str, schedules: int, through: int) -> None:
        """Report that a stream is read from the sequence `through` on, because a snapshot has what is before it."""
        self._log.info("snapshot_used", stream=stream, schedules=schedules, through=through)

    def snapshot_ignored(self, stream: str, reason: str) -> None:
        """Report that a snapshot does not fit, or cannot be read, so that all of the stream is read."""
        self.problem("snapshot_ignored", stream=stream, reason=reason[:MAX_KEPT_CHARS])

    def snapshot_not_kept(self, stream: str, reason: str) -> None:
        """Report that no snapshot can be written."""
        self.problem("snapshot_not_kept", stream=stream, reason=reason[:MAX_KEPT_CHARS])
