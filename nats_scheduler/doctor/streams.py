"""Checks of the streams: who fires them, and who takes, copies or removes what they store."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from nats_scheduler.doctor.clock import leader_of
from nats_scheduler.doctor.facts import (
    AccountFacts,
    ConsumerFacts,
    StreamFacts,
    Unexamined,
    targets_here,
    unexamined,
)
from nats_scheduler.doctor.finding import Code, Finding
from nats_scheduler.engine.views.figures import State
from nats_scheduler.engine.views.stored import Finding as GraduationFinding
from nats_scheduler.engine.views.view import FiredBy, ListedSchedule
from nats_scheduler.jetstream.consumers import reads_all
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.foreign_json import inner, integer, server_time
from nats_scheduler.jetstream.streams import Progress, StreamState, reading_progress
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import subject_matches
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.canary import CANARY_STREAM
from nats_scheduler.runtime.checkpoints import read_checkpoint
from nats_scheduler.runtime.continuity import removes_expired
from nats_scheduler.runtime.graduation import Graduation
from nats_scheduler.runtime.modes import BY_SIDECAR, Mode, dialects_of
from nats_scheduler.runtime.shared import Failures
from nats_scheduler.runtime.stream_listing import read_stored, read_stream_listing
from nats_scheduler.runtime.unserved import SearchedHeaders, command_for
from nats_scheduler.schedule.durations import format_duration
from nats_scheduler.schedule.instants import SECOND

NEAR_EVICTION = 0.1
"""The part of a stream's limit that may be left before its next schedule is removed."""

SHORTEST_DUPLICATE_WINDOW_NS = 5 * SECOND
"""With a shorter one *Unique* does not hold (`docs/concepts/promises.md`)."""

Filters = Sequence[str]


def check_firing(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find streams on which nothing fires, and sidecars that cannot serve one."""
    if stream.mode is Mode.DORMANT:
        what = f"{stream.name} is flagged, and the flag is not switched on in the server"
        yield Finding(Code.DORMANT, what, f"nats-scheduler graduate {stream.name} --dry-run", stream.name)
    if facts.sidecars is None:
        return
    key = f"{stream.mode}.{stream.name}"
    if stream.mode in BY_SIDECAR and not any(one.serves is None or key in one.serves for one in facts.sidecars):
        running = f"none of the {len(facts.sidecars)} sidecars serves" if facts.sidecars else "no sidecar runs for"
        command = "nats-scheduler instances" if facts.sidecars else "nats-scheduler run"
        yield Finding(Code.NO_SIDECAR, f"{running} {stream.name}", command, stream.name)
    for sidecar in facts.sidecars:
        if key in sidecar.unable:
            what = f"sidecar {sidecar.name} cannot serve {stream.name}: {sidecar.unable[key]}"
            yield Finding(Code.CANNOT_SERVE, what, "nats-scheduler instances", stream.name)


def check_flag(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find schedule headers that nothing fires."""
    for subject in stream.unserved:
        flagged = "carries no flag" if stream.mode is None else f"is {stream.mode}"
        what = f"{subject} has schedule headers that are not fired: {stream.name} {flagged}"
        yield Finding(Code.SCHEDULES_WITHOUT_FLAG, what, command_for(stream.name), stream.name, subject)


def check_eviction(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find streams that soon remove their first schedule because they are full."""
    if not stream.schedules or stream.config.get("discard", "old") != "old" or not stream.messages:
        return
    first = min(stream.schedules, key=lambda listed: listed.sequence)
    before = max(first.sequence - stream.state.first_sequence, 0)
    size = max(stream.bytes / stream.messages, 1)
    for limit, used, unit in (("max_msgs", stream.messages, 1.0), ("max_bytes", stream.bytes, size)):
        most = integer(stream.config.get(limit), -1)
        if most <= 0:
            continue
        left = max((most - used) / unit, 0) + before
        if left * unit <= NEAR_EVICTION * most:
            what = f"{limit} is {most} and {used} are used: about {left:.0f} more messages remove {first.subject}"
            command = f"nats stream edit {stream.name} --{_flag_of(limit)} {2 * most}"
            yield Finding(Code.EVICTS_SOON, what, command, stream.name, first.subject)


def _flag_of(limit: str) -> str:
    return limit.replace("_", "-")


def check_interest(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find what an interest stream does not store because no consumer receives it."""
    if stream.mode is None or stream.retention != "interest" or stream.consumers is None:
        return
    if not stream.consumers:
        what = f"{stream.name} has interest retention and no consumer: what is published to it is not stored"
        yield Finding(Code.NO_INTEREST, what, f"nats consumer add {stream.name}", stream.name)
        return
    filters = [subject for consumer in stream.consumers for subject in consumer.filters]
    for target in targets_here(stream):
        if not _matches_any(target, filters):
            what = f"no consumer of {stream.name} receives the target {target}: its fires are not stored"
            command = f"nats consumer add {stream.name} --filter {target}"
            yield Finding(Code.NO_INTEREST, what, command, stream.name, target)


def check_consumers(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find consumers that take schedules from a work queue."""
    if stream.mode is None or stream.retention != "workqueue":
        return
    for consumer in stream.consumers or ():
        taken = _taken(stream, consumer.filters)
        if taken is not None:
            what = f"consumer {consumer.name} receives what {stream.name} stores on {taken}, schedules too"
            command = f"nats consumer add {stream.name} --filter TARGET, in place of {consumer.name}"
            yield Finding(Code.CONSUMER_TAKES_SCHEDULES, what, command, stream.name, taken)


def _taken(stream: StreamFacts, filters: Filters) -> str | None:
    """Return a schedule's subject that filters take, else a subject of the stream that they take as a whole.

    The latter because schedules that are taken at once are not stored any more.
    """
    stored = (listed.subject for listed in stream.schedules)
    return next((one for one in (*stored, *stream.subjects) if _matches_any(one, filters)), None)


def _matches_any(subject: str, filters: Filters) -> bool:
    return any(subject_matches(subject, one) for one in filters)


def check_copies(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find mirrors and sources that take schedules."""
    if stream.mode is None:
        return
    for kind, name, filters in facts.copies.get(stream.name, ()):
        taken = _taken(stream, filters)
        if taken is None:
            continue
        if _is_removed_by_copies(stream, taken):
            what = f"stream {name} is a {kind} of {stream.name}, a {stream.retention} stream, and takes {taken} from it"
            command = f"give the {kind} in {name} a filter that leaves out the subjects of schedules"
            yield Finding(Code.COPIES_REMOVE_SCHEDULES, what, command, stream.name, taken)
        else:
            what = f"stream {name} is a {kind} of {stream.name}, and copies its schedules"
            yield Finding(Code.COPIED, what, f"nats stream info {name}", stream.name, taken)


def _is_removed_by_copies(stream: StreamFacts, subject: str) -> bool:
    """Return whether a message is removed once it is copied; on an interest stream, other consumers keep it."""
    if stream.retention == "interest":
        return not any(_matches_any(subject, consumer.filters) for consumer in stream.consumers or ())
    return stream.retention == "workqueue"


def check_duplicate_window(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find a window that is too short for *Unique*."""
    window = integer(stream.config.get("duplicate_window"))
    if stream.mode in BY_SIDECAR and 0 < window < SHORTEST_DUPLICATE_WINDOW_NS:
        least = format_duration(SHORTEST_DUPLICATE_WINDOW_NS)
        what = f"the duplicate window of {stream.name} is {format_duration(window)}, and {least} is the least"
        yield Finding(
            Code.SHORT_DUPLICATE_WINDOW, what, f"nats stream edit {stream.name} --dupe-window 2m", stream.name
        )


# Read one stream: its schedules, its consumers, what its schedules would meet at a graduation.
#
# Rule: nothing is written; what cannot be read is noted, and the rest is read all the same. Cost: up to two passes
# over the headers of a stream that is served, and one over the newest `MAX_SEARCHED_MESSAGES` of one that is not; a
# request for each body that is compared.

TO_FIRE = frozenset({State.WAITING, State.OVERDUE, State.FAILING, State.UNFINISHED})
"""The states of schedules that fire, now or later."""

MAX_SEARCHED_MESSAGES = 100_000
"""Newest messages of a stream that is not served in which schedule headers are searched."""

MAX_BODIES_COMPARED = 1_000
"""Schedules of one stream whose bodies are read to find equal ones."""

MAX_REQUESTS_IN_FLIGHT = 256

OURS = "nats-scheduler-"
"""The consumers of sidecars and commands have names that begin like this."""

Note = Callable[[Unexamined], None]


async def outline_of(account: Access, info: Mapping[str, Any], note: Note) -> StreamFacts:
    """Return what STREAM.LIST and the bucket say of a stream; `note` takes what could not be read."""
    state = StreamState.from_info(info)
    mode: Mode | None = None
    try:
        state, mode = await account.carrying.with_mode(state)
    except JetStreamError as error:
        note(unexamined(f"whether {state.name} carries the flag", error, state.name))
    stored = inner(info.get("state"))
    return StreamFacts(state, mode, messages=integer(stored.get("messages")), bytes=integer(stored.get("bytes")))


class Reading(NamedTuple):
    """With what one stream is read."""

    account: Access
    now: Callable[[], int]
    """Returns the time of this machine (ns since the Unix epoch)."""
    note: Note
    """Takes what could not be read."""
    progress: Progress


async def read_stream(reading: Reading, outline: StreamFacts, failures: Failures) -> StreamFacts:
    """Read what a stream holds, as far as it can be read."""
    facts = replace(outline, at=reading.now())
    for what, read in READERS:
        try:
            facts = await read(reading, facts)
        except JetStreamError as error:
            reading.note(unexamined(f"{facts.name}: {what}", error, facts.name))
    key = f"{facts.mode}.{facts.name}"
    return replace(facts, failing=failures.schedules.get(key, {}), failing_unlisted=failures.more.get(key, 0))


async def _with_consumers(reading: Reading, facts: StreamFacts) -> StreamFacts:
    if facts.mode is None:
        return facts
    infos = [info async for info in reading.account.api.consumers(facts.name)]
    leaders = {leader_of(info): str(info.get("name", "")) for info in infos}
    consumers = [one for one in map(_consumer, infos) if not one.name.startswith(OURS)]
    return replace(facts, consumers=consumers, consumer_leaders=leaders)


def _consumer(info: Mapping[str, Any]) -> ConsumerFacts:
    config = inner(info.get("config"))
    several = config.get("filter_subjects")
    filters = [str(one) for one in several] if isinstance(several, list) and several else []
    return ConsumerFacts(str(info.get("name", "")), filters or [str(config.get("filter_subject") or ">")])


# -- headers that are not fired --------------------------------------------------------------------------------------


async def _with_unserved(reading: Reading, facts: StreamFacts) -> StreamFacts:
    """Search headers that no program fires: in a stream without the flag, or in the dialect that is not served."""
    account, note = reading.account, reading.note
    served = () if facts.mode is None else dialects_of(facts.mode)
    sought = [dialect for dialect in DIALECTS if dialect not in served]
    is_ours = facts.name in (account.registry.stream, CANARY_STREAM)
    by_nobody = facts.mode in (None, Mode.PORTABLE)
    if not by_nobody or is_ours or facts.state.excludes_schedules or not facts.messages:
        return facts
    last = facts.state.last_sequence
    after = max(last - MAX_SEARCHED_MESSAGES, 0) if reads_all(facts.state.config) else 0
    if not reads_all(facts.state.config) and facts.messages > MAX_SEARCHED_MESSAGES:
        why = f"it has more than {MAX_SEARCHED_MESSAGES} messages, and no consumer may be attached"
        note(Unexamined(f"{facts.name}: schedule headers that are not fired", why, facts.name))
        return facts
    if after >= facts.state.first_sequence:
        why = f"only the newest {MAX_SEARCHED_MESSAGES} messages are searched"
        note(Unexamined(f"{facts.name}: schedule headers that are not fired, in older messages", why, facts.name))
    searched = SearchedHeaders(sought)
    show = reading_progress(reading.progress, f"search in {facts.name}", facts.state, after)

    def take(messages: Sequence[StoredMessage]) -> None:
        show(messages)
        searched.take(messages)

    await read_stored(account.connection, account.api, facts.state.config, take, after)
    return replace(facts, unserved=searched.subjects)


# -- schedules -------------------------------------------------------------------------------------------------------


async def _with_schedules(reading: Reading, facts: StreamFacts) -> StreamFacts:
    if facts.mode is None:
        return facts
    account, now, name = reading.account, reading.now, facts.name
    at = server_time(await account.api.stream(name)) or now()
    checkpoints = await read_checkpoint(account.registry, account.api, name, facts.mode, at)
    ahead = at - now()
    read = await read_stream_listing(
        account.connection,
        account.api,
        facts.state,
        facts.mode,
        checkpoints or (),
        lambda: now() + ahead,
        restrictions=account.settings.restrictions_on(name),
        removes_expired=removes_expired(facts.state, account.server),
        notify_read=reading_progress(reading.progress, f"schedules of {name}", facts.state),
        calendars=account.calendars,
    )
    equal = await _equal(account, name, read.schedules, reading.note)
    return replace(facts, at=at, schedules=read.schedules, rejected=read.rejected, misnamed=read.misnamed, equal=equal)


async def _equal(
    account: Access, stream: str, schedules: Sequence[ListedSchedule], note: Note
) -> list[list[ListedSchedule]]:
    """Return the groups of schedules that fire the same message at the same times."""
    alike: dict[tuple[object, ...], list[ListedSchedule]] = {}
    for one in schedules:
        if one.fired_by is not FiredBy.NONE and one.state in TO_FIRE:
            terms = one.terms
            pattern = one.pattern.text, one.pattern.time_zone, terms.policies.written
            key = terms.target, terms.source, terms.ttl, terms.rollup, pattern
            alike.setdefault(key, []).append(one)
    candidates = [group for group in alike.values() if len(group) > 1]
    left = MAX_BODIES_COMPARED
    found: list[list[ListedSchedule]] = []
    for group in candidates:
        if len(group) > left:
            why = f"only {MAX_BODIES_COMPARED} bodies are compared"
            note(Unexamined(f"{stream}: equal schedules among those with equal target and pattern", why, stream))
        found += [same for same in await _by_body(account, stream, group[:left]) if len(same) > 1]
        left = max(left - len(group), 0)
        if not left:
            break
    return found


async def _by_body(account: Access, stream: str, group: Sequence[ListedSchedule]) -> list[list[ListedSchedule]]:
    same: dict[bytes, list[ListedSchedule]] = {}
    for part in _parts(group):
        stored = await asyncio.gather(*(account.api.message(stream, seq=one.sequence) for one in part))
        for one, message in zip(part, stored, strict=True):
            if message is not None:
                same.setdefault(message.body or b"", []).append(one)
    return list(same.values())


def _parts(group: Sequence[ListedSchedule]) -> Iterator[Sequence[ListedSchedule]]:
    for start in range(0, len(group), MAX_REQUESTS_IN_FLIGHT):
        yield group[start : start + MAX_REQUESTS_IN_FLIGHT]


async def _with_graduation(reading: Reading, facts: StreamFacts) -> StreamFacts:
    """Find what a graduation would find: to the server that is there, or to a 2.14 if it has no scheduler."""
    if facts.mode not in (Mode.EMULATED, Mode.DORMANT):
        return facts
    account = reading.account
    graduation = Graduation(account.connection, account.api, account.server.upgraded, facts.state, reading.now)
    show = reading_progress(reading.progress, f"graduation of {facts.name}", facts.state)
    await graduation.look(account.registry, account.settings.restrictions_on(facts.name), show, account.calendars)
    found: list[GraduationFinding] = list(graduation.findings)
    return replace(facts, graduation=found)


READERS: Sequence[tuple[str, Callable[[Reading, StreamFacts], Awaitable[StreamFacts]]]] = (
    ("its consumers", _with_consumers),
    ("schedule headers that are not fired", _with_unserved),
    ("its schedules", _with_schedules),
    ("what a graduation would refuse", _with_graduation),
)
"""What is read of a stream, each part on its own."""
