"""The engine alone on a desk: inputs are given to it one by one, and its actions are kept for the test to check.

Its rule: nothing answers by itself; a fire stays in flight until the test answers it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from nats_scheduler.engine.actions import Action, PublishFires, PurgeSchedule, RemoveExpired, Report, WakeAt
from nats_scheduler.engine.events import Ending, Event, ScheduleEnded, ScheduleRejected
from nats_scheduler.engine.fire import FetchContent, Fire
from nats_scheduler.engine.holding.contents import ContentMemory
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.table import Table
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContentFetched,
    Input,
    MessagesRead,
    Outcome,
    OwnershipChanged,
    PublishConcluded,
    ServerLimits,
)
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.message.dialect import DIALECTS, PORTABLE
from nats_scheduler.message.rejection import FAILED
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.harness.blocks import block_with

SCHEDULE = "s.one"
TARGET = "t.out"
Kind = TypeVar("Kind")


def schedule(
    pattern: str, sequence: int = 1, subject: str = SCHEDULE, *, stored_at: int = START, body: bytes = b"", **more: str
) -> StoredMessage:
    """Make a schedule message as the stream holds it."""
    block = block_with(Nats_Schedule=pattern, **{"Nats_Schedule_Target": TARGET, **more})
    return StoredMessage(subject, sequence, stored_at, block, body)


def message_on(subject: str, sequence: int, **headers: str) -> StoredMessage:
    """Make a message with headers of any kind."""
    return StoredMessage(subject, sequence, START, block_with(**headers), b"")


def plain(subject: str, sequence: int, *, stored_at: int = START, body: bytes = b"") -> StoredMessage:
    """Make an ordinary message."""
    return StoredMessage(subject, sequence, stored_at, b"", body)


def stored_fire(fire: Fire, sequence: int, stored_at: int) -> StoredMessage:
    """Make the message that a fire stored."""
    return StoredMessage(fire.target, sequence, stored_at, fire.block, fire.body)


def world_holding(headers: Mapping[str, str], body: bytes = b"", **options: Any) -> ScheduleWorld:
    """Begin a world with one schedule."""
    world = ScheduleWorld(**options)
    world.publish(SCHEDULE, headers, body)
    return world


def fire_times(world: ScheduleWorld) -> list[float]:
    """Return the fire times of what was stored, in seconds after the start, in the order of storage."""
    return [(message.fire_time - START) / SECOND for message in world.generated]


def events(world: ScheduleWorld, kind: type[Kind]) -> list[Kind]:
    """Return the reported events of one kind."""
    return [event for event in world.events if isinstance(event, kind)]


def endings(world: ScheduleWorld) -> list[Ending]:
    """Return how schedules ended."""
    return [event.ending for event in world.events if isinstance(event, ScheduleEnded)]


class Desk:
    """One engine; `now` only moves when a test moves it."""

    may_fail: bool = False
    """True if schedules may be rejected as failed, which is a mistake of the program."""
    memory: ContentMemory | None = None
    """The memory that the engine shares with others, if it does."""

    def __init__(
        self,
        *messages: StoredMessage,
        guard: bool = True,
        live: bool = True,
        removes_expired: bool = False,
        reads_all: bool = True,
        only_schedules: bool = False,
        is_native: bool = False,
        **more: Any,
    ):
        """Begin with stored messages.

        `more` has fields of the rules of the stream and of the limits of the server, and perhaps the `table`.
        """
        table: Table | None = more.pop("table", None)
        limits = {field.name: more.pop(field.name) for field in fields(ServerLimits) if field.name in more}
        subjects = ("s.>",) if only_schedules else (">",)
        self.engine = StreamEngine(
            StreamRules("DESK", subjects, **{"allow_msg_ttl": True, **more}),
            (PORTABLE,) if is_native else DIALECTS,
            ServerLimits(**{"guard": guard, "look_ahead": SECOND, **limits}),
            catch_up_rate=1_000_000,  # what is missed comes at once, as far as nothing else holds it back
            removes_expired=removes_expired,
            reads_all=reads_all,
            memory=self.memory,
            is_native=is_native,
            table=table,
        )
        self.now = START
        self.actions: list[Action] = []
        """The actions of the last step."""
        self.step(MessagesRead(messages), *([CaughtUp()] if live else []))

    def step(self, *facts: Input) -> list[Action]:
        """Step the engine with inputs."""
        self.actions = self.engine.step(self.now, facts)
        assert self.may_fail or not self.failed
        return self.actions

    @property
    def failed(self) -> list[ScheduleRejected]:
        """The schedules that the last step reports as failed."""
        return [event for event in self.reported(ScheduleRejected) if event.rejection.code == FAILED.code]

    def at(self, seconds: float) -> "Desk":
        """Step at an instant, given in seconds after the start."""
        self.now = START + int(seconds * SECOND)
        self.step()
        return self

    def read(self, *messages: StoredMessage) -> None:
        """Let the engine receive messages from the follower."""
        self.step(MessagesRead(messages))

    def found(
        self, message: StoredMessage | None, source: StoredMessage | None = None, *, of: StoredMessage | None = None
    ) -> None:
        """Answer the read of a schedule (`of`, or the message itself) with what is stored on its subject."""
        asked = of or message
        assert asked is not None
        self.step(ContentFetched(asked.subject, asked.sequence, message, source))

    def concluded(self, fire: Fire, outcome: Outcome) -> None:
        """Answer a fire."""
        self.step(PublishConcluded(fire, outcome))

    def in_flight(self, message: StoredMessage, seconds: float) -> Fire:
        """Bring a schedule into flight at its due time, and return the fire."""
        self.at(seconds)
        self.found(message)
        return self.fire

    def asked(self, kind: type[Kind]) -> list[Kind]:
        """Return the actions of one kind that the last step asked for."""
        return [action for action in self.actions if isinstance(action, kind)]

    @property
    def fires(self) -> list[Fire]:
        """The fires that the last step handed out."""
        return [fire for action in self.asked(PublishFires) for fire in action.fires]

    @property
    def fire(self) -> Fire:
        """The one fire that the last step handed out."""
        (fire,) = self.fires
        return fire

    @property
    def reads(self) -> list[tuple[str, int]]:
        """The schedules that the last step reads."""
        return [(action.schedule, action.sequence) for action in self.asked(FetchContent)]

    @property
    def purges(self) -> list[tuple[str, int]]:
        """The purges that the last step asks for: subject and highest sequence."""
        return [(action.schedule, action.through) for action in self.asked(PurgeSchedule)]

    @property
    def removals(self) -> list[int]:
        """The sequences of the expired messages that the last step wants removed."""
        return [action.sequence for action in self.asked(RemoveExpired)]

    @property
    def wake(self) -> float:
        """The instant at which the engine wants to be stepped again, in seconds after the start."""
        return (self.asked(WakeAt)[-1].instant - START) / SECOND

    def reported(self, kind: type[Kind]) -> list[Kind]:
        """Return the reported events of one kind."""
        events: Sequence[Event] = [action.event for action in self.asked(Report)]
        return [event for event in events if isinstance(event, kind)]

    @property
    def endings(self) -> list[Ending]:
        """How the schedules ended that the last step reports as ended."""
        return [event.ending for event in self.reported(ScheduleEnded)]

    def held(self, subject: str = SCHEDULE) -> Held:
        """Return the schedule that is held on a subject."""
        held = self.engine.held.on(subject)
        assert held is not None
        return held

    @property
    def due(self) -> float:
        """When the schedule is due next, in seconds after the start."""
        return (self.held().fire_time - START) / SECOND

    def is_held(self, subject: str = SCHEDULE) -> bool:
        """Return whether a schedule is held on a subject."""
        return self.engine.held.on(subject) is not None


def standing_by(*messages: StoredMessage, **options: Any) -> Desk:
    """Have an engine that stands by read a stream."""
    desk = Desk(live=False, **options)
    desk.step(OwnershipChanged(False), MessagesRead(messages), CaughtUp())
    return desk
