"""Bugs that are planted on purpose: the promise that each breaks, and a seed that shows it.

Its rule: a bug is one small change of the product that could be made by mistake, undone when the block ends: one
function or constant, most often a public one, and called through its module. It is named by what it breaks, and entered
in `BUGS`: each promise has some, and so has each area. What is seen in worlds made by hand stands beside these worlds;
what the tests of one part find has its test there, so of the driver, which only the simulation runs as a whole, more is
planted than of the engine.
Limit: a checkpoint that is missing or claims too little breaks no promise here, and must not, but where each missed
fire is owed: an instance that starts without one reads what the stream holds, and the server drops what is repeated
within the duplicate window. So those that are planted claim too much; `tests/runtime/test_checkpoints.py` holds the
rest.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from nats_scheduler.engine.actions import PublishFires, WakeAt
from nats_scheduler.engine.fire import FetchDuplicate
from nats_scheduler.engine.firing import answers, blocking, building, confirming, identities, other_stream, timing
from nats_scheduler.engine.holding import deadlines, schedule_rows
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.progress import Progress
from nats_scheduler.engine.holding.proposals import Proposals
from nats_scheduler.engine.holding.purges import Purges
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.engine.inputs import Checkpoint, ContentFetched, PublishConcluded, Stored
from nats_scheduler.engine.ownership.order import Order, Stance
from nats_scheduler.engine.ownership.owners import Owners
from nats_scheduler.engine.ownership.takeover import Takeover
from nats_scheduler.engine.receiving.admission import Admission
from nats_scheduler.engine.receiving.named_calendars import Calendars
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.runtime.driver import StreamDriver
from nats_scheduler.runtime.schedule_file import StreamRows
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from tests.judge.history import NEVER
from tests.simulation.scenario import Scenario, drawn, with_files, with_roll_ups, with_standbys, with_unable

Changes = Callable[[], Iterable[tuple[Any, str, Any]]]
"""Gives what is changed: a module or class, the name of an attribute, and what is in its place."""


class Bug(NamedTuple):
    """A bug of the product."""

    promise: str
    """The promise that it breaks."""
    seed: int
    """A seed that shows it, and takes little time."""
    changes: Changes
    draw: Callable[[int], Scenario] = drawn


@contextmanager
def planted(changes: Changes) -> Iterator[None]:
    """Plant a bug while the block runs."""
    undone = []
    try:
        for place, name, changed in list(changes()):
            undone.append((place, name, getattr(place, name)))
            setattr(place, name, changed)
        yield
    finally:
        for place, name, original in reversed(undone):
            setattr(place, name, original)


def instead(place: Any, name: str, changed: Any) -> Changes:
    """Put something in the place of an attribute."""
    return lambda: [(place, name, changed)]


def around(place: Any, name: str, changed: Callable[..., Any]) -> Changes:
    """Put a function in the place of another one, which it gets as its first argument."""

    def changes() -> Iterable[tuple[Any, str, Any]]:
        original = getattr(place, name)
        yield place, name, lambda *given, **named: changed(original, *given, **named)

    return changes


def together(*parts: Changes) -> Changes:
    """Make several changes."""
    return lambda: [change for part in parts for change in part()]


BUGS = {
    # -- fires
    "stale_fire_stored": Bug("Gone", 29, instead(building, "guard_headers", lambda *_: ())),
    "fire_sent_early": Bug(
        "Timely", 4, around(Held, "send_time_of", lambda original, *given: original(*given) - 100 * MILLISECOND)
    ),
    "sampled_early": Bug("Faithful", 49, instead(timing, "ahead_of", lambda state, _held: state.longest_ahead)),
    "target_not_rolled_up": Bug("Faithful", 5, instead(Purges, "roll_up", lambda *_, **_how: None), with_roll_ups),
    # -- removals and TTLs
    "expired_message_not_removed": Bug("Gone", 11, instead(StreamDriver, "_remove", lambda *_: None)),
    "old_versions_left_over": Bug("Gone", 88, instead(Purges, "keep_old_versions", lambda *_: None)),
    # -- the answers of a server, and other clients
    "forgery_believed": Bug("Complete", 3, instead(confirming, "fault_of_generated", lambda *_, **_more: "")),
    "accepted_fire_sent_again": Bug("Unique", 1286, instead(Proposals, "is_unconcluded", lambda *_, **_how: False)),
    "identity_in_process_waited_for": Bug("Live", 66, instead(identities, "try_next", lambda *_: False)),
    "fire_in_another_stream_not_found": Bug(
        "Unique", 116, instead(other_stream, "latest_found", lambda _state, _held, look: (look.first, None))
    ),
    # -- policies
    "fire_before_ignored": Bug("Overlap", 24, instead(blocking, "block", lambda *_: False)),
    "unfinished_fire_not_reported_again": Bug("Done", 4, instead(deadlines, "SETTLED_NS", -NEVER), with_files),
    # -- the owner of a stream, and files
    "checkpoint_that_settles_too_much": Bug(
        "Complete",
        31,
        instead(StreamEngine, "checkpoint", lambda self, now: Checkpoint(now + 3 * SECOND, self.last_read)),
    ),
    "idle_owner_not_passed_over": Bug("Live", 1, instead(Owners, "judge_owner", lambda *_: None), with_unable),
    "fire_before_not_in_file": Bug("Overlap", 28, instead(schedule_rows, "read_history", lambda *_: None), with_files),
}
"""Each bug by its name; more are entered below."""


def breaks(
    promise: str, seed: int, place: Any, name: str, draw: Callable[[int], Scenario] = drawn
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function as a bug: it is put in the place of another one, which it gets as its first argument."""

    def enter(changed: Callable[..., Any]) -> Callable[..., Any]:
        BUGS[changed.__name__] = Bug(promise, seed, around(place, name, changed), draw)
        return changed

    return enter


# -- fires, and what carries out the actions of the engine -------------------------------------------------------------


@breaks("Complete", 33, answers, "publish_concluded")
def unknown_outcome_taken_for_stored(original: Any, state: EngineState, given: PublishConcluded) -> None:
    original(state, PublishConcluded(given.fire, Stored(0)))


@breaks("Complete", 14, StreamDriver, "_publish")
def last_fire_of_a_burst_not_sent(original: Any, self: StreamDriver, request: PublishFires) -> None:
    original(self, PublishFires(request.fires[:-1]) if len(request.fires) > 1 else request)


@breaks("Live", 6, StreamDriver, "_wake_at")
def engine_woken_late(original: Any, self: StreamDriver, given: WakeAt) -> None:
    original(self, WakeAt(given.instant + SECOND))


@breaks("Complete", 32, StreamDriver, "_ask")
def duplicate_not_read(original: Any, self: StreamDriver, question: Any) -> None:
    if not isinstance(question, FetchDuplicate):
        original(self, question)


@breaks("Live", 16, Progress, "contact_lost")
def silent_after_an_outage(original: Any, self: Progress) -> None:
    """Stay closed once contact was lost."""
    original(self)
    self.is_draining = self.last_read > 0


# -- replacements ------------------------------------------------------------------------------------------------------


def first_only(original: Any, self: Admission, held: Held, before: Held | None) -> None:
    if before is None:
        original(self, held, before)


def any_content_believed(original: Any, state: EngineState, read: ContentFetched) -> Any:
    if read.message is not None and read.message.sequence > read.sequence:
        read = read._replace(message=read.message._replace(sequence=read.sequence))
    return original(state, read)


# Either part of it alone is made up for by the other one.
BUGS["replacement_ignored"] = Bug(
    "Latest",
    2,
    together(around(Admission, "accept", first_only), around(answers, "content_fetched", any_content_believed)),
)


# -- policies ----------------------------------------------------------------------------------------------------------


@breaks("Complete", 83, Calendars, "read")
def edits_not_followed(original: Any, self: Calendars, given: Any, now: int) -> None:
    """Take the calendars as they were when they were read first."""
    if not self.are_read:
        original(self, given, now)


# -- the owner of a stream, and files ----------------------------------------------------------------------------------


@breaks("Complete", 180, Takeover, "owner_changed")
def takeover_without_the_checkpoint(original: Any, self: Takeover, change: Any, now: int) -> Any:
    return original(self, replace(change, checkpoint=None), now)


@breaks("Owned", 14, StreamService, "own")
async def stream_never_let_go(original: Any, self: StreamService, is_owner: bool, *rest: Any) -> Any:
    """Continue to fire for a stream that the record gives to another instance."""
    return await original(self, is_owner or self.is_owner, *rest)


@breaks("Complete", 4, Order, "includes", with_standbys)
def gone_instances_not_replaced(
    original: Any, self: Order, me: str, key: str, mine: Stance, others: Any, now: int
) -> bool:
    """Begin to read a stream only in the first seconds of a process."""
    is_new = self._began_at is None or now - self._began_at < 2 * SECOND
    return (mine.reads or is_new) and bool(original(self, me, key, mine, others, now))


@breaks("Complete", 0, StreamRows, "write_now", with_files)
def document_of_rows_that_are_not_written(original: Any, self: StreamRows) -> None:
    if self.engine is not None:
        self.engine.held._changed.clear()
    original(self)
