"""Checks of the streams: who fires them, and who takes, copies or removes what they store."""

from collections.abc import Iterator, Sequence

from nats_scheduler.doctor.facts import AccountFacts, StreamFacts, targets_here
from nats_scheduler.engine.views.view import FiredBy
from nats_scheduler.message.findings import Code, Finding, typed
from nats_scheduler.message.foreign_json import integer
from nats_scheduler.message.stream_findings import dormant, no_sidecar, schedules_unserved
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import subject_matches
from nats_scheduler.runtime.modes import BY_SIDECAR, Mode
from nats_scheduler.runtime.unserved import command_for
from nats_scheduler.schedule.durations import format_duration
from nats_scheduler.schedule.instants import SECOND

NEAR_EVICTION = 0.1
"""The part of a stream's limit that may be left before its next schedule is removed."""

SHORTEST_DUPLICATE_WINDOW_NS = 5 * SECOND
"""With a shorter one *Unique* does not hold (`docs/concepts/promises.md`)."""

MAX_FILTERS_NAMED = 5
"""Most targets that a command names."""

Filters = Sequence[str]


def check_firing(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find streams on which nothing fires, and sidecars that cannot serve one."""
    if stream.mode is Mode.DORMANT:
        yield dormant(stream.name)
    if facts.sidecars is None:
        return
    key = f"{stream.mode}.{stream.name}"
    portable = sum(one.fired_by is FiredBy.SIDECAR for one in stream.schedules)
    is_needed = stream.mode in BY_SIDECAR or portable > 0
    if is_needed and not any(one.serves is None or key in one.serves for one in facts.sidecars):
        yield no_sidecar(stream.name, len(facts.sidecars), None if stream.mode in BY_SIDECAR else portable)
    for sidecar in facts.sidecars:
        if key in sidecar.unable:
            what = f"sidecar {sidecar.name} cannot serve {stream.name}: {sidecar.unable[key]}"
            yield Finding(Code.CANNOT_SERVE, what, "nats-scheduler instances", stream.name)


def check_flag(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find schedule headers that nothing fires."""
    for subject in stream.unserved:
        yield schedules_unserved(stream.name, subject, command_for(stream.state), stream.mode)


def check_eviction(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find streams that soon remove their first schedule because they are full."""
    keeps_old = not stream.state.rules.evicts or stream.config.get("discard", "old") != "old"
    if keeps_old or not stream.schedules or not stream.messages:
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
            command = f"nats stream edit {stream.name} --{limit.replace('_', '-')} {2 * most}"
            yield Finding(Code.EVICTS_SOON, what, command, stream.name, first.subject)


def check_interest(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find what an interest stream does not store because no consumer receives it."""
    if stream.mode is None or stream.retention != "interest" or stream.consumers is None:
        return
    if not stream.consumers:
        what = f"{stream.name} has interest retention and no consumer: what is published to it is not stored"
        yield Finding(Code.NO_INTEREST, what, new_consumer(stream.name), stream.name)
        return
    filters = [subject for one in stream.consumers.values() for subject in one]
    for target in targets_here(stream):
        if not _matches_any(target, filters):
            what = f"no consumer of {stream.name} receives the target {target}: its fires are not stored"
            yield Finding(Code.NO_INTEREST, what, new_consumer(stream.name, target), stream.name, target)


def check_consumers(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find consumers that take schedules from a work queue."""
    if stream.mode is None or stream.retention != "workqueue":
        return
    for consumer, filters in (stream.consumers or {}).items():
        taken = _taken(stream, filters)
        if taken:
            what = f"consumer {consumer} receives what {stream.name} stores on {taken[0]}, schedules too"
            command = typed("nats", "consumer", "edit", stream.name, consumer, *_filtered(targets_here(stream)))
            why = "and each other subject that it is to receive"
            yield Finding(Code.CONSUMER_TAKES_SCHEDULES, what, f"{command}, {why}", stream.name, taken[0])


def new_consumer(stream: str, *targets: str) -> str:
    """Return the command that adds a consumer of these targets, of all that a stream stores without any."""
    filters = [word for target in targets for word in ("--filter", target)]
    return typed("nats", "consumer", "add", stream, "NAME", *filters, "--pull", "--defaults")


def _filtered(targets: Sequence[str]) -> Iterator[str]:
    """Yield the options for filters of these targets; of many the first ones."""
    for target in targets[:MAX_FILTERS_NAMED] or ["TARGET"]:
        yield from ("--filter", target)


def _taken(stream: StreamFacts, filters: Filters) -> Sequence[str]:
    """Return the subjects of schedules that filters take; without any, those of the stream if they take all of it.

    The latter because schedules that are taken at once are not stored any more. A filter that covers one of several
    subjects of a stream proves nothing: schedules usually have a subject of their own beside those of messages.
    """
    taken = [listed.subject for listed in stream.schedules if _matches_any(listed.subject, filters)]
    # Of a stream that moves subjects it is not known what it stores.
    stored = (">",) if stream.state.rules.moves_subjects else stream.subjects
    return taken or (stored if all(_matches_any(one, filters) for one in stored) else ())


def _matches_any(subject: str, filters: Filters) -> bool:
    return any(subject_matches(subject, one) for one in filters)


def check_copies(facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find mirrors and sources that take schedules."""
    if stream.mode is None:
        return
    for kind, name, filters in facts.copies.get(stream.name, ()):
        taken = _taken(stream, filters)
        removed = next((one for one in taken if _is_removed_by_copies(stream, one)), None)
        if removed is not None:
            what = (
                f"stream {name} is a {kind} of {stream.name}, a {stream.retention} stream, and takes {removed} from it"
            )
            command = f"give the {kind} in {name} a filter that leaves out the subjects of schedules"
            if kind == "mirror":  # no server changes that of one that exists
                command = f"nats stream rm {name}, and create it again with a filter that leaves out those of schedules"
            yield Finding(Code.COPIES_REMOVE_SCHEDULES, what, command, stream.name, removed)
        elif taken:
            what = f"stream {name} is a {kind} of {stream.name}, and copies its schedules"
            yield Finding(Code.COPIED, what, f"nats stream info {name}", stream.name, taken[0])


def _is_removed_by_copies(stream: StreamFacts, subject: str) -> bool:
    """Return whether a message is removed once it is copied; on an interest stream, other consumers keep it."""
    if stream.retention == "interest" and stream.consumers is not None:
        return not any(_matches_any(subject, filters) for filters in stream.consumers.values())
    return stream.retention == "workqueue"


def check_duplicate_window(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find a window that is too short for *Unique*."""
    window = integer(stream.config.get("duplicate_window"))
    if stream.mode in BY_SIDECAR and 0 < window < SHORTEST_DUPLICATE_WINDOW_NS:
        least = format_duration(SHORTEST_DUPLICATE_WINDOW_NS)
        what = f"the duplicate window of {stream.name} is {format_duration(window)}, and {least} is the least"
        usual = StreamRules.from_config({**stream.config, "duplicate_window": 0}).duplicate_window
        command = f"nats stream edit {stream.name} --dupe-window {format_duration(usual)}"
        if usual < SHORTEST_DUPLICATE_WINDOW_NS:  # a window cannot be longer than max_age
            command = f"nats stream edit {stream.name} --max-age 2m --dupe-window 2m"
        yield Finding(Code.SHORT_DUPLICATE_WINDOW, what, command, stream.name)
