"""When a stream lets go of its schedules by itself, and why one is gone that was held.

A stream removes messages without a request: by `max_age`, by a message's own TTL, and by its limits of messages and
bytes. A schedule that goes that way before its fire is a mistake that nobody sees, so it is told.

The rules:

- A TTL is known from the message alone: what has one ends when it runs out, wherever the server sees to it.
- `max_age` is believed of the server only: when it is over the schedule is looked at, and again after a while where it
  is still there, since servers remove such messages some time later.
- A removal that somebody asked for is no limit's doing: requests seen on the API are remembered until what they
  concern is found gone.

Cost: an addition for each schedule that is read or moves on; one dictionary entry for each request to remove a
schedule that is held. Limit: `Nats-Rollup: all` empties a stream without a request, and is taken for a limit.
"""

from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.held import NEVER_EXPIRES, NO_EXPIRY, Held
from nats_scheduler.engine.inputs import RemovalRequested
from nats_scheduler.engine.roster import Roster
from nats_scheduler.message.expiry import lifetime_of
from nats_scheduler.message.headers import MSG_TTL, header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import is_literal_subject, subject_matches
from nats_scheduler.schedule.instants import SECOND

MAX_AGE_SLACK_NS = 2 * SECOND
"""So long (ns) after `max_age` is over a schedule is looked at: servers look for what has aged about once a second."""

MAX_REQUESTS_NOTED = 10_000
"""Requests to remove one message that are remembered; then the oldest is forgotten."""

MAX_WIDE_REQUESTS_NOTED = 64
"""Requests with a wildcard, or for a whole stream, that are remembered."""

_MARKER = b"Nats-Marker-Reason"
_NEVER = b"never"


class Lifetimes:
    """The ends of the schedules of one stream that nobody asks for."""

    def __init__(self, rules: StreamRules, *, removes_expired: bool, keeps_all: bool) -> None:
        """Take what the stream says; `removes_expired` where the server does not act on TTLs, and the sidecar does.

        `keeps_all` is False where consumers remove messages too.
        """
        self._keeps_all = keeps_all
        self.limited(rules)
        self._reads_ttl = not removes_expired and rules.allow_msg_ttl
        self._asked: dict[int, None] = {}
        self._wide: list[tuple[str | None, int]] = []
        self._discarded_through = 0
        """What was read up to this sequence may have been asked for in a request that is forgotten."""
        self._unseen_through = 0
        """What was read up to this sequence may have been asked for while nobody listened."""

    def limited(self, rules: StreamRules) -> None:
        """Go by the limits of the stream, which may have changed.

        A schedule that is held and waits is looked at when it would have been before; then the new limits count.
        """
        self.max_age = rules.max_age
        """How long (ns) the stream keeps a message; 0 where it sets no time."""
        self._evicts = rules.evicts and self._keeps_all

    def expiry(self, message: StoredMessage, known: int | None) -> int:
        """Return when the TTL of a schedule runs out (ns); `known` is what the sidecar has to see to itself."""
        if known is not None:
            return known
        if not self._reads_ttl or message.block.find(MSG_TTL) < 0:
            return NO_EXPIRY
        lifetime = lifetime_of(message.block)
        if lifetime is not None:
            return message.stored_at + lifetime
        # As newer servers do: such a message outlives `max_age`.
        return NEVER_EXPIRES if header_value(message.block, MSG_TTL) == _NEVER else NO_EXPIRY

    def ends(self, held: Held) -> int:
        """Return when the stream lets go of a schedule (ns); `NO_EXPIRY` or later where it keeps it."""
        if not self.max_age or held.expires == NEVER_EXPIRES:
            return held.expires
        return min(held.expires, held.stored_at + self.max_age)

    def early(self, held: Held) -> Ending | None:
        """Say what ends a schedule before its next fire, None where nothing does."""
        ends = self.ends(held)
        if ends > held.due:
            return None
        return Ending.EXPIRED if ends == held.expires else Ending.MAX_AGE

    def age_check_at(self, held: Held, now: int = 0) -> int:
        """Return when (ns) to look whether `max_age` has ended a schedule; one that outlived it is looked at again.

        Again after as long as it did, so that one which is kept for another reason costs a few looks in its life.
        """
        if held.expires == NEVER_EXPIRES:
            return NEVER_EXPIRES
        aged = held.stored_at + self.max_age
        return max(aged, now) + max(MAX_AGE_SLACK_NS, now - aged)

    def why_gone(self, held: Held, now: int) -> Ending:
        """Say why a schedule is found gone at `now` (ns)."""
        if self._was_asked(held):
            return Ending.REMOVED
        if self.ends(held) <= now:
            return Ending.EXPIRED if held.expires <= now else Ending.MAX_AGE
        return Ending.LIMITS if self._evicts and held.sequence > self._unseen_through else Ending.REMOVED

    def why_expired(self, held: Held) -> Ending:
        """Say why a schedule ends whose TTL has run out, and which may have been removed long before."""
        return Ending.REMOVED if self._was_asked(held) else Ending.EXPIRED

    def why_covered(self, held: Held, message: StoredMessage) -> Ending:
        """Say why a message that is no schedule took the place of one: it may be the marker that the server left."""
        if message.block.find(_MARKER) < 0:
            return Ending.OVERWRITTEN
        if header_value(message.block, _MARKER) != b"MaxAge":
            return Ending.REMOVED
        return Ending.EXPIRED if held.expires <= message.stored_at else Ending.MAX_AGE

    # -- requests ------------------------------------------------------------------------------------------------

    def removal_requested(self, request: RemovalRequested, roster: Roster, last_read: int) -> None:
        """Remember what may be gone because somebody asked for it; `last_read` is the highest sequence read."""
        below = last_read + 1 if request.below is None else request.below
        if request.sequence is not None:
            self._remember(request.sequence)
        elif request.filter is None or not is_literal_subject(request.filter):
            self._wide.append((request.filter, below - 1))
            if len(self._wide) > MAX_WIDE_REQUESTS_NOTED:
                self._discarded_through = max(self._discarded_through, self._wide.pop(0)[1])
        elif (held := roster.on(request.filter)) is not None and held.sequence < below:
            self._remember(held.sequence)

    def requests_missed(self, last_read: int) -> None:
        """Note that what was read up to `last_read` may have been removed while no request was seen."""
        self._unseen_through = last_read

    def _remember(self, sequence: int) -> None:
        self._asked[sequence] = None
        if len(self._asked) > MAX_REQUESTS_NOTED:
            oldest = next(iter(self._asked))
            del self._asked[oldest]
            self._discarded_through = max(self._discarded_through, oldest)

    def _was_asked(self, held: Held) -> bool:
        """Tell whether somebody asked to remove a schedule, or may have."""
        if held.sequence in self._asked or held.sequence <= self._discarded_through:
            return True
        return any(
            held.sequence <= through and (wanted is None or subject_matches(held.subject, wanted))
            for wanted, through in self._wide
        )


UNLIMITED = Lifetimes(StreamRules("", ()), removes_expired=True, keeps_all=False)
"""Those of a stream that keeps everything."""
