"""A pulled consumer delivers what is stored without a gap, says when there is no more, and ends if it is gone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from nats_scheduler.control.errors import DeadlineError
from nats_scheduler.jetstream import pulled_consumer
from nats_scheduler.jetstream.api import consumer_from
from nats_scheduler.jetstream.pulled_consumer import PulledConsumer
from nats_scheduler.message.stored import StoredMessage
from tests.harness.account import account_on
from tests.harness.scripted_stream import STREAM, ScriptedStream, scripted_stream
from tests.harness.waiting import eventually

SILENCE_SECONDS = 0.05


@asynccontextmanager
async def opened(stored: int, *, headers_only: bool = True) -> AsyncIterator[tuple[PulledConsumer, ScriptedStream]]:
    """Create a consumer on a stream with `stored` messages."""
    async with scripted_stream() as (stream, url), account_on(url) as account:
        stream.store(stored)
        consumer = PulledConsumer(account.connection, account.api, STREAM, silence_limit_seconds=SILENCE_SECONDS)
        await consumer.open({**consumer_from(1, {}), "headers_only": headers_only})
        yield consumer, stream
        consumer.close()
        await eventually(lambda: not stream.consumers, describe="it is deleted")


def sequences(messages: list[StoredMessage]) -> list[int]:
    return [message.sequence for message in messages]


@pytest.mark.parametrize("headers_only", [True, False])
async def test_it_delivers_what_is_stored_and_says_when_there_is_no_more(headers_only: bool) -> None:
    async with opened(250, headers_only=headers_only) as (consumer, _stream):
        assert consumer.matched == 250
        for first in (1, 101):
            assert sequences(await consumer.pull(100)) == list(range(first, first + 100))
            assert (consumer.is_complete, consumer.has_delivered_all) == (True, False)
        assert sequences(await consumer.pull(100)) == list(range(201, 251))
        assert (consumer.is_complete, consumer.has_delivered_all, consumer.pending) == (False, True, 0)
        assert await consumer.has_nothing_left()


async def test_it_ends_if_what_is_stored_does_not_come() -> None:
    async with opened(10) as (consumer, stream):
        stream.is_mute = True
        with pytest.raises(DeadlineError, match=r"no message came within 0\.05 s"):
            await consumer.pull(5)


async def test_a_pull_that_reaches_no_consumer_is_repeated_some_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulled_consumer, "NO_RESPONDERS_WAITS_SECONDS", (0.0, 0.0))
    async with opened(10) as (consumer, stream):
        known = dict(stream.consumers)
        stream.forget()
        with pytest.raises(DeadlineError, match="the consumer ended with status 503"):
            await consumer.pull(5)
        assert stream.pulls == [5, 5, 5]
        stream.consumers.update(known)
        assert sequences(await consumer.pull(5)) == [1, 2, 3, 4, 5]


async def test_what_the_server_says_of_its_end_is_the_reason() -> None:
    async with opened(1) as (consumer, stream):
        consumer.watch()
        consumer.ask(10)
        await eventually(lambda: consumer.has_delivered_all)
        assert not consumer.ended.done()
        stream.say("409 Consumer Deleted")
        await eventually(consumer.ended.done)
        assert consumer.ended.result() == "the consumer ended: 409 Consumer Deleted"
