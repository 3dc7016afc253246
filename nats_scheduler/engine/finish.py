"""The question whether the fire before is finished, which a schedule with `X-Overlap` asks before each of its fires.

It is an action of the engine, and its answers name it; `engine.overlap` says when it is asked.
"""

from typing import NamedTuple


class CheckFinished(NamedTuple):
    """Find out whether a fire of a schedule is unfinished: an action, which its answers name.

    The fires in question are stored on `target` above sequence `after`, up to `through`: the one with sequence
    `through` if that is `after + 1`, and else any. One is unfinished while it is stored, and, if a `consumer` is named,
    that consumer has not acknowledged it. Answer `FinishChecked` or `FinishUnchecked`.
    """

    schedule: str
    sequence: int
    """That of the schedule."""
    target: str
    """The subject of the fires; `>` if they may be stored on any."""
    after: int
    through: int
    consumer: str | None = None

    @property
    def names_one(self) -> bool:
        """Whether one fire is in question, and its sequence is known."""
        return self.through == self.after + 1


def consumer_missing(stream: str, consumer: str) -> str:
    """Return why a consumer that does not exist finishes nothing."""
    return f"stream {stream} has no consumer {consumer!r}"


def target_not_received(consumer: str, target: str) -> str:
    """Return why a consumer that does not receive the target finishes nothing."""
    return f"consumer {consumer!r} does not receive {target!r}"
