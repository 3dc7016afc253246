"""Streams beside the one under test, each with one schedule that fires each second: sidecars share many streams.

Its rule: they are judged as the stream under test is, each by a history of its own with the same lives and faults.
"""

from dataclasses import replace

from tests.harness.account import Account
from tests.harness.flagged import FLAGGED
from tests.judge.history import History, Operation, ScheduleSeen, Verb, headers_of
from tests.judge.patterns import Pattern
from tests.judge.reading import fire_seen
from tests.nemesis.ground import Ground
from tests.nemesis.record import now


class Beside:
    """The streams of a round beside the one under test."""

    def __init__(self, ground: Ground, count: int) -> None:
        self._ground = ground
        self._names = [f"BESIDE-{number}" for number in range(count)]
        self._stored: dict[str, Operation] = {}

    async def store(self) -> None:
        """Create the streams, and store the schedule of each; the servers must work."""
        if not self._names:
            return
        async with self._ground.account() as account:
            for name in self._names:
                about = {"storage": "file", "num_replicas": len(self._ground.nodes), "allow_rollup_hdrs": True}
                await account.create(name, subjects=[f"{name}.>"], metadata=FLAGGED, **about)
                one = Operation(Verb.STORE, f"{name}.s", now(), pattern=Pattern("every", 1), target=f"{name}.t")
                one.body = name.encode()
                one.sequence = await account.publish(one.schedule, headers_of(one, elsewhere=False), one.body)
                one.completed_at = now()
                self._stored[name] = one

    async def histories(self, account: Account, history: History) -> list[History]:
        """Return the history of each, of a round that has ended."""
        return [await _history_of(account, name, one, history) for name, one in self._stored.items()]


async def _history_of(account: Account, name: str, stored: Operation, history: History) -> History:
    schedules = await account.messages(name, stored.schedule)
    fires = [fire_seen(message) for message in await account.messages(name, stored.target)]
    found = History(replace(history.terms, consumed=False, removed_by_workers=False), history.begin, history.end)
    found.lives, found.faults, found.operations = history.lives, history.faults, [stored]
    found.schedules = [ScheduleSeen(m.subject, m.sequence, m.stored_at, m.body or b"") for m in schedules]
    found.fires = [fire for fire in fires if fire.stored_at <= history.end]
    found.remaining = {message.sequence for message in schedules}
    return found
