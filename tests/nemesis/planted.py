"""The sidecar with a bug of the simulation planted in it: `python -m tests.nemesis.planted BUG run …`.

Its rule: nothing but the bug differs from `nats-scheduler run …`.
"""

import sys

from nats_scheduler.cli.main import main
from tests.simulation.planted import BUGS, planted

if __name__ == "__main__":
    named = {bug.__name__: bug for bug in BUGS}
    with planted(named[sys.argv.pop(1)]):
        main()
