"""A fire that is ready to be sent, with the same bytes each time it is repeated, and what is asked about one."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(slots=True, eq=False)
class Fire:
    """One publish of one schedule for one fire time. Two fires are equal only when they are the same object."""

    schedule: str
    sequence: int
    """Stream sequence of the schedule message that it came from."""
    fire_time: int
    """Nanoseconds since the Unix epoch."""
    next_fire: int | None
    """The next fire time (ns) of the schedule, None if it ends with this fire."""
    target: str
    block: bytes
    """The complete header block, identity and guard included; empty, as is the body, once it is known to be stored."""
    body: bytes
    schedule_stored_at: int = 0
    """The instant (ns) at which the schedule message was stored."""
    is_to_other_stream: bool = False
    """True if its target is in another stream than its schedule: `stored_as` is a sequence of that stream."""
    last: int = 0
    """Sequence of the last message on the schedule's subject when it was built: its own, or one over it."""
    stored_as: int = 0
    """Stream sequence under which it is stored, once that is known."""
    stored_at: int = 0
    """The instant (ns) at which it was stored, as in the stream; that of its acknowledgement if no other is known."""
    delay: int = 0
    """The time (ns) from its fire time until it is sent."""
    taken: int = 0
    """The number in its identity, 0 for the first one (`message.identity`)."""
    is_to_roll_up: bool = False
    """True if the messages before it on its target are to be purged once it is stored."""
    purge_through: int = 0
    """If it is not 0, the versions of its schedule up to this sequence are purged as soon as it is acknowledged."""
    is_watched: bool = False
    """True if its headers say within which time it is to be done (`engine.holding.deadlines`)."""
    advances_later: bool = False
    """True if its schedule advances when it is reported, and not as soon as it is acknowledged."""
    was_stored_before: bool = False
    """True if the acknowledgement called it a duplicate: the server had stored it before."""


# The questions about a fire: actions of the engine. Each is answered by an input of its own, or by `Unanswered`.


class FetchContent(NamedTuple):
    """Read the last message on the schedule's subject and on `source`; answer `ContentFetched`."""

    schedule: str
    sequence: int
    source: str | None
    by_sequence: bool = False
    """The message with the sequence is enough, even if newer ones follow it: the guard checks again at the publish."""
    above: int = 0
    """If it is not 0, a message is over the schedule, and what is stored there is known up to this sequence. Then read
    the message with the schedule's sequence, and the first message on the subject above this one."""
    may_wait: bool = False
    """Its fire is not due for a second or more: it may be read together with what is asked for a little later."""


class FetchDuplicate(NamedTuple):
    """Read the message with this sequence, under which the server reports that a fire is stored already.

    Answer `DuplicateFetched`.
    """

    fire: Fire
    sequence: int
    stream: str = ""
    """The stream that it is in; "" for the one of the schedule."""


class AwaitProposals(NamedTuple):
    """Wait until the leader of the stream has applied all that it has accepted before it receives this request.

    Answer `ProposalsApplied`. Nothing in the stream changes by it.
    """

    fire: Fire


class LookForFire(NamedTuple):
    """Read whether the stream with the target of a fire, another one than its schedule's, has that fire.

    Answer `FireLookedFor` with the generated messages on the target that name this version of the schedule, and the
    fire time or a later one. Messages that were stored more than `MAX_CLOCK_DIFFERENCE_NS` before `since` (ns) do not
    matter.
    """

    fire: Fire
    since: int
    first: int
    """The answer may contain older fires too, from this fire time (ns) on, as far as they are found without effort."""
    was_sent: bool = False
    """True if this instance sent the fire before. If not, the answer may be what the stream held a second ago."""


class CheckFinished(NamedTuple):
    """Find out whether a fire of a schedule is unfinished (`engine.firing.blocking` says when); the answer names it.

    The fires in question are stored on `target` above sequence `after`, up to `through`: the one with sequence
    `through` if that is `after + 1`, and else any. One is unfinished while it is stored, and, if a `consumer` is named,
    that consumer has not acknowledged it; the answer says also whether it has given it up. Answer `FinishChecked`.
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
        """True if one fire is in question, and its sequence is known."""
        return self.through == self.after + 1


class CompareBodies(NamedTuple):
    """Read whether two messages on the subject of a schedule, `sequence` and a later one, have different bodies.

    Answer `BodiesCompared`.
    """

    schedule: str
    sequence: int
    replaced_by: int


Question = FetchContent | FetchDuplicate | AwaitProposals | LookForFire | CheckFinished | CompareBodies
"""A question about one fire, or about one schedule."""


def given_up_by(consumer: str) -> str:
    """Return why a consumer that is past a fire, and holds nothing any more, does not finish it."""
    return f"consumer {consumer} holds it no more: at its max_deliver, or created again behind it"


def consumer_missing(stream: str, consumer: str) -> str:
    """Return why a consumer that does not exist finishes nothing."""
    return f"stream {stream} has no consumer {consumer!r}"


def target_not_received(consumer: str, target: str) -> str:
    """Return why a consumer that does not receive the target finishes nothing."""
    return f"consumer {consumer!r} does not receive {target!r}"
