"""Plan what has to be done so that streams have the schedules that files declare.

Rule: the documents of one stream and one owner are planned together. All problems that streams have with the files are
returned, each with its place; nothing may be done if there is one.
Cost: all schedules of a stream are read if its files have an owner, or more than `MAX_SUBJECTS_READ_ALONE` subjects;
otherwise, and for each subject that has no schedule yet, one request for each subject.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nats_scheduler.control.declared import Declared
from nats_scheduler.control.errors import NotServedError, StreamNotFoundError
from nats_scheduler.control.plan import Fault, Plan, planning
from nats_scheduler.control.port import Served
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.files.document import Problem
from nats_scheduler.files.reading import StreamFile
from nats_scheduler.message.policies import MAX_TEXT_CHARS
from nats_scheduler.message.stored import StoredMessage

MAX_SUBJECTS_READ_ALONE = 64
"""Up to so many subjects of a stream are asked for one by one."""

MAX_READS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """The plan for the schedules of one owner in one stream."""

    served: Served
    owner: str | None
    plan: Plan


@dataclass(frozen=True, slots=True)
class _Group:
    """The documents of one stream and one owner."""

    stream: str
    owner: str | None
    files: list[StreamFile]

    @property
    def declared(self) -> list[Declared]:
        return [one for file in self.files for one in file.declared]

    def problems(self, faults: Iterable[Fault]) -> Iterator[Problem]:
        """Yield faults with their places in the files."""
        where = {one.subject: (file, index) for file in self.files for index, one in enumerate(file.declared)}
        for fault in faults:
            file, index = where[fault.subject]
            yield Problem(file.place(index, fault.header), self.stream, fault.subject, fault.text, fault.code)


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
    groups = _grouped(files)
    plans: list[StreamPlan] = []
    problems: list[Problem] = []
    for group in groups:
        try:
            served = await store.served(group.stream)
        except (StreamNotFoundError, NotServedError) as error:
            problems.append(Problem(group.files[0].place_of_stream(), group.stream, "", str(error), error.code))
            continue
        others = [other for other in groups if other.stream == group.stream and other is not group]
        declared = group.declared
        plan = planning(
            declared,
            await _stored(store, group.stream, group.owner, [one.subject for one in declared]),
            served,
            now=store.now(),
            owner=group.owner,
            prune=prune,
            takes_over=takes_over,
            kept=frozenset(one.subject for other in others for one in other.declared),
        )
        problems += group.problems(plan.faults)
        plans.append(StreamPlan(served, group.owner, plan))
    return plans, problems


def _grouped(files: Sequence[StreamFile]) -> list[_Group]:
    groups: dict[tuple[str, str | None], _Group] = {}
    for one in files:
        groups.setdefault((one.stream, one.owner), _Group(one.stream, one.owner, [])).files.append(one)
    return list(groups.values())
