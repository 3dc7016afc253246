"""Return whether a stored message can be a fire of ours: whoever may publish to the stream can write what looks like one.

The rule: only what could have been stored by a sidecar is believed.
A fire lies on its schedule's own target, is for one of its fire times, is never stored before that time, and says what
follows it.
What does not fit is an ordinary message, whatever its `Nats-Msg-Id` says.

Cost: a comparison where the fire is the one that is due, which is nearly always; else a look at the pattern.
Limit: who may publish to the target itself can write, from its time on, what no look at it tells from the fire.
"""

from nats_scheduler.message.definition import Terms
from nats_scheduler.message.generated import PURGE
from nats_scheduler.message.headers import CRLF
from nats_scheduler.message.reading import Generated
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.patterns import Pattern
from nats_scheduler.schedule.rfc3339 import parse_rfc3339

CLOCKS_DIFFER_BY = 5 * SECOND
"""How much earlier (ns) than its time a fire may seem to be stored.

The node that stamps it may have another clock than the one that a sidecar goes by, and either may be set.
A fire of ours that is not believed is stored twice, so this is more than any clock should be off.
"""

ELSEWHERE = "it does not lie on the schedule's target"
TOO_EARLY = "it was stored before its fire time"


def is_too_early(stored_at: int, fire_time: int) -> bool:
    """Return whether what was stored at an instant (ns) cannot be the fire of another."""
    return stored_at < fire_time - CLOCKS_DIFFER_BY


def fault_of(
    generated: Generated, message: StoredMessage, pattern: Pattern, terms: Terms, scheduled_at: int, due: int
) -> str:
    """Return why a message cannot be the fire of a schedule that it claims to be; "" if it can.

    Whether it lies where fires of the schedule lie is for the caller to say.
    `scheduled_at` is when the schedule was stored (ns), `due` one of its fire times, for which it is most often.
    """
    fire_time = generated.fire_time
    if is_too_early(message.stored_at, fire_time):
        return TOO_EARLY
    if fire_time != due and not pattern.is_fire(fire_time, scheduled_at):
        return "its time is no fire time of the schedule"
    if not _fits(_line(message.block, terms.dialect.next), fire_time, repeats=pattern.repeats):
        return f"its {terms.dialect.next.decode()} is none that follows"
    return ""


def _line(block: bytes, name: bytes) -> bytes:
    """Return the value of a header that we write, wherever a publisher's own may hide it from a server's search."""
    start = block.find(b"\n" + name + b": ")
    if start < 0:
        return b""
    start += len(name) + 3
    return block[start : block.find(CRLF, start)]


def _fits(following: bytes, fire_time: int, *, repeats: bool) -> bool:
    """Return whether a fire may say that this follows it.

    Any later time will do: which one depends on the zone files, and they may have changed since.
    """
    if following == PURGE:
        return True
    next_fire = parse_rfc3339(following.decode("utf-8", "surrogateescape"))
    return repeats and isinstance(next_fire, int) and next_fire > fire_time
