"""The sidecar on a machine whose clocks may be ahead: `python -m tests.nemesis.shifted FILE [OPTIONS]`.

FILE says how far they are ahead at the moment.

Its rule: nothing but the clock differs from `nats-scheduler run [OPTIONS]`.
"""

import mmap
import struct
import sys
from pathlib import Path

import click

from nats_scheduler.cli.options import settings_options
from nats_scheduler.cli.run import serve
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.settings.load import ResolvedSettings

AHEAD = struct.Struct("=qq")
"""The lead (ns) of the wall clock, and of the monotonic clock."""


class ShiftedClock:
    """The clocks of this machine, ahead by what a file says at the moment."""

    def __init__(self, file: Path) -> None:
        self._clock = SystemClock()
        with file.open("rb") as opened:
            self._said = mmap.mmap(opened.fileno(), AHEAD.size, access=mmap.ACCESS_READ)

    def now(self) -> int:
        """Return the wall clock."""
        return self._clock.now() + int(AHEAD.unpack(self._said)[0])

    def monotonic(self) -> int:
        """Return nanoseconds since an arbitrary start."""
        return self._clock.monotonic() + int(AHEAD.unpack(self._said)[1])


@click.command("run")
@settings_options
def command(resolved: ResolvedSettings) -> None:
    """Serve by the shifted clock."""
    serve(resolved, CLOCK)


if __name__ == "__main__":
    CLOCK = ShiftedClock(Path(sys.argv.pop(1)))
    command()
