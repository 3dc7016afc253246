"""What the sidecar gives to the doctor, so that it can examine the account with what the sidecar holds already.

The rule: `runtime` does not import `doctor`. Who starts a sidecar gives it the function that examines.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from nats_scheduler.jetstream.capabilities import Capabilities
from nats_scheduler.jetstream.denied import Denial
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.service.examinations import Examination, Slices
from nats_scheduler.settings.sidecar import SidecarSettings


@dataclass(frozen=True, slots=True)
class Examinable:
    """A sidecar on one connection."""

    instance: str
    access: Access
    server: Capabilities
    settings: SidecarSettings
    services: Mapping[str, StreamService]
    """The streams that it serves at the moment, by name."""
    unserved: Mapping[str, str]
    """The subject of one schedule in each stream that holds schedules and is not served, by the stream's name."""
    denials: Collection[Denial]
    """The permissions that it has missed."""
    server_now: Callable[[], int]
    """Returns the time by the server's clock, in ns since the Unix epoch; `machine_now` by that of this machine."""
    machine_now: Callable[[], int]


Examine = Callable[[Examinable, Slices], Awaitable[Examination]]
"""Examines the account of a sidecar; raises `JetStreamError`."""


async def examine_nothing(_examinable: Examinable, _slices: Slices) -> Examination:
    """Refuse to examine."""
    raise JetStreamError("this sidecar was started without the doctor; `nats-scheduler doctor` examines the account")
