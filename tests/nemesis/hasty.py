"""The sidecar that takes a snapshot after each few messages: `python -m tests.nemesis.hasty run …`.

Its rule: nothing but the haste differs from `nats-scheduler run …`.
"""

from nats_scheduler.cli.main import main
from tests.simulation.snapshots import hasty

if __name__ == "__main__":
    with hasty():
        main()
