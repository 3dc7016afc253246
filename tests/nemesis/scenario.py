"""The scenario of a round: which servers, how many sidecars, and the script of its nemesis, all drawn from one seed.

Its rule: the seed decides what is done and when; what the real world makes of it differs from run to run.
The kind of a round follows from its seed by counting, so that any stretch of seeds has all kinds in equal parts.
"""

from dataclasses import dataclass
from random import Random

from tests.harness.servers import V2_10, V2_11
from tests.judge.history import SECOND, Terms

OF_SIDECARS = ("kill", "stop", "cut", "partition", "slow")
OF_SINGLE_SERVERS = ("server-kill", "server-restart")
OF_CLUSTERS = ("node-kill", "quorum")
KINDS = (*OF_SIDECARS, *OF_SINGLE_SERVERS, *OF_CLUSTERS, "mixed")
"""The subject of a round: one kind of strike, or all that its servers allow."""

LONGEST = {
    "kill": 4.0,
    "stop": 8.0,
    "cut": 0.0,
    "partition": 6.0,
    "slow": 3.0,
    "server-kill": 2.5,
    "server-restart": 1.5,
    "node-kill": 4.0,
    "quorum": 2.0,
}
"""The longest time (s) that each lasts until it is healed."""

PARTITIONS = ("held", "lost", "refused", "held-answers")
LANES = ("to-server", "to-client", "both")
SLOWEST = 400
"""The longest delay of a direction (ms)."""

BREAKS_FOR = 7.0
"""Strikes begin within this time (s)."""
LATE = 3 * SECOND // 4
"""A fire is late if it is stored this long (ns) after its time although a sidecar was ready: the machine is shared."""
MEAN_PUBLISH_SECONDS = 0.12
SHORT_WINDOW = 2 * SECOND
"""The duplicate window (ns) of the other stream: most faults last longer."""
CONSUMES = 0.25
"""The share of rounds in which the stream is a work queue."""
STEADY = 6
"""Schedules that fire each second from the beginning to the end."""


@dataclass(frozen=True, slots=True)
class Strike:
    """One act of the nemesis."""

    kind: str
    after: float
    """Seconds from the beginning."""
    lasts: float
    victim: int
    """The number of the sidecar or node, counted round."""
    way: str = ""
    delay: float = 0.0
    """The seconds by which it delays."""

    def __str__(self) -> str:
        """Describe it in a few words."""
        how = f" {self.way}" if self.way else ""
        how += f" by {self.delay:.2f} s" if self.delay else ""
        return f"{self.kind}{how} #{self.victim} at {self.after:.2f} s for {self.lasts:.2f} s"


@dataclass(frozen=True, slots=True)
class Scenario:
    """The scenario that one seed stands for."""

    seed: int
    version: str
    nodes: int
    instances: int
    consumes: bool
    """True if the stream is a work queue, from which workers remove generated messages."""
    strikes: tuple[Strike, ...]

    def __str__(self) -> str:
        """Describe it in one line."""
        where = f"{self.nodes} × {self.version}" + (", work queue" if self.consumes else "")
        return f"{self.instances} sidecar(s), {where}; " + ", ".join(map(str, self.strikes))

    @property
    def terms(self) -> Terms:
        """The limits of the promises: what had been sent before a stall or a delay still arrives."""
        ways = {"stop": LONGEST["stop"], "partition": LONGEST["partition"], "slow": 3 * SLOWEST / 1000}
        kinds = {strike.kind for strike in self.strikes}
        in_flight = sum(int(longest * SECOND) for kind, longest in ways.items() if kind in kinds)
        return Terms(
            guard=self.version != V2_10,
            slack=LATE,
            window=SECOND // 10 + in_flight,
            window_elsewhere=SHORT_WINDOW,
            consumed=self.consumes,
            removed_by_workers=self.consumes,
        )


def drawn(seed: int) -> Scenario:
    """Draw the scenario of a seed."""
    random = Random(f"nemesis {seed}")
    kind = KINDS[seed % len(KINDS)]
    version, nodes = _servers(kind, random)
    instances = random.choice([1, 2, 2, 3])
    times = sorted(random.uniform(0.5, BREAKS_FOR) for _ in range(random.randint(2, 4)))
    strikes = tuple(_strike(_kind_of(kind, nodes, random), after, random) for after in times)
    return Scenario(seed, version, nodes, instances, random.random() < CONSUMES, strikes)


def _servers(kind: str, random: Random) -> tuple[str, int]:
    if kind in OF_CLUSTERS:
        return V2_11, 3
    return random.choice([(V2_11, 1), (V2_10, 1)])


def _kind_of(kind: str, nodes: int, random: Random) -> str:
    others = OF_SINGLE_SERVERS if nodes == 1 else OF_CLUSTERS
    return random.choice([*OF_SIDECARS, *others]) if kind == "mixed" else kind


def _strike(kind: str, after: float, random: Random) -> Strike:
    lasts = random.uniform(0.05, 1.0) * LONGEST[kind]
    way = random.choice({"partition": PARTITIONS, "slow": LANES}.get(kind, ("",)))
    delay = random.randint(50, SLOWEST) / 1000 if kind == "slow" else 0.0
    return Strike(kind, after, lasts, random.randrange(3), way, delay)
