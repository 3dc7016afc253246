"""Report what instances do among each other: which are alive, who holds what, and who cannot.

The rule: this is a part of `observe.reporter.Reporter`, and only that uses it.
Cost: a log line each.
"""

from nats_scheduler.observe.lines import Lines
from nats_scheduler.schedule.rfc3339 import format_rfc3339


class InstanceReports(Lines):
    """Counts, logs and publishes what concerns instances."""

    def instances(self, count: int) -> None:
        """Report how many instances are alive, this one included."""
        self._metrics.instances.set(count)
        self._log.info("instances_alive", count=count)

    def instance_lost(self, name: str, count: int) -> None:
        """Report that the heartbeats of an instance have stopped, so that others take over its shards."""
        self._metrics.instances.set(count)
        self._warn("instance_lost", "", {"instance": name, "alive": count})

    def shards_changed(self, stream: str, held: int, gained: int, lost: int) -> None:
        """Report how many shards of a stream this instance holds from now on."""
        self._metrics.shards.labels(stream).set(held)
        self._log.info("shards_changed", stream=stream, held=held, gained=gained, lost=lost)

    def cannot_serve(self, stream: str, reason: str) -> None:
        """Report that this instance lacks what a holder needs; other able instances hold the stream."""
        if self._warn("cannot_serve", "", {"stream": stream, "reason": reason}):
            self._advise("cannot_serve", stream, reason=reason)

    def can_serve_again(self, stream: str) -> None:
        """Report that nothing was denied for a while, so that this instance holds shards again."""
        self._log.info("can_serve_again", stream=stream)

    def registry_value_ignored(self, bucket: str, key: str, reason: str) -> None:
        """Report that a value in the registry's bucket is discarded: another program may have written it."""
        self.problem("registry_value_ignored", key=key, reason=reason)
        self._advise("registry_value_ignored", bucket, key=key, reason=reason)

    def instance_not_firing(self, stream: str, instance: str, since: int) -> None:
        """Report that a holder has not fired since the fire time `since` (ns); it gets no shards for a while."""
        fields = {"instance": instance, "since": format_rfc3339(since)}
        if self._warn("instance_not_firing", "", {"stream": stream, **fields}):
            self._advise("instance_not_firing", stream, **fields)
