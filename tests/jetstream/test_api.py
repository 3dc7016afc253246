"""How long the client waits for an answer of the JetStream API."""

from typing import Any

import pytest

from nats_scheduler.jetstream.api import CONSUMER_DEADLINE_SECONDS, JetStreamApi
from nats_scheduler.jetstream.connection import REQUEST_DEADLINE_SECONDS, Connection
from nats_scheduler.jetstream.foreign_json import Object


class Unanswered(Connection):
    """Notes the deadline of each request, and whether it is repeatable."""

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
    """A consumer that was placed on a dead node never answers, and a new attempt is placed again."""
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
