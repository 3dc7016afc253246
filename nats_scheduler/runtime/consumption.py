"""Notice targets that nobody consumes for a day, although fires are stored there.

The rules:

- A target is consumed if a consumer of the stream covers it and delivers, if another stream copies it, or if a schedule
  samples it. A consumer does not deliver if messages wait for it and it has delivered nothing for a day.
- What cannot be listed is not known, and not guessed: it counts as consumed, and a day begins anew.
- The targets of schedules that the server itself fires are those on which it has stored a fire of late.
- The owner of the stream reports it, and again after each further day.

Cost: once an hour one list of streams, one of the consumers of each stream with schedules, and one request for each
target that seems unconsumed, at most `MAX_SUSPECTED` of a stream. Limits: subscribers of core NATS and programs that
read by direct requests are not seen. After a restart a day begins anew.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.engine.views.survey import NONE_FAILING, survey
from nats_scheduler.jetstream.lookups import last_on
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.foreign_json import inner, integer
from nats_scheduler.message.subjects import is_covered, is_literal_subject
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.schedule.instants import DAY
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from nats_scheduler.service.turns import Turns

CHECK_INTERVAL_SECONDS = 3600.0
"""The interval between two checks."""

UNCONSUMED_FOR_NS = DAY
"""The time (ns) for which nobody consumes a target until it is reported."""

FIRED_WITHIN_NS = 2 * DAY
"""A target of schedules that the server itself fires is judged if it stored a fire there within this time (ns)."""

MAX_SUSPECTED = 100
"""Targets of one stream that may seem unconsumed at one check; others are not judged."""

OURS = "nats-scheduler-"
"""The consumers of sidecars and commands have names that begin like this."""

Copy = tuple[str, str, Sequence[str]]
"""A stream that takes messages from another one: `mirror` or `source`, its name, and the subjects that it takes."""


def copies_in(streams: Iterable[StreamState]) -> dict[str, list[Copy]]:
    """Return the copies among streams, by the names of those that they take from."""
    copies: dict[str, list[Copy]] = {}
    for stream in streams:
        sources, mirror = stream.config.get("sources"), stream.config.get("mirror")
        origins = [("mirror", mirror), *(("source", one) for one in (sources if isinstance(sources, list) else []))]
        for kind, origin in ((kind, inner(one)) for kind, one in origins):
            if origin.get("name") and not origin.get("external"):
                copies.setdefault(str(origin["name"]), []).append((kind, stream.name, _taken(origin)))
    return copies


def _taken(origin: Mapping[str, Any]) -> list[str]:
    transforms = origin.get("subject_transforms")
    parts = [str(inner(one).get("src") or ">") for one in transforms] if isinstance(transforms, list) else []
    return parts or [str(origin.get("filter_subject") or ">")]


def filters_of(consumers: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the subjects that each consumer receives, by its name; those of sidecars are left out."""
    named = ((str(info.get("name", "")), inner(info.get("config"))) for info in consumers)
    return {name: _filters(config) for name, config in named if not name.startswith(OURS)}


def _filters(config: Mapping[str, Any]) -> list[str]:
    """Return the subjects that a consumer receives; `>` for all."""
    several = config.get("filter_subjects")
    filters = [str(one) for one in several] if isinstance(several, list) and several else []
    return filters or [str(config.get("filter_subject") or ">")]


def stalled(consumers: Iterable[Mapping[str, Any]], now: int) -> list[str]:
    """Return the names of the consumers for which messages wait at `now` (ns), and that deliver nothing for a day."""
    found = []
    for info in consumers:
        active = parse_rfc3339(str(inner(info.get("delivered")).get("last_active") or info.get("created")))
        is_idle = isinstance(active, int) and now - active >= UNCONSUMED_FOR_NS
        if is_idle and integer(info.get("num_pending")) > 0:
            found.append(str(info.get("name", "")))
    return found


def unconsumed(
    targets: Iterable[str], consumers: Mapping[str, Sequence[str]], idle: Collection[str], others: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield each target that is not consumed, with the name of a consumer that would receive it, "" if there is none.

    `idle` are consumers that do not deliver, `others` the subjects that are received in other ways.
    """
    literal, wide = set(others), tuple(one for one in others if not is_literal_subject(one))
    for target in targets:
        if target in literal or is_covered(target, wide):
            continue
        covering = [name for name, filters in consumers.items() if is_covered(target, tuple(filters))]
        if not set(covering).difference(idle):
            yield target, covering[0] if covering else ""


class Consumption:
    """The targets that nobody consumes, for as long as the process runs."""

    def __init__(
        self, services: Mapping[str, StreamService], now: Callable[[], int], reporter: Reporter, turns: Turns
    ) -> None:
        """Watch the targets of these streams; `now` returns the server's time (ns)."""
        self._services = services
        self._now = now
        self._reporter = reporter
        self._turns = turns
        self._since: dict[tuple[str, str], int] = {}
        """When (ns) each target was first found unconsumed, or was last reported, by stream and target."""

    async def keep_checking(self, access: Access) -> None:
        """Check now and then, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            await self.check(access)

    async def check(self, access: Access) -> None:
        """Look for targets that nobody consumes, and report those of which this has been so for a day."""
        found: dict[tuple[str, str], tuple[str, str]] = {}
        with suppress(SchedulerError):
            infos, unanswered = await access.api.listed_streams()
            copies = {} if unanswered else copies_in(map(StreamState.from_info, infos))
            for name, service in [] if unanswered else list(self._services.items()):
                taken = [one for _kind, _name, filters in copies.get(name, ()) for one in filters]
                with suppress(SchedulerError):
                    found |= await self._of_stream(access, service, taken)
        now = self._now()
        self._since = {key: self._since.get(key, now) for key in found}
        for (stream, target), about in found.items():
            since, served = self._since[stream, target], self._services.get(stream)
            is_ours = served is not None and served.is_owner
            if is_ours and now - since >= UNCONSUMED_FOR_NS:
                self._since[stream, target] = now
                self._reporter.target_unconsumed(stream, target, since, *about)

    async def _of_stream(
        self, access: Access, service: StreamService, taken: Sequence[str]
    ) -> dict[tuple[str, str], tuple[str, str]]:
        """Return the targets that nobody consumes now, by stream and target: a schedule, and an idle consumer or ""."""
        state, now = service.state, self._now()
        of_server = service.engine.of_server
        fired = {} if of_server is None else of_server.fired_since(now - FIRED_WITHIN_NS)
        if state.config.get("republish") or not service.is_ready or not (len(service.engine.held) or fired):
            return {}
        infos = [info async for info in access.api.consumers(state.name)]
        listed = (await self._turns.ask(survey(service.engine.view(), now, (), NONE_FAILING))).schedules
        ours = {one.terms.target: one.subject for one in listed if one.terms.policies.target_stream is None}
        targets, sampled = {**fired, **ours}, () if of_server is None else of_server.sampled
        received = {*taken, *sampled, *(one.terms.source for one in listed if one.terms.source)}
        suspected = islice(unconsumed(targets, filters_of(infos), stalled(infos, now), received), MAX_SUSPECTED)
        return {
            (state.name, target): (targets[target], consumer)
            for target, consumer in suspected
            if await last_on(access.api, state.name, target) is not None  # a fire is stored
        }
