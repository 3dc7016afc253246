"""How long an answer of the JetStream API is awaited."""

from typing import Any

import pytest

from nats_scheduler.jetstream.api import CONSUMER_DEADLINE_SECONDS, JetStreamApi
from nats_scheduler.jetstream.connection import REQUEST_DEADLINE_SECONDS, Connection
from nats_scheduler.jetstream.foreign_json import Object


class Unanswered(Connection):
    """Notes how long each answer is awaited, and whether the request is repeated meanwhile."""

    def __init__(self) -> None:
        self.waits: dict[str, tuple[float, bool]] = {}

    async def request_json(
        self, subject: str, body: Any = None, deadline: float = REQUEST_DEADLINE_SECONDS, *, is_repeatable: bool = False
    ) -> Object:
        """Note it."""
        self.waits[subject.removeprefix("$JS.API.")] = deadline, is_repeatable
        return {}


@pytest.mark.parametrize("deadline", [REQUEST_DEADLINE_SECONDS, 0.5])
async def test_a_consumer_is_awaited_for_less_than_anything_else(deadline: float) -> None:
    """One that was placed on a dead node never answers, and another one is placed anew."""
    connection = Unanswered()
    api = JetStreamApi(connection, deadline=deadline)
    await api.create_consumer("S", "name", {})
    await api.delete_consumer("S", "name")
    await api.consumer("S", "name")
    shorter = min(CONSUMER_DEADLINE_SECONDS, deadline)
    assert connection.waits == {
        "CONSUMER.CREATE.S.name": (shorter, True),
        "CONSUMER.DELETE.S.name": (shorter, False),
        "CONSUMER.INFO.S.name": (deadline, True),
    }
    assert CONSUMER_DEADLINE_SECONDS < REQUEST_DEADLINE_SECONDS
