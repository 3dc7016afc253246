"""Select the streams to check in a round over all of them, which is made in case a request was missed.

The list shows the configuration and the last sequence of each stream. A stream that is served, and whose entry is as at
its last check, needs no check: that would be some requests for each stream, and there may be thousands.

The rule: what the list does not show, such as what the registry holds about a stream, is checked every
`ROUNDS_PER_FULL_CHECK` rounds all the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nats_scheduler.jetstream.capabilities import Capabilities
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.runtime.stream_service import StreamService

ROUNDS_PER_FULL_CHECK = 10
"""In so many rounds each stream is checked once, whatever the list shows."""


class Rounds:
    """The rounds over the streams of one account on one connection."""

    def __init__(self, services: Mapping[str, StreamService]) -> None:
        """Begin with the first round; `services` are those of the streams that are served at the moment, by name."""
        self._services = services
        self._round = -1

    def to_check(self, listed: Sequence[StreamState], server: Capabilities) -> list[str]:
        """Return the names of the streams to check; those that are served and not listed come last."""
        self._round += 1
        found = []
        for number, state in enumerate(listed):
            service = self._services.get(state.name)
            if service is not None:  # the list does not show what the registry holds about a stream
                state = replace(state, remembered=service.state.remembered)
            is_its_turn = self._round == 0 or number % ROUNDS_PER_FULL_CHECK == self._round % ROUNDS_PER_FULL_CHECK
            if is_its_turn or service is None or not _is_unchanged(state, service, server):
                found.append(state.name)
            else:
                service.update(state)
        return [*found, *sorted(self._services.keys() - {state.name for state in listed})]


def _is_unchanged(state: StreamState, service: StreamService, server: Capabilities) -> bool:
    if not service.has_contact or state.config != service.state.config:
        return False
    return service.serves_the_same(state, service.mode, server)
