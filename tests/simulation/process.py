"""A process: it does nothing while it is stalled, and nothing after its death.

It may die at every `Point`: every message between the process and the world passes one.

Its rule: what was sent before the death still arrives, and nothing is sent after it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum

from tests.simulation.timeline import Event, Timeline, virtual_loop


class Point(StrEnum):
    """Where a process may die: before it asks for something, or before it acts on the answer."""

    CONNECT = "connect"
    OPEN_BUCKET = "open bucket"
    OPENED_BUCKET = "opened bucket"
    LISTEN = "listen to instances"
    TELL = "tell that we live"
    CLAIM = "change the record of the owner"
    CLAIMED = "changed the record of the owner"
    FORGET = "forget the dead"
    FORGOT = "forgot the dead"
    LOOK_AT_STREAM = "look at stream"
    LOOKED_AT_STREAM = "looked at stream"
    READ_CHECKPOINT = "read checkpoint"
    CHECKPOINT_READ = "checkpoint read"
    WRITE_CHECKPOINT = "write checkpoint"
    CHECKPOINT_WRITTEN = "checkpoint written"
    FOLLOW = "follow stream"
    CAUGHT_UP = "caught up"
    READ = "read content"
    CONTENT_READ = "content read"
    PUBLISH = "publish"
    PUBLISHED = "published"
    PURGE = "purge"
    PURGED = "purged"
    DRAIN = "drain"
    LEAVE = "say that we are gone"
    COMMIT = "commit"
    COMMITTED = "committed"


OF_FILES = (Point.COMMIT, Point.COMMITTED)
"""Points of processes that keep files; the others come first, so that each seed stays what it was."""


class Crashed(BaseException):
    """The process died at this point."""


@dataclass
class Doom:
    """Where a process is going to die."""

    at: Point | None = None
    """At this point; None: at any."""
    after: int = 0
    """The number of them that are passed before."""


class Process:
    """One process, from its start to its death."""

    def __init__(self, name: str, timeline: Timeline, trace: Callable[[str], None]) -> None:
        self.name = name
        """The name of the instance."""
        self.timeline = timeline
        self.doom: Doom | None = None
        self.is_alive = True
        self.is_stalled = False
        self.crashed_at: Point | None = None
        self.died: Callable[[], None] = lambda: None
        """Called when it crashed."""
        self.dies: Callable[[], None] = lambda: None
        """Called at its end, before its tasks are unwound."""
        self.ended: Callable[[], None] = lambda: None
        """Called after that."""
        self._trace = trace
        self._late: list[Event] = []
        self._heard: list[Event] = []
        self.loop = virtual_loop(timeline, self.run)

    def begin(self, work: Coroutine[None, None, None]) -> None:
        """Run this for its whole life."""
        self.loop.create_task(work).add_done_callback(
            lambda task: None if task.cancelled() or self.loop.is_over else task.result()
        )

    def note(self, what: str) -> None:
        """Trace what the process does while it is alive."""
        if self.is_alive:
            self._trace(what)

    def point(self, point: Point, what: str = "") -> None:
        """Pass a point at which the process may die."""
        self.note(f"{point} {what}")
        if not self.is_alive:
            raise Crashed
        if self.doom is None or self.doom.at not in (None, point):
            return
        self.doom.after -= 1
        if self.doom.after < 0:
            self.note("crashes here")
            self.is_alive, self.crashed_at = False, point
            self.loop.is_over = True
            raise Crashed

    def run(self, event: Event) -> None:
        """Let the process do something."""
        if self.is_stalled:
            self._late.append(event)
        elif self.is_alive:
            self._do(event)

    def receive(self, event: Event) -> None:
        """Deliver something over the network."""
        if self.is_stalled:
            self._heard.append(event)
        elif self.is_alive:
            self._do(event)

    async def rest(self, seconds: float) -> None:
        """Do nothing for a while of virtual time."""
        over = asyncio.Event()
        self.loop.call_later(seconds, over.set)
        await over.wait()

    def stall(self) -> None:
        """Stop doing anything."""
        self.note("stalls")
        self.is_stalled = True

    def wake(self, *, acts_first: bool) -> None:
        """Continue; with `acts_first` it acts on its old state before it receives what arrived meanwhile."""
        if not self.is_stalled or not self.is_alive:
            return
        self.note("wakes up")
        self.is_stalled = False
        late, heard = self._late, self._heard
        self._late, self._heard = [], []
        for event in [*late, *heard] if acts_first else [*heard, *late]:
            self.run(event)

    def end(self) -> None:
        """End it at once."""
        self.dies()
        self.is_alive = self.is_stalled = False
        self._late, self._heard = [], []
        self.loop.unwind()
        self.ended()

    def _do(self, event: Event) -> None:
        try:
            event()
        except Crashed:
            assert not self.is_alive, "only the dead crash"
        if not self.is_alive:
            self.end()
            self.died()
