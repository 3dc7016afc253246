"""Bugs that are planted on purpose: the promise that each breaks, and a seed that shows it.

Its rule: a bug is a part of a sidecar with a mistake, which a world gets in the place of the real one (`Parts`). It is
named by what it breaks, and entered in `BUGS`: each promise has one. What the tests of one part find is not planted.
Limit: a checkpoint that is missing or claims too little breaks no promise here, and must not, but where each missed
fire is owed: an instance that starts without one reads what the stream holds, and the server drops what is repeated
within the duplicate window. So those that are planted claim too much; `tests/runtime/test_checkpoints.py` holds the
rest.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from nats_scheduler.engine.actions import PurgeSchedule, RemoveExpired
from nats_scheduler.engine.fire import AwaitProposals, CheckFinished, FetchDuplicate, Fire, Question
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContentFetched,
    FinishChecked,
    FireLookedFor,
    Input,
    MessagesRead,
    ProposalsApplied,
    PublishConcluded,
    Stored,
)
from nats_scheduler.engine.ownership.order import Order, Stance
from nats_scheduler.engine.ownership.owners import Owners
from nats_scheduler.engine.stream_port import Notify
from nats_scheduler.message.generated import EXPECTED_SEQUENCE, EXPECTED_SUBJECT
from nats_scheduler.message.headers import without_headers
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.server_port import Bucket, StreamInformation
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.schedule.calendars import KnownCalendars
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from tests.simulation.buckets import SimulatedBucket
from tests.simulation.network import Link
from tests.simulation.scenario import Scenario, drawn, with_files, with_roll_ups, with_standbys, with_unable
from tests.simulation.server import Server
from tests.simulation.sidecar import Parts, SimulatedContact


class Bug(NamedTuple):
    """A bug of the product."""

    promise: str
    """The promise that it breaks."""
    seed: int
    """A seed that shows it, and takes little time."""
    parts: Parts
    draw: Callable[[int], Scenario] = drawn


BUGS: dict[str, Bug] = {}
"""Each bug by its name; a class below is entered by the decorator above it."""


def breaks(promise: str, seed: int, part: str, draw: Callable[[int], Scenario] = drawn) -> Callable[[type], type]:
    """Enter a class as a bug: it takes the place of a part of `Parts`."""

    def enter(broken: type) -> type:
        BUGS[broken.__name__] = Bug(promise, seed, Parts(**{part: broken}), draw)
        return broken

    return enter


# -- contact with the stream: what it sends, and what it passes on -----------------------------------------------------


class Overhearing(SimulatedContact):
    """Passes on what `heard` makes of an input; nothing, if that is None."""

    def __init__(self, server: Server, link: Link, tell: Notify, clock: Clock) -> None:
        def told(given: Input) -> None:
            if (changed := self.heard(given)) is not None:
                tell(changed)

        self.pass_on = told
        super().__init__(server, link, told, clock)

    def heard(self, given: Input) -> Input | None:
        """Return what is passed on in the place of an input."""
        return given


@breaks("Gone", 32, "contact")
class StaleFireStored(SimulatedContact):
    """Sends fires without their guard."""

    def publish(self, fires: Sequence[Fire]) -> None:
        guard = (EXPECTED_SEQUENCE, EXPECTED_SUBJECT)
        super().publish([replace(fire, block=without_headers(fire.block, guard)) for fire in fires])


@breaks("Gone", 11, "contact")
class ExpiredMessageNotRemoved(SimulatedContact):
    def remove(self, request: RemoveExpired) -> None: ...


@breaks("Gone", 88, "contact")
class OldVersionsLeftOver(SimulatedContact):
    def purge(self, request: PurgeSchedule) -> None: ...


@breaks("Faithful", 5, "contact", with_roll_ups)
class TargetNotRolledUp(SimulatedContact):
    def purge(self, request: PurgeSchedule) -> None:
        if not request.schedule.startswith("t."):
            super().purge(request)


@breaks("Faithful", 49, "contact")
class SourceSampledOnce(Overhearing):
    def heard(self, given: Input) -> Input | None:
        self.first: dict[str, Any] = getattr(self, "first", {})
        if isinstance(given, ContentFetched):
            return given._replace(source=self.first.setdefault(given.schedule, given.source))
        return given


@breaks("Complete", 33, "contact")
class UnknownOutcomeTakenForStored(Overhearing):
    def heard(self, given: Input) -> Input | None:
        return PublishConcluded(given.fire, Stored(0)) if isinstance(given, PublishConcluded) else given


@breaks("Complete", 32, "contact")
class DuplicateNotRead(SimulatedContact):
    def ask(self, question: Question) -> None:
        if not isinstance(question, FetchDuplicate):
            super().ask(question)


@breaks("Unique", 116, "contact")
class FireInAnotherStreamNotFound(Overhearing):
    def heard(self, given: Input) -> Input | None:
        return replace(given, found=()) if isinstance(given, FireLookedFor) else given


@breaks("Unique", 1286, "contact")
class AcceptedFireSentAgain(Overhearing):
    """Takes it that the leader has applied what it had accepted."""

    def ask(self, question: Question) -> None:
        if isinstance(question, AwaitProposals):
            asyncio.get_running_loop().call_soon(self.pass_on, ProposalsApplied(question.fire))
        else:
            super().ask(question)


@breaks("Live", 66, "contact")
class IdentityInProcessWaitedFor(SimulatedContact):
    """Never learns that the leader has applied what it had accepted."""

    def ask(self, question: Question) -> None:
        if not isinstance(question, AwaitProposals):
            super().ask(question)


@breaks("Live", 6, "contact")
class FiresSentASecondLate(SimulatedContact):
    def publish(self, fires: Sequence[Fire]) -> None:
        asyncio.get_running_loop().call_later(1.0, super().publish, fires)


@breaks("Live", 16, "contact")
class SilentAfterAnOutage(Overhearing):
    def __init__(self, server: Server, link: Link, tell: Notify, clock: Clock) -> None:
        super().__init__(server, link, tell, clock)
        self.after = 0

    async def follow(self, after: int) -> None:
        self.after = after
        await super().follow(after)

    def heard(self, given: Input) -> Input | None:
        return None if isinstance(given, CaughtUp) and self.after else given


@breaks("Latest", 2, "contact")
class ReplacementIgnored(Overhearing):
    """Believes the first version of each schedule for ever."""

    def __init__(self, server: Server, link: Link, tell: Notify, clock: Clock) -> None:
        super().__init__(server, link, tell, clock)
        self.firsts: dict[str, int] = {}

    def heard(self, given: Input) -> Input | None:
        if isinstance(given, MessagesRead):
            first = [
                one
                for one in given.messages
                if not one.subject.startswith("s.") or self.firsts.setdefault(one.subject, one.sequence) == one.sequence
            ]
            through = max([given.through, *(one.sequence for one in given.messages)])
            return MessagesRead(first, through)
        if isinstance(given, ContentFetched) and given.message is not None:
            return given._replace(message=given.message._replace(sequence=given.sequence))
        return given


class FinishedAtOnce(Overhearing):
    def ask(self, question: Question) -> None:
        if isinstance(question, CheckFinished):
            asyncio.get_running_loop().call_soon(self.pass_on, FinishChecked(question))
        else:
            super().ask(question)


@breaks("Overlap", 24, "contact")
class FireBeforeIgnored(FinishedAtOnce): ...


@breaks("Done", 4, "contact", with_files)
class UnfinishedFireNotReported(FinishedAtOnce): ...


# -- the clock, and calendars ------------------------------------------------------------------------------------------


@breaks("Timely", 4, "clock")
class FireSentEarly:
    """A clock that is ahead."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> int:
        """Return the wall clock."""
        return self._clock.now() + 100 * MILLISECOND

    def monotonic(self) -> int:
        """Return nanoseconds since an arbitrary start."""
        return self._clock.monotonic()


@breaks("Complete", 37, "service")
class EditsNotFollowed(StreamService):
    """Takes the calendars as they were when they were read first."""

    def read_calendars(self, known: KnownCalendars, *, is_followed: bool = True) -> None:
        if known.is_read:
            self.first: KnownCalendars = getattr(self, "first", known)
            known = self.first
        super().read_calendars(known, is_followed=is_followed)


# -- the owner of a stream ---------------------------------------------------------------------------------------------


@breaks("Owned", 14, "service")
class StreamNeverLetGo(StreamService):
    """Continues to fire for a stream that the record gives to another instance."""

    async def own(self, is_owner: bool, registry: Bucket | None, api: StreamInformation) -> bool:
        return await super().own(is_owner or self.is_owner, registry, api)


@breaks("Complete", 31, "bucket")
class CheckpointThatSettlesTooMuch(SimulatedBucket):
    async def swap(self, key: str, value: Any, revision: int) -> int | None:
        if key.startswith("checkpoint."):
            value = {**value, "through": value["through"] + 3 * SECOND}
        return await super().swap(key, value, revision)


@breaks("Live", 1, "owners", with_unable)
class IdleOwnerNotPassedOver(Owners):
    def judge_owner(self, key: str, unfired: int, fired: int, now: int) -> str | None:
        return None


@breaks("Complete", 4, "order", with_standbys)
class GoneInstancesNotReplaced(Order):
    """Begins to read a stream only in the first seconds of a process."""

    def includes(self, me: str, key: str, mine: Stance, others: Mapping[str, Stance], now: int) -> bool:
        self.began: int = getattr(self, "began", now)
        is_new = now - self.began < 2 * SECOND
        return (mine.reads or is_new) and super().includes(me, key, mine, others, now)
