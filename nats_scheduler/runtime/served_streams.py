"""The streams that this process serves, by name: the only place in which a service is added or removed.

Services outlive connections, so that after a reconnect only what is new is read.
`runtime.account_serving` starts and ends them. All other parts get `by_name`, which cannot be changed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from types import MappingProxyType

from nats_scheduler.engine.events import Event
from nats_scheduler.engine.holding.contents import ContentMemory
from nats_scheduler.engine.holding.in_flight import BURST_IN_FLIGHT
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.runtime.checkpoint_writing import Pace
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.file_views import FileViews
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.schedule_file import ScheduleFile
from nats_scheduler.runtime.stream_service import LeftStream, StreamService
from nats_scheduler.runtime.wakes import Wakes
from nats_scheduler.schedule.calendars import NOT_READ, KnownCalendars
from nats_scheduler.settings.sidecar_settings import SidecarSettings


class StreamServices:
    """The services of one process, and what they share: wakes, turns to write, and memory for contents."""

    def __init__(
        self,
        settings: SidecarSettings,
        clock: Clock,
        report: Callable[[str, Event], None],
        report_lateness: Callable[[float], None] = lambda _seconds: None,
        file: ScheduleFile | None = None,
    ) -> None:
        """Serve nothing yet; `report_lateness` gets how late (s) the event loop ran a timer.

        The schedules are rows of `file`; None: they are in memory.
        """
        self._settings = settings
        self._clock = clock
        self._report = report
        self._report_lateness = report_lateness
        self._file = file
        self._services: dict[str, StreamService] = {}
        self.calendars = NOT_READ
        """The calendars of the account, as far as they are known."""
        self._are_calendars_followed = False
        self.calendars_named = asyncio.Event()
        """Set when a schedule of some stream names a calendar, for ever."""
        self._shared: tuple[Wakes, Pace, ContentMemory] | None = None
        """Made with the first service, since they belong to an event loop."""
        self.by_name: Mapping[str, StreamService] = MappingProxyType(self._services)
        """The services by stream name, as they are at the moment of each access."""
        self._left: dict[str, LeftStream] = {}
        self.left: Mapping[str, LeftStream] = MappingProxyType(self._left)
        """The streams that are left to other instances, by name; none of them has a service."""

    def start(self, state: StreamState, mode: Mode, server: Capabilities) -> StreamService:
        """Add a service for a stream, which must not have one; it reads nothing before it is given a contact."""
        assert state.name not in self._services, "the service before it must have been ended"
        self._left.pop(state.name, None)
        named = self.calendars_named.set
        service = self.aside(state, mode, server, self._settings, self._report, notify_named=named, file=self._file)
        self._services[state.name] = service
        service.read_calendars(self.calendars, is_followed=self._are_calendars_followed)
        return service

    def aside(
        self,
        state: StreamState,
        mode: Mode,
        server: Capabilities,
        settings: SidecarSettings,
        report: Callable[[str, Event], None],
        notify_named: Callable[[], object] = lambda: None,
        file: ScheduleFile | None = None,
    ) -> StreamService:
        """Return a service that is not among those of the process, and shares their wakes; its caller ends it.

        Its schedules are rows of `file`; None: they are in memory.
        """
        if self._shared is None:
            memory = ContentMemory(self._settings.content_memory)
            self._shared = Wakes(self._clock, self._report_lateness), Pace(), memory
        return StreamService(state, mode, server, settings, self._clock, report, *self._shared, notify_named, file)

    def read_calendars(self, known: KnownCalendars) -> None:
        """Take the calendars of the account as they are now."""
        self.calendars, self._are_calendars_followed = known, True
        for service in self._services.values():
            service.read_calendars(known)

    def calendars_lost(self) -> None:
        """Note that edits of calendars are not received any more; what was read last still counts."""
        if self._are_calendars_followed:
            self._are_calendars_followed = False
            for service in self._services.values():
                service.read_calendars(self.calendars, is_followed=False)

    async def answer_at_once(self, ask: Callable[[], Awaitable[int | None]]) -> int | None:
        """Return the answer to a request, which is read when it arrives: it does not wait for the end of a rest."""
        if self._shared is None:
            return await ask()
        moderation = self._shared[0].moderation
        moderation.hurry(id(self), is_urgent=True)
        try:
            return await ask()
        finally:
            moderation.hurry(id(self), is_urgent=False)

    @property
    def views(self) -> FileViews | None:
        """What reads the rows of the streams beside the event loop, None if they are in memory."""
        return None if self._file is None else self._file.views

    def is_burst(self) -> bool:
        """Return whether one stream has a burst of fires in flight: then what can wait should."""
        return self._shared is not None and self._shared[0].most_in_flight > BURST_IN_FLIGHT

    def spare_seconds(self) -> float:
        """Return how long (s) no stream has anything to do, as far as is known: 0 while a fire is in flight."""
        return inf if self._shared is None else self._shared[0].spare_seconds()

    def leave(self, state: StreamState, mode: Mode) -> bool:
        """Leave a stream without a service to other instances; returns whether that is new."""
        known = self._left.get(state.name)
        self._left[state.name] = LeftStream(state, mode)
        return known is None

    def end(self, name: str) -> bool:
        """End and remove the service of a stream; returns whether there was one."""
        self._left.pop(name, None)
        service = self._services.pop(name, None)
        if service is not None:
            service.end()
        return service is not None
