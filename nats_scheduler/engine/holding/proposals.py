"""What may be in flight at the leader is concluded before a fire is sent that may be stored without our knowledge.

As the server does: the leader of a stream with replicas remembers what it has accepted and not applied. Whatever
changes who leads (a kill, a pause, a step-down) makes it forget the identities of that, also if the same node leads
again. The messages may be stored all the same: a fire that is sent again meanwhile is then stored twice, with the
same identity.

The rules, for streams with replicas:

- A fire that may be stored already is sent only after the leader has applied all that it had accepted, asked after
  the last attempt was concluded: then it is stored, and its identity known, or it never will be.
- It may be stored already if an attempt has an unknown outcome, or if it was due before this instance could fire it:
  another instance, or an earlier life of this one, may have sent it.
- One question serves all fires that wait.
- If the leader can never be asked (`deny_purge`, a missing permission), fires are sent as without replicas.

Cost: nothing for a fire that is stored at once; one request for all that have to wait. Limit: a fire that two
instances send at its time, while a stream is handed over, is not in question for either of them.
"""

from collections.abc import Callable

from nats_scheduler.engine.actions import Action
from nats_scheduler.engine.fire import AwaitProposals, Fire
from nats_scheduler.engine.holding.flight import Flight, InProcess, Stage, wait_after
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.scheduled import Schedules
from nats_scheduler.engine.inputs import ProposalsApplied, Unanswered
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

ASKED_AGAIN_LIMIT_NS = 400 * MILLISECOND
"""Longest wait before a question that was not answered is asked again: *Live* promises that fires resume within 3 s."""


PROOF_AGE_LIMIT_NS = 3 * SECOND
"""If the question to the leader was asked longer ago, it is asked again: the stream may have another leader."""


class Proposals:
    """The questions to the leader of one stream, one at a time, and what they have proven."""

    def __init__(self, schedules: Schedules, emit: Callable[[Action], object], *, is_replicated: bool) -> None:
        self._schedules = schedules
        self._emit = emit
        self._is_replicated = is_replicated
        self.begun = 0
        """The number of questions that were asked."""
        self._confirmed = 0
        """The number of the last one that was confirmed."""
        self._begun_at = self._confirmed_at = 0
        """The instants (ns) at which the last one was asked, and the last one of those that were confirmed."""
        self._able_since = 0
        """The number of questions that had been asked when this instance became able to fire."""
        self._is_impossible = False
        self._failures = 0
        self._asked: list[InProcess] = []
        self._to_ask: list[InProcess] = []
        """Identities in process about which to ask next."""
        self._asked_for: dict[int, tuple[Held, Fire]] = {}
        """The schedules whose fires wait for the answer, by sequence."""
        self._waiting: dict[int, tuple[Held, Fire]] = {}
        """Those for which it is asked next: what they have sent was concluded after the last question."""
        self._is_open = False
        """True if a question is not answered."""

    def caught_up(self) -> None:
        """Note that all that is stored has been read: what was due before may be in flight, from another instance."""
        self._is_impossible = False
        self.took_over()

    def took_over(self) -> None:
        """Note that the stream is ours from now on."""
        self._able_since = self.begun

    def proves(self, now: int) -> bool:
        """Return whether a repeated attempt proves that nothing is stored any more under an identity in process.

        It was sent after all was applied that had been accepted before, by the same leader unless that was long ago.
        """
        is_asked = self._is_replicated and not self._is_impossible
        return is_asked and now - self._confirmed_at <= PROOF_AGE_LIMIT_NS

    def is_unconcluded(self, held: Held, flight: Flight, *, may_be_sent_by_others: bool) -> bool:
        """Return whether the fire of a schedule may be in flight at the leader."""
        if not self._is_replicated or self._is_impossible or held.is_to_other_stream:
            return False
        since = -1 if flight.unconcluded is None else flight.unconcluded
        if may_be_sent_by_others:
            since = max(since, self._able_since)
        return self._confirmed <= since

    def wait(self, held: Held, fire: Fire, now: int) -> None:
        """Wake a schedule when what may be in flight is concluded."""
        self._waiting[held.sequence] = held, fire
        self.ask_next(now)

    def ask_about(self, found: InProcess, now: int) -> None:
        """Ask about an identity in process; `answered` returns it."""
        self._to_ask.append(found)
        self.ask_next(now)

    def answered(self, answer: ProposalsApplied | Unanswered, now: int) -> list[InProcess]:
        """Wake what waited for this answer, and return the identities in process that were asked about."""
        asked, self._asked, self._is_open = self._asked, [], False
        is_confirmed = isinstance(answer, ProposalsApplied)
        if is_confirmed:
            self._confirmed, self._confirmed_at, self._failures = self.begun, self._begun_at, 0
        else:
            self._failures += 1
            self._is_impossible = isinstance(answer, Unanswered) and answer.denied
        wait = 0 if is_confirmed else wait_after(self._failures, ASKED_AGAIN_LIMIT_NS)
        waited, self._asked_for = self._asked_for, {}
        for held, _fire in waited.values():
            if held.flight is not None and held.flight.stage is Stage.BACKING_OFF:
                self._schedules.wake(held, now + wait)
        return asked

    def ask_next(self, now: int) -> None:
        """Ask about what waits, unless the last question is still open."""
        if self._is_open or not (self._to_ask or self._waiting):
            return
        self._asked, self._to_ask = self._to_ask, []
        self._asked_for, self._waiting = self._waiting, {}
        self._is_open = True
        self.begun, self._begun_at = self.begun + 1, now
        fire = self._asked[0].fire if self._asked else next(iter(self._asked_for.values()))[1]
        self._emit(AwaitProposals(fire))
