"""Questions are answered beside the loop about one moment, whatever the engine and the file do meanwhile."""

import asyncio
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from nats_scheduler.engine.actions import Action
from nats_scheduler.engine.inputs import ContentFetched, ExpiryConcluded, Input, PublishConcluded, Stored
from nats_scheduler.engine.views.seen import Question, Seen, Work
from nats_scheduler.engine.views.view import Counts, Page, Query
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import is_covered
from nats_scheduler.schedule.instants import DAY, MINUTE, SECOND
from nats_scheduler.schedule.patterns import PatternKind
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.micro import ServiceError
from nats_scheduler.service.turns import Turns
from tests.engine.direct import Desk, plain, schedule
from tests.harness.seeds import generator, seeds
from tests.harness.spare_time import Fires
from tests.harness.waiting import eventually, one_turn
from tests.runtime.file_lives import MODE, Life

SUBJECTS = 200

T = TypeVar("T")

Place = tuple[str, int, PatternKind]
"""What is known of a schedule that does not change: subject, sequence and kind."""


def turns(life: Life) -> Turns:
    return Turns(Fires(), life.file.views)


def endless(question: Question[T]) -> tuple[Question[T], threading.Event]:
    """Return a question that is never answered, and what is set when it has begun."""
    (part,), begun = question.parts, threading.Event()

    def work(_seen: Seen) -> Work[T]:
        while True:
            begun.set()
            yield

    return Question([replace(part, work=work)], question.merge), begun


def complete(folder: Path) -> Life:
    """Open a file that is complete, and empty."""
    Life(folder).close()
    return Life(folder)


class Engine(Desk):
    """An engine whose rows are in a file, and to which anything may happen."""

    def __init__(self, random: Random, life: Life) -> None:
        """Begin with some hundred schedules of which some have objects."""
        self.random, self.life, self.sequence = random, life, 0
        self.messages: dict[str, StoredMessage] = {}
        self.failures: list[Exception] = []
        """Why the file was given up."""
        rows = life.file.stream("S", MODE, "the basis")
        super().__init__(table=rows.table)
        rows.attach(self.engine, self.failures.append)
        self.read(*(self.message(number) for number in range(SUBJECTS // 2)))

    def message(self, number: int) -> StoredMessage:
        """Store a schedule."""
        random = self.random
        self.sequence += 1
        when = self.now + random.choice((SECOND, 30 * SECOND, 5 * MINUTE, 3 * DAY)) + random.randrange(MINUTE)
        pattern = random.choice((f"@at {format_rfc3339(when)}", "@every 1s", "@every 2h", "0 0 5 * * *"))
        more: dict[str, Any] = random.choice(({}, {}, {"Nats_TTL": "30s"}, {"X_Missed": "skip"}))
        target = f"t.{random.randrange(3)}"
        subject = f"s.{number % 7}.{number}"
        self.messages[subject] = schedule(
            pattern, self.sequence, subject, stored_at=self.now, Nats_Schedule_Target=target, **more
        )
        return self.messages[subject]

    def step(self, *facts: Input) -> list[Action]:
        """Step the engine, and answer some of its reads and fires."""
        actions = super().step(*facts)
        for subject, sequence in self.reads:
            message = self.messages[subject]
            if self.random.random() < 0.7 and message.sequence == sequence:
                super().step(ContentFetched(subject, sequence, message, None))
                for fire in self.fires:
                    self.sequence += 1
                    super().step(PublishConcluded(fire, Stored(self.sequence)))
        return actions

    def happen(self) -> None:
        """Let something happen."""
        random, number = self.random, self.random.randrange(SUBJECTS)
        subject = f"s.{number % 7}.{number}"
        self.now += random.choice((0, 0, SECOND // 10))
        match random.randrange(6):
            case 0 | 1:
                self.read(*(self.message(random.randrange(SUBJECTS)) for _ in range(random.randrange(1, 20))))
            case 2:
                self.sequence += 1
                self.read(plain(subject, self.sequence))
            case 3:
                held = self.engine.held.peek(subject)
                if held is not None:
                    self.step(ExpiryConcluded(held.sequence, subject))
            case 4:
                self.engine.held.write_changed(random.randrange(1, 50))
                if random.random() < 0.5:
                    self.life.file.commit()
            case _:
                self.step()

    def places(self) -> list[Place]:
        """Return what is held now."""
        return [(one.subject, one.sequence, one.kind) for one in self.engine.held]


def noted(question: Question[T], engine: Engine, moments: list[list[Place]]) -> Question[T]:
    """Return a question that notes what is held at its moment."""
    (part,) = question.parts

    def see() -> Seen:
        moments.append(engine.places())
        return part.see()

    return Question([replace(part, see=see)], question.merge)


def questions(engine: Engine) -> Iterator[tuple[Question[Any], Callable[[Any, list[Place]], None]]]:
    """Yield questions, and what compares an answer with what was held at the moment."""
    view, now = engine.engine.view(), engine.now

    def all_are_listed(page: Page, held: list[Place]) -> None:
        found = [(one.subject, one.sequence, one.kind) for one in page.schedules]
        assert sorted(found) == sorted(held)

    def all_are_counted(counts: Counts, held: list[Place]) -> None:
        assert (counts.total, sum(counts.states.values())) == (len(held), len(held))
        assert counts.kinds == Counter(kind for _subject, _sequence, kind in held)

    def some_are_counted(counts: Counts, held: list[Place]) -> None:
        wanted = [one for one in held if is_covered(one[0], ("s.*.>",)) and one[2] is PatternKind.AT]
        assert counts.total == len(wanted)

    yield view.page(now, limit=1_000), all_are_listed
    yield view.page(now, limit=None), all_are_listed
    yield view.counts(now), all_are_counted
    yield view.counts(now, Query(subject="s.*.>", kinds=frozenset({PatternKind.AT}))), some_are_counted


async def test_all_are_seen_as_at_one_moment_while_the_engine_goes_on(tmp_path: Path) -> None:
    for seed in seeds(1):
        life = complete(tmp_path / str(seed))
        engine = Engine(generator(f"beside {seed}"), life)
        for _ in range(2):
            for question, compare in questions(engine):
                moments: list[list[Place]] = []
                asked = asyncio.create_task(turns(life).ask(noted(question, engine, moments)))
                steps = 0
                while not asked.done():
                    engine.happen()
                    steps += 1
                    await one_turn()
                compare(await asked, *moments)
                assert steps > 3, "the engine does not wait"
        assert engine.failures == []
        life.close()


# -- the file ---------------------------------------------------------------------------------------------------------


async def test_a_question_ends_when_the_file_is_closed(tmp_path: Path) -> None:
    life = complete(tmp_path / "data")
    engine = Engine(generator("ends"), life)
    unanswered, begun = endless(engine.engine.view().counts(engine.now))
    asked = asyncio.create_task(turns(life).ask(unanswered))
    await eventually(begun.is_set)
    life.close()
    with pytest.raises(ServiceError, match="closed"):
        await asked
    again = Life(tmp_path / "data")
    assert again.removed == ""
    again.close()


async def test_damage_that_a_question_finds_gives_the_file_up(tmp_path: Path) -> None:
    life = complete(tmp_path / "data")
    engine = Engine(generator("damage"), life)
    life.file.commit()
    other = sqlite3.connect(life.file.path or "")
    other.execute("UPDATE schedules SET fire_time = fire_time + 1")
    other.commit()
    other.close()
    with pytest.raises(ServiceError, match="not what was written"):
        await turns(life).ask(engine.engine.view().page(engine.now))
    assert len(life.lost) == len(engine.failures) == 1
    assert life.file.path is None
