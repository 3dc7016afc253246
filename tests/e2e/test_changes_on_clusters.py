"""Many change the same schedules while the stream's leader moves and a node dies: what was acknowledged is in force.

Programs with the Python client edit, pause, resume and apply at the same time. An acknowledged change names the version
before it and its own, so these versions are a chain: no two changes follow the same version, and the state at the end
is the one that the chain gives. Where a version is missing in it, a change whose outcome is unknown was stored.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import nats
import pytest
from nats.aio.client import Client

from nats_scheduler.client import (
    Change,
    Kind,
    PartlyAppliedError,
    SchedulerError,
    Schedules,
    UnknownOutcomeError,
    at,
)
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.client.conftest import MOST_ATTEMPTS
from tests.client.worlds import FAR
from tests.e2e.test_clusters import DURABLE, its_leader_dies, its_leader_steps_down, stream_leader
from tests.harness.account import account_on, sidecar_with
from tests.harness.cluster import Cluster, running_cluster
from tests.harness.flagged import AS_ADOPTED
from tests.harness.seeds import generator
from tests.harness.servers import NATIVE_VERSIONS, V2_11, V2_15
from tests.harness.waiting import eventually

SUBJECTS = ("S.a", "S.b", "S.c")
MARK = "Mark"
"""The header by which an edit, or a document, is recognised."""

PROGRAMS = 5


class State(NamedTuple):
    """The parts of a schedule that are compared."""

    is_paused: bool
    token: str


class Done(NamedTuple):
    """A change that was acknowledged, or one of which nothing shows whether it was stored (`after` is 0)."""

    subject: str
    operation: str
    token: str
    """The token that an edit or an apply has set."""
    before: int = 0
    after: int = 0

    def follows(self, state: State) -> State:
        """Return the state after it."""
        if self.operation in ("pause", "resume"):
            return State(self.operation == "pause", state.token)
        return State(state.is_paused, self.token)


@dataclass
class Record:
    """The acts of the clients."""

    acknowledged: list[Done] = field(default_factory=list)
    unknown: list[Done] = field(default_factory=list)

    def note(self, done: Done) -> None:
        (self.acknowledged if done.after else self.unknown).append(done)


Attempt = Callable[[str, str, str], Awaitable[Iterable[Done]]]
"""Does an operation on a subject, with a token; returns what was acknowledged or is unknown."""


def text_of(tokens: dict[str, str]) -> dict[str, Any]:
    """Return a document in which each of some schedules has its token."""
    schedules = [
        {
            "subject": subject,
            "at": FAR.isoformat().replace("+00:00", "Z"),
            "target": "S.out",
            "headers": [{"name": MARK, "value": token}],
        }
        for subject, token in tokens.items()
    ]
    return {"stream": "S", "schedules": schedules}


def by_program(schedules: Schedules) -> Attempt:
    """Do it with the Python client."""

    def done(change: Change, operation: str, token: str) -> list[Done]:
        if change.kind is Kind.UNCHANGED:
            return []
        return [Done(change.subject, operation, token, change.before or 0, change.sequence or 0)]

    async def apply(tokens: dict[str, str]) -> list[Done]:
        failed: dict[str, SchedulerError] = {}
        try:
            changes = (await schedules.apply(json.dumps(text_of(tokens)))).changes
        except PartlyAppliedError as error:
            changes, failed = error.applied.changes, dict(error.errors)
        found = [one for change in changes for one in done(change, "apply", tokens[change.subject])]
        unknown = [subject for subject, error in failed.items() if isinstance(error, UnknownOutcomeError)]
        return found + [Done(subject, "apply", tokens[subject]) for subject in unknown]

    async def attempt(operation: str, subject: str, token: str) -> list[Done]:
        try:
            if operation == "apply":
                return await apply({one: f"{token}-{one}" for one in SUBJECTS})
            if operation == "edit":
                return done(await schedules.edit(subject, headers={MARK: token}), operation, token)
            return done(await getattr(schedules, operation)(subject), operation, token)
        except UnknownOutcomeError:
            return [Done(subject, operation, token)]
        except SchedulerError:
            return []  # nothing was changed

    return attempt


async def work(name: str, attempt: Attempt, record: Record, ended: asyncio.Event) -> None:
    """Change schedules until the end, one after the other."""
    chance, number = generator(name), 0
    while not ended.is_set():
        number += 1
        operation = chance.choice(("edit", "edit", "pause", "resume", "apply"))
        for done in await attempt(operation, chance.choice(SUBJECTS), f"{name}-{number}"):
            record.note(done)


def check(record: Record, subject: str, first: tuple[int, State], last: tuple[int, State]) -> None:
    """Compare what is stored at the end with what the acknowledged changes give, one after the other."""
    made = sorted((one for one in record.acknowledged if one.subject == subject), key=lambda one: one.after)
    unknown = [one for one in record.unknown if one.subject == subject]
    assert len({one.before for one in made}) == len(made), f"{subject}: two changes of one version: {made}"
    assert len({one.after for one in made}) == len(made), f"{subject}: one version of two changes: {made}"
    sequence, states = first[0], {first[1]}
    for one in made:
        assert one.before < one.after
        if one.before != sequence:
            assert one.before > sequence, f"{subject}: {one} follows a version that was replaced by {sequence}"
            assert unknown, f"{subject}: nothing explains the version {one.before}"
            states = with_unknown(states, unknown)
        sequence, states = one.after, {one.follows(state) for state in states}
    if last[0] != sequence:
        assert last[0] > sequence, f"{subject}: {made[-1:]} was acknowledged, and {last} is stored"
        assert unknown, f"{subject}: nothing explains the version {last[0]}"
        states = with_unknown(states, unknown)
    assert last[1] in states, f"{subject}: {last} is stored, expected one of {states}"


def with_unknown(states: Iterable[State], unknown: Iterable[Done]) -> set[State]:
    """Return the states after any of the changes whose outcome is unknown."""
    found, new = set(states), set(states)
    unknown = list(unknown)
    while new:
        new = {one.follows(state) for state in new for one in unknown} - found
        found |= new
    return found


async def state_of(schedules: Schedules, subject: str) -> tuple[int, State]:
    """Return the version that is stored, and its state."""

    async def read() -> tuple[int, State] | None:
        try:
            found = await schedules.get(subject)
        except SchedulerError:
            return None
        return found.sequence, State(found.is_paused, dict(found.form.headers).get(MARK, ""))

    return await eventually(read, describe=f"{subject} is read")


@asynccontextmanager
async def changed_cluster(version: str, folder: Path) -> AsyncIterator[Cluster]:
    """Run a cluster with the stream `S`, and a sidecar that serves it."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running_cluster(version, folder, config=DURABLE))
        connection = ConnectionSettings(servers=tuple(cluster.urls))
        settings = SidecarSettings(connection=connection)
        running = await stack.enter_async_context(sidecar_with(settings))
        async with account_on(cluster.nodes[0].url) as account:
            more = {} if version in NATIVE_VERSIONS else AS_ADOPTED
            await account.create("S", num_replicas=3, storage="file", **more)
        await running.ready("S")
        yield cluster


async def connected(cluster: Cluster, number: int, stack: AsyncExitStack) -> Client:
    """Connect a program to one node; it goes to another one when that dies."""

    async def quiet(_error: Exception) -> None:
        """Take errors of the connection: what the client makes of them is recorded."""

    connection: Client = await nats.connect(
        cluster.urls[number % len(cluster.urls)],
        error_cb=quiet,
        max_reconnect_attempts=MOST_ATTEMPTS,
        reconnect_time_wait=0.05,
    )
    stack.push_async_callback(connection.close)
    return connection


@pytest.mark.deep
@pytest.mark.parametrize("version", [V2_11, V2_15])
async def test_no_acknowledged_change_is_lost_while_leaders_move_and_a_node_dies(version: str, tmp_path: Path) -> None:
    record, ended = Record(), asyncio.Event()
    async with changed_cluster(version, tmp_path) as cluster, AsyncExitStack() as stack:
        connections = [await connected(cluster, number, stack) for number in range(PROGRAMS + 1)]
        observer = await Schedules.on(connections.pop(), "S")
        for subject in SUBJECTS:
            await observer.create(subject, at(FAR), target="S.out", headers={MARK: "first"})
        first = {subject: await state_of(observer, subject) for subject in SUBJECTS}
        attempts = [by_program(await Schedules.on(one, "S")) for one in connections]

        async def progressed() -> None:
            count = len(record.acknowledged) + 20
            await eventually(lambda: len(record.acknowledged) >= count, describe="changes go on")

        async with asyncio.TaskGroup() as tasks:
            for number, attempt in enumerate(attempts):
                tasks.create_task(work(f"c{number}", attempt, record, ended))
            try:
                await progressed()
                for fault in (its_leader_steps_down, its_leader_dies, its_leader_steps_down):
                    await stream_leader(cluster)
                    await fault(cluster)
                    await stream_leader(cluster)
                    await progressed()
            finally:
                ended.set()
        last = {subject: await state_of(observer, subject) for subject in SUBJECTS}
    print(f"{len(record.acknowledged)} changes were acknowledged, the outcome of {len(record.unknown)} is unknown")
    for subject in SUBJECTS:
        check(record, subject, first[subject], last[subject])


def test_a_lost_change_is_found() -> None:
    """The judge itself: an edit that another one has overwritten, and a state that no change has given."""
    first = (1, State(False, "first"))
    record = Record([Done("S.a", "edit", "x", 1, 2), Done("S.a", "pause", "", 2, 3)])
    check(record, "S.a", first, (3, State(True, "x")))
    wrong = [(3, State(True, "first")), (3, State(False, "x")), (2, State(False, "x")), (4, State(True, "x"))]
    for last in wrong:
        with pytest.raises(AssertionError):
            check(record, "S.a", first, last)
    forked = Record([*record.acknowledged, Done("S.a", "edit", "y", 2, 4)])
    with pytest.raises(AssertionError, match="two changes of one version"):
        check(forked, "S.a", first, (4, State(False, "y")))
    open_end = Record(record.acknowledged, [Done("S.a", "edit", "y")])
    check(open_end, "S.a", first, (3, State(True, "x")))
    check(open_end, "S.a", first, (4, State(True, "y")))
    with pytest.raises(AssertionError):
        check(open_end, "S.a", first, (4, State(False, "y")))
