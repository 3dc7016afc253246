"""The flags of an account's streams, as far as they are known, and what of it is reported to the operator.

The registry keeps a flag under the stream's name; `jetstream.streams` says why.
Two more things are kept here: our own copy of each flag, since the registry may be away or may have been lost, and
the names of streams whose deletion was requested, since the next stream of that name is another one.

The rule: a flag is lost only to a deletion that was seen, and a backup brings it back.
Limit: a stream that was deleted and created again without the flag while no sidecar ran is served, and this is
reported.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.jetstream.api import Config
from nats_scheduler.jetstream.streams import UNREADABLE, FlaggedStreams, StreamState
from nats_scheduler.message.rejection import SCHEDULES_STAY, Rejection
from nats_scheduler.message.stream_rules import FLAG
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.stream_service import StreamService

MAX_DELETIONS_NOTED = 256
"""The most requests to delete a stream that are noted at once; any client can send them, with any names."""

REWRITTEN = "the stream was configured anew without allow_msg_schedules, which stays on"
CHANGED = (
    "its schedules need it; write it into the stream's own configuration, "
    "since a creation that does not name it is refused from now on (10058)"
)
MOVED = (
    "the server reports another time of its creation: it was restored, or its deletion was not seen; it stays flagged"
)


class StreamFlags:
    """The flags of one account's streams, on one connection."""

    def __init__(
        self,
        flagged: Callable[[], FlaggedStreams],
        services: Mapping[str, StreamService],
        reporter: Reporter,
        written: Callable[[str], None],
    ) -> None:
        """Note nothing yet; `written` is called with each stream whose configuration we may have changed."""
        self._flagged = flagged
        self._services = services
        self._reporter = reporter
        self._written = written
        self._refused: dict[str, Rejection] = {}
        self._not_changed: dict[str, str] = {}
        self._deletions: Counter[str] = Counter()

    # -- what is known -------------------------------------------------------------------------------------------

    def as_served(self, state: StreamState) -> StreamState | None:
        """Return the stream with our own copy of its flag, None if we do not fire for this very stream."""
        service = self._services.get(state.name)
        if service is None or service.mode is not Mode.EMULATED or service.state.created != state.created:
            return None
        return None if state.excludes_schedules else replace(state, remembered=service.state.remembered)

    async def recalled(self, state: StreamState) -> StreamState:
        """Return the stream with what the registry holds about it; what the registry has lost is restored."""
        recalled, ours = await self._flagged().recall(state), self.as_served(state)
        known = recalled.remembered
        is_lost = known is None or known.created == UNREADABLE
        if is_lost and ours is not None and ours.remembered is not None:
            return await self._flagged().restore(ours)
        is_another = known is not None and known.created != state.created and self._deletions[state.name] > 0
        return replace(recalled, remembered=None) if is_another and not state.holds_older_messages else recalled

    async def remember_all(self) -> None:
        """Write into a new bucket what the old one held of the streams served."""
        for service in list(self._services.values()):
            service.report_again()
            if service.mode is Mode.EMULATED:
                await self._flagged().restore(service.state)

    @contextmanager
    def deletion_requested(self, name: str) -> Iterator[bool]:
        """Note a request to delete a stream while it is followed; False if too many are noted already."""
        is_noted = len(self._deletions) < MAX_DELETIONS_NOTED
        if is_noted:
            self._deletions[name] += 1
        try:
            yield is_noted
        finally:
            if is_noted:
                self._deletions.subtract([name])
                self._deletions += Counter()  # removes counts of zero

    # -- what is requested ---------------------------------------------------------------------------------------

    async def adopt(self, state: StreamState, requested: Config) -> StreamState:
        """Keep the flag of a stream in the registry, and report if it stays on although it was switched off."""
        adopted, refusal = await self._flagged().adopt(state, requested)
        self.refuse(state.name, refusal)
        known = state.remembered
        if known is not None and known.created not in (state.created, UNREADABLE) and requested.get(FLAG) is not True:
            self._reporter.problem("flag_kept", stream=state.name, reason=MOVED)
        if requested and requested.get(FLAG) is None and not state.has_metadata_flag:
            code = SCHEDULES_STAY.code
            self._reporter.problem("flag_removal_ignored", stream=state.name, code=code, reason=REWRITTEN)
        return adopted

    def refuse(self, name: str, rejection: Rejection | None) -> None:
        """Report once why a native server would refuse a stream's configuration, until it no longer would."""
        if rejection is None:
            self._refused.pop(name, None)
        elif self._refused.get(name) != rejection:
            self._refused[name] = rejection
            self._reporter.stream_refused(name, rejection)

    async def switch_on(self, service: StreamService) -> None:
        """Switch on what the stream's schedules need, and report it: the configuration belongs to the user."""
        name, missing = service.state.name, self._flagged().missing(service.state)
        if not missing:
            self._not_changed.pop(name, None)
            return
        settings = ", ".join(missing)
        try:
            service.update(await self._flagged().switch_on(service.state, missing))
            self._reporter.problem("stream_updated", stream=name, switched_on=settings, reason=CHANGED)
        except SchedulerError as error:
            if self._not_changed.get(name) != str(error):
                self._not_changed[name] = str(error)
                self._reporter.problem("stream_update_failed", stream=name, switched_on=settings, reason=str(error))
        finally:
            self._written(name)
