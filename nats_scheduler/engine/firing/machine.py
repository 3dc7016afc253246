"""The machine of one schedule: what may happen in each stage, what is done then, and the stages that may follow.

`TABLE` is all of it. Each cell names the function that acts, in the module of what it handles, and the stages that may
follow; `happen` is the only way to one, and raises for what the table does not have.

The rules:

- An event concerns one schedule, and is found out to do so before it comes here: an answer that is late, for an earlier
  fire or an earlier version, is dropped by `engine.firing.answers`.
- What may happen in every stage is no event: a schedule ends (`EngineState.end`), it is done (`purging.purge`), another
  instance owns the stream (`timing.leave`), a calendar is edited (`engine.receiving.named_calendars`), a checkpoint
  settles its fires (`engine.ownership.takeover`).
- A function that acts calls those below it (`advancing`, `sending`, `fetching`, `blocking`, `purging`, `timing`), and
  none calls back: no event follows from another one.

Cost: a look-up for each event.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from nats_scheduler.engine.firing import due, fetched, fetching, outcomes, purging
from nats_scheduler.engine.holding.flight import Stage
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.state import EngineState


class Event(IntEnum):
    """What may happen to a schedule."""

    WOKEN = 0
    """Its wake has come."""
    FETCHED = 1
    """Its content was fetched, and is its own."""
    NOT_FETCHED = 2
    """Its content could not be fetched."""
    FOUND_UNDER = 3
    """A message lies over it that leaves it alive."""
    STORED_OVER = 4
    """Such a message was stored on its subject."""
    DOUBTED = 5
    """It may have been removed."""
    FINISH_ANSWERED = 6
    """It is known, or could not be found out, whether the fire before is finished."""
    STORED = 7
    """Its fire is acknowledged as stored."""
    REFUSED = 8
    """The server refused its fire."""
    UNKNOWN = 9
    """No answer says whether its fire is stored."""
    FORGED = 10
    """Another message has the identity of its fire."""
    NOT_FOUND = 11
    """The stream of its target does not have its fire."""
    CONFIRMED = 12
    """A fire of it is seen in the stream."""
    PURGED = 13
    """It was purged."""
    NOT_PURGED = 14
    """Its purge failed, or was refused."""


Act = Callable[..., None]
"""Acts on an event: takes the state of the stream, the schedule, and what is known of the event."""

Cell = tuple[Act, frozenset[Stage]]
"""The function that acts, and the stages that may follow."""

_S = Stage

PASSED = frozenset({_S.WAITING, _S.DONE_BY_OWNER, _S.PURGING, _S.ENDED})
"""The stages after a fire that was stored, or dropped, of a schedule whose content is not in memory."""

ADVANCED = PASSED | {_S.KEPT, _S.READY}
"""The same if its content may be in memory (`advancing.advance`)."""

SENT = frozenset({_S.IN_FLIGHT, _S.BACKING_OFF})
"""The stages after an attempt to send a fire (`sending.send`)."""

FIRED = (ADVANCED | SENT | {_S.BLOCKED}) - {_S.DONE_BY_OWNER}
"""The stages after a fire came due (`due.fire_due`), which it does for the owner."""


def _to(*stages: Stage) -> frozenset[Stage]:
    return frozenset(stages)


TABLE: Mapping[tuple[Stage, Event], Cell] = {
    (_S.WAITING, Event.WOKEN): (due.woken_waiting, _to(_S.WAITING, _S.FETCHING, _S.DONE_BY_OWNER, _S.ENDED)),
    (_S.WAITING, Event.STORED_OVER): (fetched.stored_over, _to(_S.WAITING)),
    (_S.WAITING, Event.CONFIRMED): (outcomes.confirmed, PASSED),
    #
    (_S.FETCHING, Event.WOKEN): (due.await_answer, _to(_S.FETCHING)),
    (_S.FETCHING, Event.FETCHED): (fetched.fetched, _to(_S.FETCHING) | FIRED),
    (_S.FETCHING, Event.NOT_FETCHED): (fetched.not_fetched, _to(_S.BACKING_OFF, _S.WAITING)),
    (_S.FETCHING, Event.FOUND_UNDER): (fetched.found_under, _to(_S.FETCHING)),
    (_S.FETCHING, Event.DOUBTED): (fetching.fetch_again, _to(_S.FETCHING)),
    (_S.FETCHING, Event.CONFIRMED): (outcomes.confirmed, PASSED),
    #
    (_S.KEPT, Event.WOKEN): (due.woken_with_content, FIRED),
    (_S.KEPT, Event.STORED_OVER): (fetched.stored_over, _to(_S.WAITING, _S.FETCHING)),
    (_S.KEPT, Event.DOUBTED): (fetching.fetch_again, _to(_S.FETCHING)),
    (_S.KEPT, Event.CONFIRMED): (outcomes.confirmed, ADVANCED),
    #
    (_S.READY, Event.WOKEN): (due.woken_with_content, _to(_S.FETCHING) | FIRED),
    (_S.READY, Event.STORED_OVER): (fetched.stored_over, _to(_S.WAITING, _S.FETCHING)),
    (_S.READY, Event.DOUBTED): (fetching.fetch_again, _to(_S.FETCHING)),
    (_S.READY, Event.CONFIRMED): (outcomes.confirmed, ADVANCED),
    #
    (_S.BLOCKED, Event.WOKEN): (due.woken_blocked, _to(_S.BLOCKED, _S.WAITING)),
    (_S.BLOCKED, Event.FINISH_ANSWERED): (due.finish_answered, _to(_S.FETCHING) | FIRED),
    (_S.BLOCKED, Event.DOUBTED): (fetching.fetch_again, _to(_S.FETCHING)),
    (_S.BLOCKED, Event.CONFIRMED): (outcomes.confirmed, ADVANCED),
    #
    (_S.IN_FLIGHT, Event.WOKEN): (due.await_answer, _to(_S.IN_FLIGHT)),
    (_S.IN_FLIGHT, Event.STORED): (outcomes.stored, ADVANCED),
    (_S.IN_FLIGHT, Event.REFUSED): (outcomes.refused, _to(_S.FETCHING, _S.BACKING_OFF, _S.WAITING, _S.ENDED)),
    (_S.IN_FLIGHT, Event.UNKNOWN): (outcomes.unknown, SENT | PASSED),
    (_S.IN_FLIGHT, Event.FORGED): (outcomes.forged, SENT | {_S.WAITING, _S.ENDED}),
    (_S.IN_FLIGHT, Event.NOT_FOUND): (outcomes.not_found, _to(_S.FETCHING, _S.WAITING)),
    (_S.IN_FLIGHT, Event.CONFIRMED): (outcomes.confirmed, ADVANCED),
    #
    (_S.BACKING_OFF, Event.WOKEN): (due.woken_backing_off, SENT | {_S.FETCHING, _S.WAITING}),
    (_S.BACKING_OFF, Event.CONFIRMED): (outcomes.confirmed, ADVANCED),
    #
    (_S.DONE_BY_OWNER, Event.WOKEN): (purging.woken_done_by_owner, _to(_S.PURGING)),
    #
    (_S.PURGING, Event.WOKEN): (purging.woken_purging, _to(_S.PURGING)),
    (_S.PURGING, Event.PURGED): (purging.purged, _to(_S.ENDED)),
    (_S.PURGING, Event.NOT_PURGED): (purging.not_purged, _to(_S.PURGING, _S.UNPURGEABLE)),
}
"""Each event that may happen in a stage. Nothing happens to what is unpurgeable, or has ended."""


def stage_of(held: Held) -> Stage:
    """Return the stage of a schedule."""
    return Stage.WAITING if held.flight is None else held.flight.stage


def may_happen(held: Held, event: Event) -> bool:
    """Return whether an event may happen to a schedule as it is."""
    return (stage_of(held), event) in TABLE


def happen(state: EngineState, held: Held, event: Event, *given: Any, **more: Any) -> None:
    """Act on what happens to a schedule, with what is known of it. Raises `AssertionError`."""
    flight = held.flight
    before = Stage.WAITING if flight is None else flight.stage
    cell = TABLE.get((before, event))
    if cell is None:
        raise AssertionError(f"{event.name} may not happen in {before.name}")
    act, follow = cell
    act(state, held, *given, **more)
    flight = held.flight
    after = Stage.WAITING if flight is None else flight.stage
    if after not in follow:
        raise AssertionError(f"{event.name} led from {before.name} to {after.name}")
