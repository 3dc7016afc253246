"""Plan what has to be done so that streams have the schedules that files declare.

Rule: the documents of one stream and one owner are planned together. All problems that streams have with the files are
returned, each with its place; nothing may be done if there is one.
Cost: all schedules of a stream are read if its files have an owner, or more than `MAX_SUBJECTS_READ_ALONE` subjects;
otherwise, and for each subject that has no schedule yet, one request for each subject. What is overdue is read again.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from nats_scheduler.control.current import read_current
from nats_scheduler.control.errors import NotServedError, StreamNotFoundError
from nats_scheduler.control.plan import Plan, planning
from nats_scheduler.control.standing import SETTLING_LIMIT_NS, has_passed_all, standing
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.control.store_port import Served
from nats_scheduler.files.document import Problem
from nats_scheduler.files.file_reading import StreamFile
from nats_scheduler.message.policies import MAX_TEXT_CHARS
from nats_scheduler.message.stored import StoredMessage

MAX_SUBJECTS_READ_ALONE = 64
"""The most subjects of a stream that are asked for one by one."""

MAX_READS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """The plan for the schedules of one owner in one stream."""

    served: Served
    owner: str | None
    plan: Plan


async def _stored(
    store: ScheduleStore, stream: str, owner: str | None, subjects: Sequence[str]
) -> dict[str, StoredMessage]:
    """Return the last message on each of these subjects, and with an owner all schedules of the stream."""
    stored: dict[str, StoredMessage] = {}
    if owner is not None or len(subjects) > MAX_SUBJECTS_READ_ALONE:
        stored = {message.subject: message async for message in store.schedules(stream, ">")}
    missing = [subject for subject in subjects if subject not in stored]
    for start in range(0, len(missing), MAX_READS_AT_ONCE):
        some = missing[start : start + MAX_READS_AT_ONCE]
        found = await asyncio.gather(*(store.last(stream, subject) for subject in some))
        stored |= {message.subject: message for message in found if message is not None}
    return stored


async def _settled(
    store: ScheduleStore, served: Served, stored: dict[str, StoredMessage]
) -> tuple[dict[str, StoredMessage], frozenset[str]]:
    """Return the stored messages without what was removed meanwhile, and the subjects of schedules that have ended."""
    now, doubtful = store.now(), list[str]()
    for subject, message in stored.items():
        found = read_current(message, served)
        if found is not None and has_passed_all(found, now):
            doubtful.append(subject)
    kept, fired = dict(stored), set[str]()
    for start in range(0, len(doubtful), MAX_READS_AT_ONCE):
        some = doubtful[start : start + MAX_READS_AT_ONCE]
        found_on = await asyncio.gather(
            *(standing(store, served, subject, limit_ns=SETTLING_LIMIT_NS) for subject in some)
        )
        for subject, (last, _current, has_ended) in zip(some, found_on, strict=True):
            if last is None:
                del kept[subject]
            else:
                kept[subject] = last
            if has_ended:
                fired.add(subject)
    return kept, frozenset(fired)


def with_owner(files: Sequence[StreamFile], owner: str | None, *, prune: bool) -> list[StreamFile]:
    """Return files with the owner that was given beside them; raises `ValueError` for one that is no label."""
    if owner is not None and not (owner.strip() and len(owner) <= MAX_TEXT_CHARS and owner.isprintable()):
        raise ValueError(f"owner of {owner!r}: expected a text of 1 to {MAX_TEXT_CHARS} characters")
    owned = [one if owner is None else one.owned_by(owner) for one in files]
    if prune and any(one.owner is None for one in owned):
        raise ValueError("prune removes what carries an owner's label: expected owner, or owner in each document")
    return owned


async def plan_files(
    store: ScheduleStore,
    files: Sequence[StreamFile],
    *,
    prune: bool = False,
    takes_over: bool = False,
) -> tuple[list[StreamPlan], list[Problem]]:
    """Return what has to be done in each stream, and what is wrong.

    With `prune`, schedules with the owner's label that are in no file are removed; with `takes_over`, those with the
    label of another owner are changed too.
    """
    groups: dict[tuple[str, str | None], list[StreamFile]] = {}
    for one in files:
        groups.setdefault((one.stream, one.owner), []).append(one)
    plans: list[StreamPlan] = []
    problems: list[Problem] = []
    for (stream, owner), members in groups.items():
        try:
            served = await store.served(stream)
        except (StreamNotFoundError, NotServedError) as error:
            problems.append(Problem(members[0].place_of_stream(), stream, "", str(error), error.code))
            continue
        declared = [one for file in members for one in file.declared]
        others = [file for file in files if file.stream == stream and file.owner != owner]
        found = await _stored(store, stream, owner, [one.subject for one in declared])
        stored, fired = await _settled(store, served, found)
        plan = planning(
            declared,
            stored,
            served,
            now=store.now(),
            owner=owner,
            prune=prune,
            takes_over=takes_over,
            kept=frozenset(one.subject for file in others for one in file.declared),
            fired=fired,
        )
        places = {one.subject: (file, index) for file in members for index, one in enumerate(file.declared)}
        for fault in plan.faults:
            file, index = places[fault.subject]
            problems.append(Problem(file.place(index, fault.header), stream, fault.subject, fault.text, fault.code))
        plans.append(StreamPlan(served, owner, plan))
    return plans, problems
