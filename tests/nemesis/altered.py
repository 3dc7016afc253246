"""The sidecar with something altered: `python -m tests.nemesis.altered [--bug NAME] [--clock FILE] run …`.

`--bug` plants a bug of the simulation in it, and `--clock` names a file that says how far its clocks are ahead.

The simulation is imported only where it is needed: a sidecar should start as fast as it does elsewhere.

Its rule: nothing but that differs from `nats-scheduler run …`.
"""

import mmap
import struct
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from nats_scheduler.cli.main import main
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.server_clock import ServerClock

AHEAD = struct.Struct("=qqq")
"""The lead (ns) of what it takes for the server's clock, of its wall clock, and of its monotonic clock."""


def shift_clocks(file: Path) -> None:
    """Let the clocks of this process be ahead by what a file says at the moment."""
    with file.open("rb") as opened:
        said = mmap.mmap(opened.fileno(), AHEAD.size, access=mmap.ACCESS_READ)

    def shifted(clock: Callable[..., int], place: int) -> Callable[..., int]:
        return lambda *self: clock(*self) + AHEAD.unpack(said)[place]

    ServerClock.now = shifted(ServerClock.now, 0)  # type: ignore[method-assign]
    SystemClock.now = staticmethod(shifted(SystemClock.now, 1))
    SystemClock.monotonic = staticmethod(shifted(SystemClock.monotonic, 2))


def _option(name: str) -> str:
    """Take an option and its value from the command line; empty without it."""
    if name not in sys.argv:
        return ""
    place = sys.argv.index(name)
    _name, value = sys.argv[place : place + 2]
    del sys.argv[place : place + 2]
    return value


if __name__ == "__main__":
    with ExitStack() as altered:
        if bug := _option("--bug"):
            from tests.simulation.planted import BUGS, planted

            altered.enter_context(planted(BUGS[bug].changes))
        if clock := _option("--clock"):
            shift_clocks(Path(clock))
        main()
