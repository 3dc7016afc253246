"""Go on with fires whose targets are in other streams, after a look into these.

No follower reads such fires back, and the guard of a publish cannot name a message of another stream. So:

- A schedule is read shortly before each of its fires, as all are on a server without the guard.
- A fire that may be stored without our knowledge is looked for in the stream of its target before it is sent: one of
  unknown outcome, one that came due before this instance could fire it, since an earlier holder may have stored it and
  written no checkpoint since, and one that is late (`Firing.send`). What is stored after the look is a matter of the
  duplicate window.
- A later fire of the same schedule counts too: the instance that stored it has dealt with all before it.

Cost: nothing for a fire in time; for one that is looked for, a look and another read of its schedule.
Limit: what was removed from the other stream is not found.
"""

from collections.abc import Callable

from nats_scheduler.engine.actions import Action, Report
from nats_scheduler.engine.events import FireForged
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.firing.course import Course
from nats_scheduler.engine.firing.outcomes import Outcomes
from nats_scheduler.engine.holding.flight import Flight
from nats_scheduler.engine.holding.held import Held, HeldElsewhere
from nats_scheduler.engine.holding.lifecycle import Lifecycle
from nats_scheduler.engine.inputs import FireLookedFor, FireNotLookedFor, PublishConcluded, Stored, Unknown
from nats_scheduler.engine.reading.landed import fault_elsewhere
from nats_scheduler.message.reading import read_generated
from nats_scheduler.message.stored import StoredMessage


class Elsewhere:
    """The looks into other streams for the fires of one stream."""

    def __init__(
        self, outcomes: Outcomes, course: Course, lifecycle: Lifecycle, emit: Callable[[Action], None]
    ) -> None:
        self._outcomes = outcomes
        self._course = course
        self._lifecycle = lifecycle
        self._emit = emit

    def concluded(self, look: FireLookedFor | FireNotLookedFor, now: int) -> None:
        """Go on with a fire that was looked for: it is stored, or is to be sent, or this is not known yet."""
        if isinstance(look, FireNotLookedFor):
            outcome = look.refusal or Unknown(look.reason, may_be_stored=False)
            self._outcomes.concluded(PublishConcluded(look.fire, outcome), now)
            return
        fire, held = look.fire, self._lifecycle.awaiting(look.fire)
        if not isinstance(held, HeldElsewhere) or held.flight is None:
            self._outcomes.is_not_stored()
            return
        latest, message = self._latest(held, look)
        if message is not None:
            held.flight.missed_since = _missed_between(held, latest, fire)
        if message is not None and latest == fire.fire_time:
            self._outcomes.is_stored(fire, Stored(message.sequence, duplicate=True), now)
            fire.stored_at = message.stored_at
            return
        self._outcomes.is_not_stored()
        if message is not None:
            held.fire_is_stored(latest, message.sequence, message.stored_at)
        if message is not None and latest > fire.fire_time:
            self._outcomes.was_fired(held, latest, message)
        else:
            self._was_not_found(held, held.flight, fire, now)

    def _was_not_found(self, held: HeldElsewhere, flight: Flight, fire: Fire, now: int) -> None:
        """Go on with a fire that another stream does not have: what is read of its schedule has aged meanwhile.

        One that was not sent before may have become a make-up fire for a later time.
        """
        held.was_not_found(fire.fire_time, now)
        if not self._lifecycle.ownership.is_ours(held):
            self._course.leave_to_holder(held, now)
            return
        if not (flight.may_be_stored or fire.taken):  # built anew, it would have the identity again that is taken
            flight.fire = None
        self._course.read(held)

    def _latest(self, held: Held, look: FireLookedFor) -> tuple[int, StoredMessage | None]:
        """Return the fire time of the latest fire that was found and can be genuine, and it; None if there is none."""
        latest: StoredMessage | None = None
        fire_time = look.first
        for message in look.found:
            generated = read_generated(message.block)
            if generated is None or generated[:2] != (held.subject, held.sequence) or generated.fire_time < fire_time:
                continue
            fault = fault_elsewhere(held, generated, message)
            if not fault:
                fire_time, latest = generated.fire_time, message
                continue
            claimed = generated.schedule, generated.sequence, generated.fire_time
            self._emit(Report(FireForged(*claimed, message.subject, message.sequence, fault)))
        return fire_time, latest


def _missed_between(held: Held, latest: int, fire: Fire) -> int | None:
    """Return the first fire time (ns) after the `latest` that is stored, for which a fire stands as well; None if none.

    What was missed before that was reported by the instance that stored it.
    """
    first = held.next_fire(latest) if latest < fire.fire_time else None
    return first if first is not None and first < fire.fire_time else None
