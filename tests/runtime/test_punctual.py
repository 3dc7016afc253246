"""The loop that waits to the microsecond does what Python's own does; how punctual it is, the benchmark shows."""

import asyncio
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from nats_scheduler.runtime.punctual import run_punctually
from nats_scheduler.runtime.wakes import RestingLoop

LONG_SECONDS = 30.0
"""Longer than any test takes."""

TOO_HIGH_FOR_SELECT = 1024


def test_timers_come_in_order_and_none_before_its_time() -> None:
    early: list[float] = []
    order: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        over = asyncio.Event()

        def rung(due: float) -> None:
            order.append(due)
            if loop.time() < due:
                early.append(due)
            if len(order) == 50:
                over.set()

        start = loop.time()
        for number in reversed(range(50)):
            due = start + number * 0.000_37
            loop.call_at(due, rung, due)
        await asyncio.wait_for(over.wait(), LONG_SECONDS)

    run_punctually(main())
    assert order == sorted(order)
    assert early == []


def test_what_arrives_ends_a_long_sleep() -> None:
    async def main() -> None:
        here, there = socket.socketpair()
        here.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.call_later(LONG_SECONDS, here.close)
        receives = loop.create_task(loop.sock_recv(here, 10))
        threading.Timer(0.01, there.sendall, (b"hello",)).start()
        assert await receives == b"hello"
        here.close()
        there.close()

    run_punctually(main())


def test_a_signal_ends_a_long_sleep() -> None:
    async def main() -> None:
        came = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, came.set)
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        await asyncio.wait_for(came.wait(), LONG_SECONDS)

    run_punctually(main())


async def received_after(begin: Callable[[RestingLoop], None], received: Callable[[], object] = lambda: None) -> float:
    """Return after how many seconds a byte was `received` that was there before `begin` was called."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, RestingLoop)
    here, there = socket.socketpair()
    with here, there:
        came: asyncio.Future[float] = loop.create_future()

        def receive() -> None:
            here.recv(1)
            received()
            came.set_result(loop.time())

        here.setblocking(False)
        loop.add_reader(here, receive)
        there.sendall(b"x")
        started = loop.time()
        begin(loop)
        try:
            return await asyncio.wait_for(came, LONG_SECONDS) - started
        finally:
            loop.remove_reader(here)


@pytest.mark.skipif(sys.platform != "linux", reason="the loop is Python's own there")
class TestRest:
    def test_what_arrives_does_not_end_it(self) -> None:
        assert run_punctually(received_after(lambda loop: loop.rest(0.05))) >= 0.05

    def test_what_arrived_is_taken_before_the_timer_that_ends_it(self) -> None:
        order: list[str] = []

        def begin(loop: RestingLoop) -> None:
            asyncio.get_running_loop().call_later(0.05, order.append, "rung")
            loop.rest(LONG_SECONDS)

        run_punctually(received_after(begin, lambda: order.append("received")))
        assert order[0] == "received"

    def test_after_it_was_ended_it_delays_nothing(self) -> None:
        def begin(loop: RestingLoop) -> None:
            loop.rest(LONG_SECONDS)
            loop.rest(0)

        assert run_punctually(received_after(begin)) < LONG_SECONDS

    def test_timers_are_as_punctual_as_without_a_rest(self) -> None:
        async def main() -> float:
            loop = asyncio.get_running_loop()
            rung: asyncio.Future[float] = loop.create_future()
            due = loop.time() + 0.01
            loop.call_at(due, lambda: rung.set_result(loop.time()))
            assert isinstance(loop, RestingLoop)
            loop.rest(LONG_SECONDS)
            return await asyncio.wait_for(rung, LONG_SECONDS) - due

        assert run_punctually(main()) >= 0


@pytest.fixture
def descriptors_are_high() -> Iterator[None]:
    """Take all descriptors that `select` can take."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < 2 * TOO_HIGH_FOR_SELECT:
        pytest.skip("this process may not have so many descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(allowed, 2 * TOO_HIGH_FOR_SELECT), most))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    while taken[-1] < TOO_HIGH_FOR_SELECT:
        taken.append(os.dup(taken[0]))
    yield
    for descriptor in taken:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))


@pytest.mark.skipif(sys.platform != "linux", reason="the loop is Python's own there")
@pytest.mark.usefixtures("descriptors_are_high")
def test_where_select_cannot_look_the_loop_waits_all_the_same() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        rung: asyncio.Future[float] = loop.create_future()
        due = loop.time() + 0.003
        loop.call_at(due, lambda: rung.set_result(loop.time()))
        assert await asyncio.wait_for(rung, LONG_SECONDS) >= due

    run_punctually(main())
