"""Why a stored message cannot be a fire of a sidecar: any client that may publish there can imitate one.

A message counts as a fire only if a sidecar could have stored it. A fire is stored on its schedule's own target, for
one of its fire times, never before that time, and its `Nats-Schedule-Next` is `purge` or a later fire time. Any other
message is an ordinary one, whatever its `Nats-Msg-Id` is.

Limit: a client that may publish to the target can imitate a fire, from its fire time on, without any difference.
"""

from nats_scheduler.message.dialect import DIALECTS, PORTABLE
from nats_scheduler.message.generated import PURGE
from nats_scheduler.message.headers import CRLF, decoded
from nats_scheduler.message.reading import Generated
from nats_scheduler.message.schedule_form import Terms
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import parse_rfc3339

MAX_CLOCK_DIFFERENCE_NS = 5 * SECOND
"""The largest time by which a fire may seem to be stored before its fire time.

The clock of the node that stores it may differ from the clock that a sidecar uses, and either may be stepped.
A genuine fire that is not accepted is stored twice, so this is more than any clock should be wrong.
"""

WRONG_TARGET = "it is not on the schedule's target"
TOO_EARLY = "it was stored before its fire time"


def is_too_early(stored_at: int, fire_time: int) -> bool:
    """Return whether a message that was stored at `stored_at` (ns) is too early for the fire of `fire_time` (ns)."""
    return stored_at < fire_time - MAX_CLOCK_DIFFERENCE_NS


def fault_of(
    generated: Generated, message: StoredMessage, timetable: Timetable, terms: Terms, expected: int | None = None
) -> str:
    """Return the reason why a message cannot be the fire of a schedule that it claims to be; "" if it can.

    The caller checks that it is on the schedule's target.
    `timetable` and `terms` are those of the schedule; `expected` is a fire time (ns) that it has, whatever they say.
    """
    fire_time = generated.fire_time
    if is_too_early(message.stored_at, fire_time):
        return TOO_EARLY
    if fire_time != expected and not timetable.is_fire(fire_time):
        return "its time is no fire time of the schedule"
    # A make-up fire beside a server that fires has the portable names, whatever those of its schedule are.
    following = _line(message.block, terms.dialect.next) or _line(message.block, PORTABLE.next)
    if not _fits(following, fire_time, repeats=timetable.repeats):
        return f"its {terms.dialect.next.decode()} is neither 'purge' nor a later fire time"
    return ""


def names_end(block: bytes, terms: Terms) -> bool:
    """Return whether a fire of a schedule says that it is the last one."""
    return _line(block, terms.dialect.next) == PURGE


def fault_of_following(generated: Generated, message: StoredMessage) -> str:
    """Return why the next fire that a fire names is impossible for any schedule; "" if it is possible."""
    for dialect in DIALECTS:
        following = _line(message.block, dialect.next)
        if following:
            fits = _fits(following, generated.fire_time, repeats=True)
            return "" if fits else f"its {dialect.next.decode()} is none that follows"
    return "it does not say what follows"


def _line(block: bytes, name: bytes) -> bytes:
    """Return the value of a header that the sidecar writes, even if a publisher's header hides it from the server."""
    start = block.find(b"\n" + name + b": ")
    if start < 0:
        return b""
    start += len(name) + 3
    return block[start : block.find(CRLF, start)]


def _fits(following: bytes, fire_time: int, *, repeats: bool) -> bool:
    """Return whether `following` can be the `Nats-Schedule-Next` of a fire.

    Any later time is accepted: the exact one depends on the zone files, which may have changed since.
    """
    if following == PURGE:
        return True
    next_fire = parse_rfc3339(decoded(following))
    return repeats and isinstance(next_fire, int) and next_fire > fire_time
