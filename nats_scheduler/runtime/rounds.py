"""Which streams are looked at in a round over all of them, which is made in case something was missed.

The list says of each stream how it is configured and how far it is. One that is served, and is as it was when it was
looked at last, needs no look of its own: that would be some requests for each stream, and they may be thousands.

The rule: what the list does not contain, such as what the registry says of a stream, is checked every
`ROUNDS_PER_FULL_CHECK` rounds all the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nats_scheduler.jetstream.capabilities import Capabilities
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.runtime.stream_service import StreamService

ROUNDS_PER_FULL_CHECK = 10
"""In so many rounds each stream is looked at once, whatever the list says of it."""


class Rounds:
    """The rounds over the streams of one account on one connection."""

    def __init__(self, services: Mapping[str, StreamService]) -> None:
        self._services = services
        self._round = -1

    def to_look_at(self, listed: Sequence[StreamState], server: Capabilities) -> list[str]:
        """Return the names of the streams to look at, those that are served and not listed at the end."""
        self._round += 1
        found = []
        for number, state in enumerate(listed):
            service = self._services.get(state.name)
            if service is not None:  # what the registry says of a stream is not in the list
                state = replace(state, remembered=service.state.remembered)
            is_its_turn = self._round == 0 or number % ROUNDS_PER_FULL_CHECK == self._round % ROUNDS_PER_FULL_CHECK
            if is_its_turn or service is None or not _is_as_it_was(state, service, server):
                found.append(state.name)
            else:
                service.is_as(state)
        return [*found, *sorted(self._services.keys() - {state.name for state in listed})]


def _is_as_it_was(state: StreamState, service: StreamService, server: Capabilities) -> bool:
    is_served = service.driver.has_contact
    return is_served and state.config == service.state.config and service.serves_the_same(state, service.mode, server)
