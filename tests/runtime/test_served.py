"""Only streams that changed are checked again, and none that needs a check is missed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from nats_scheduler.engine.actions import Notify
from nats_scheduler.engine.inputs import CaughtUp, ContactLost, StreamChanged
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.capabilities import GUARD_LEVEL, Capabilities
from nats_scheduler.runtime.instances import ServicesByKey
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.stream_service import EngineFailedError, StreamService
from nats_scheduler.settings.sidecar import SidecarSettings
from nats_scheduler.testing.clock import ManualClock
from tests.harness.waiting import eventually
from tests.runtime.test_driver import SilentStream

ORDERS, BILLS = "emulated.ORDERS", "emulated.BILLS"
LONG_SECONDS = 30.0


class Contact(SilentStream):
    """A contact that delivers what a test gives it."""

    def __init__(self) -> None:
        super().__init__()
        self.notify: Notify
        """Passes an input to the service."""

    def __call__(self, _config: Any, notify: Notify, _tasks: asyncio.TaskGroup, **_more: Any) -> "Contact":
        """Make contact, as a `Contacts` does."""
        self.notify = notify
        return self

    async def follow(self, after: int) -> None:
        """Deliver nothing, and do not end."""
        await asyncio.get_running_loop().create_future()


class Streams:
    """Services with contact, by the names of their streams."""

    def __init__(self) -> None:
        self.services: dict[str, StreamService] = {}
        self._contacts: dict[str, Contact] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    async def begin(self, name: str) -> None:
        """Serve a stream of which nothing was read yet, with a new engine."""
        info = {"config": {"name": name, "subjects": [f"{name}.>"]}, "created": "2020-01-01T00:00:00Z"}
        server = Capabilities("2.11.0", GUARD_LEVEL, 1 << 20)
        state = StreamState.from_info(info)
        one = StreamService(state, Mode.EMULATED, server, SidecarSettings(), ManualClock(), lambda *_: None)
        nothing: Any = None
        contact = Contact()
        self._running[name] = asyncio.create_task(one.serve(contact, nothing, nothing))
        self.services[name], self._contacts[name] = one, contact
        await eventually(lambda: one.has_contact, within_seconds=LONG_SECONDS)
        await self.step(name)

    async def step(self, name: str, given: Any = None) -> None:
        """Step the engine of a stream, and return afterwards."""
        self._contacts[name].notify(given or StreamChanged())
        stepped = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(stepped.set_result, None)  # behind the driver's step
        await stepped

    async def read_all(self, name: str) -> None:
        """Let a service read its stream to the end."""
        await self.step(name, CaughtUp())

    async def ended(self, name: str) -> BaseException | None:
        """Wait until a service ended by itself, and return the error that it ended with."""
        await asyncio.wait((self._running[name],), timeout=LONG_SECONDS)
        return self._running[name].exception()

    async def close(self) -> None:
        """End all services."""
        for task in self._running.values():
            task.cancel()
        await asyncio.wait(self._running.values())
        for one in self.services.values():
            one.end()


@pytest.fixture
async def streams() -> AsyncIterator[Streams]:
    """One served stream, ORDERS."""
    async with AsyncExitStack() as stack:
        made = Streams()
        stack.push_async_callback(made.close)
        await made.begin("ORDERS")
        yield made


async def test_a_check_finds_what_changed_since_the_one_before_and_nothing_else(streams: Streams) -> None:
    await streams.begin("BILLS")
    served = ServicesByKey(streams.services)
    assert served.take_changed() == [ORDERS, BILLS], "at first all of them"
    assert served.take_changed() == []
    await streams.read_all("BILLS")
    assert served.take_changed() == [BILLS]
    await streams.step("BILLS")
    assert served.take_changed() == [], "a step that changes nothing for instances"


async def test_asking_what_is_live_takes_no_change_from_the_judgement(streams: Streams) -> None:
    served = ServicesByKey(streams.services)
    served.take_changed()
    await streams.read_all("ORDERS")
    assert list(served.live()) == [ORDERS]
    assert served.take_changed() == [ORDERS]


async def test_a_stream_is_live_from_when_it_was_read_until_contact_is_lost(streams: Streams) -> None:
    await streams.begin("BILLS")
    served = ServicesByKey(streams.services)
    assert not served.live()
    await streams.read_all("ORDERS")
    assert list(served.live()) == [ORDERS]
    await streams.step("ORDERS", ContactLost("contact was lost"))
    assert not served.live()


async def test_a_stream_with_a_new_engine_is_not_live_and_is_checked(streams: Streams) -> None:
    served = ServicesByKey(streams.services)
    await streams.read_all("ORDERS")
    assert list(served.live()) == [ORDERS]
    served.take_changed()
    await streams.begin("ORDERS")
    assert not served.live()
    assert served.take_changed() == [ORDERS]


async def test_a_stream_that_is_served_no_more_is_not_live(streams: Streams) -> None:
    served = ServicesByKey(streams.services)
    await streams.read_all("ORDERS")
    assert list(served.live()) == [ORDERS]
    streams.services.clear()
    assert not served.live()


async def test_after_a_reconnect_all_streams_and_their_changes_are_found(streams: Streams) -> None:
    ServicesByKey(streams.services).take_changed()
    await streams.read_all("ORDERS")
    served = ServicesByKey(streams.services)
    assert list(served.live()) == [ORDERS]
    served.take_changed()
    await streams.step("ORDERS", ContactLost("contact was lost"))
    assert served.take_changed() == [ORDERS]


async def test_a_stream_in_trouble_is_found_after_each_of_its_steps(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = ServicesByKey(streams.services)
    served.take_changed()
    monkeypatch.setattr(StreamEngine, "is_troubled", True)
    await streams.step("ORDERS")
    assert served.take_changed() == [ORDERS]
    await streams.step("ORDERS")
    assert served.take_changed() == [ORDERS]


async def test_a_step_that_fails_is_not_missed(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    served = ServicesByKey(streams.services)
    served.take_changed()

    def fail(*_: object) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(StreamEngine, "step", fail)
    await streams.step("ORDERS")
    assert isinstance(await streams.ended("ORDERS"), EngineFailedError)
    assert served.take_changed() == [ORDERS]
