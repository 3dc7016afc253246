"""The replicas of the stream, which agree slowly at times on what its leader has received.

Its rule: the leader records an identity when it receives a fire, and applies what it has received in that order. So
while the replicas agree, a second request with the same identity is answered "in process".
Limit: messages of publishers are stored at once, and fires into another stream.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from nats_scheduler.engine.fire import AwaitProposals, Fire
from nats_scheduler.engine.inputs import Input, Outcome, ProposalsApplied, PublishConcluded, Refused
from nats_scheduler.testing.network import Fate
from tests.harness.replicated import LaggingContact, ReplicatedStream
from tests.simulation.timeline import Timeline


class Agreement:
    """The fires on which the replicas of one stream have still to agree."""

    def __init__(self, stream: ReplicatedStream, timeline: Timeline) -> None:
        self._stream = stream
        self._timeline = timeline
        self._applied_at = 0
        self.takes = 0
        """The time (ns) that they need for what is received from now on."""

    @property
    def is_immediate(self) -> bool:
        """True if what is received now is applied now."""
        return not self.takes and self._applied_at <= self._timeline.now

    def store(self, target: str, block: bytes, body: bytes, conclude: Callable[[Outcome], None]) -> None:
        """Receive a fire, and conclude it once the replicas have agreed, or at once if its identity is known."""
        answer = self._stream.propose(block)
        if answer is not None:
            conclude(answer)
            return
        self._applied_at = max(self._applied_at, self._timeline.now + self.takes)
        self.when_applied(lambda: conclude(self._stream.publish_proposed(target, block, body)))

    def change_leader(self) -> None:
        """Let the leader change while the replicas agree: what it has accepted is stored, and not known until then."""
        self._stream.change_leader()

    def when_applied(self, then: Callable[[], None]) -> None:
        """Do something when everything is applied that was received before."""
        self._timeline.after(max(self._applied_at - self._timeline.now, 0), then)


class _Proposal(NamedTuple):
    """A request that the replicas have to agree on."""

    do: Callable[[], Input]
    fail: Callable[[str, Refused | None], Input]
    begin: Callable[[Callable[[Input], None]], None]
    """Begins it; its argument is called with the answer."""


class AgreedContact(LaggingContact):
    """Contact with a stream whose replicas may agree slowly."""

    agreement: Agreement

    def _storing(self, fire: Fire) -> Any:
        request, sent = super()._storing(fire), (fire.target, fire.block, fire.body)

        def begin(answer: Callable[[Input], None]) -> None:
            self.agreement.store(*sent, lambda outcome: answer(PublishConcluded(fire, outcome)))

        return request if fire.is_elsewhere else _Proposal(*request, begin)

    def _applying(self, request: AwaitProposals) -> Any:
        def begin(answer: Callable[[Input], None]) -> None:
            self.agreement.when_applied(lambda: answer(ProposalsApplied(request.fire)))

        return _Proposal(*super()._applying(request), begin)

    def _arrived(self, number: int, request: Any, fate: Fate) -> None:
        if not isinstance(request, _Proposal) or fate.refusal is not None or self.agreement.is_immediate:
            super()._arrived(number, request, fate)
        else:
            request.begin(partial(self._applied, number, request, fate))

    def _applied(self, number: int, request: _Proposal, fate: Fate, answer: Input) -> None:
        decided: Any = request._replace(do=lambda: answer)
        super()._arrived(number, decided, fate)
