"""The loop that waits to the microsecond does what Python's own does; how punctual it is, the benchmark shows."""

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable

import pytest

from nats_scheduler.runtime.fewer_wakes import RestingLoop
from nats_scheduler.runtime.punctual import run_punctually

LONG_SECONDS = 30.0
"""Longer than any test takes."""


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the loop is Python's own there")


def test_timers_come_in_order_and_none_before_its_time() -> None:
    rung: list[tuple[float, bool]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        over = asyncio.Event()

        def ring(due: float) -> None:
            rung.append((due, loop.time() < due))
            if len(rung) == 50:
                over.set()

        start = loop.time()
        for number in reversed(range(50)):
            due = start + number * 0.000_37
            loop.call_at(due, ring, due)
        await asyncio.wait_for(over.wait(), LONG_SECONDS)

    run_punctually(main())
    assert rung == [(due, False) for due, _is_early in sorted(rung)]


def test_what_arrives_and_a_signal_end_a_long_sleep() -> None:
    async def main() -> None:
        here, there = socket.socketpair()
        with here, there:
            here.setblocking(False)
            loop = asyncio.get_running_loop()
            threading.Timer(0.01, there.sendall, (b"hello",)).start()
            assert await asyncio.wait_for(loop.sock_recv(here, 10), LONG_SECONDS) == b"hello"
        came = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, came.set)
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


def rest(loop: RestingLoop, seconds: float) -> None:
    """Rest for a time from now on."""
    loop.rest_until(loop.time() + seconds)


@on_linux
def test_what_arrives_does_not_end_a_rest_nor_does_a_timer() -> None:
    assert run_punctually(received_after(lambda loop: rest(loop, 0.05))) >= 0.05
    order: list[str] = []

    def begin(loop: RestingLoop) -> None:
        asyncio.get_running_loop().call_later(0.01, order.append, "rung")
        asyncio.get_running_loop().call_soon(order.append, "soon")
        rest(loop, 0.05)

    run_punctually(received_after(begin, lambda: order.append("received")))
    assert order == ["soon", "rung", "received"]
