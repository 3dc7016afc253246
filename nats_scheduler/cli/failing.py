"""The listed schedules whose fires the server refuses, as the running sidecars share it.

Rule: a schedule fails if a sidecar that is alive says so of its sequence, unless the stream says that it is done.
A sidecar that answers says it itself; of the others it is read from the bucket.
Limit: sidecars share as many as fit (`runtime.failing`); of the others only the number is known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from nats_scheduler.cli.session import ServedStream
from nats_scheduler.engine.outlook import State
from nats_scheduler.engine.view import SHOWN_AS_FAILING, FiredBy, ListedSchedule
from nats_scheduler.runtime.failing import Failures
from nats_scheduler.service.failing import MAX_NAMED

Row = tuple[ServedStream, ListedSchedule]

DONE = frozenset({State.FIRED, State.CANCELLED})


@dataclass(frozen=True, slots=True)
class FailingSchedules:
    """The schedules that fail, of the streams that are listed."""

    rows: Sequence[Row]
    """In the order of the list."""
    more: Mapping[str, int]
    """How many more fail than the sidecars list, by the name of the stream."""
    elsewhere: int
    """How many fail on streams of which the sidecars list none; some of these streams may be listed here."""

    @property
    def unlisted(self) -> int:
        """Return how many are known by their number alone."""
        return sum(self.more.values()) + self.elsewhere

    @property
    def count(self) -> int:
        """Return how many fail."""
        return len(self.rows) + self.unlisted

    def count_on(self, stream: ServedStream) -> int:
        """Return how many fail on a stream, those that are not listed too."""
        name = stream.state.name
        return sum(row[0].state.name == name for row in self.rows) + self.more.get(name, 0)


def with_failing(
    streams: Sequence[ServedStream],
    schedules: Sequence[Row],
    failures: Failures,
    answered: Collection[str] = frozenset(),
) -> tuple[list[Row], FailingSchedules]:
    """Return the schedules with the state of those that fail, and those that fail.

    A running sidecar has `answered` for some of the streams: it names more of what fails than the bucket does.
    """
    shown: list[Row] = []
    failing = []
    for stream, listed in schedules:
        why = listed.failing  # a running sidecar was asked
        if why is None and listed.fired_by is FiredBy.SIDECAR and listed.state not in DONE:
            why = failures.schedules.get(_key(stream), {}).get(listed.sequence)
        if why is not None:
            is_shown = listed.state in SHOWN_AS_FAILING
            listed = replace(listed, failing=why, state=State.FAILING if is_shown else listed.state)
            failing.append((stream, listed))
        shown.append((stream, listed))
    more = {one.state.name: _unlisted(one, failures, answered) for one in streams}
    is_named = all(_key(one) in failures.schedules or one.state.name in answered for one in streams)
    return shown, FailingSchedules(failing, more, 0 if is_named else failures.elsewhere)


def _unlisted(stream: ServedStream, failures: Failures, answered: Collection[str]) -> int:
    """Return how many schedules of a stream fail that are not named."""
    more = failures.more.get(_key(stream), 0)
    if stream.state.name not in answered:
        return more
    return max(more + len(failures.schedules.get(_key(stream), {})) - MAX_NAMED, 0)


def _key(stream: ServedStream) -> str:
    return f"{stream.mode}.{stream.state.name}"
