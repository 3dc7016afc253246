"""The scenario of a round: which servers, how many sidecars, and the script of its nemesis, all drawn from one seed.

Its rule: the seed decides what is done and when; what the real world makes of it differs from run to run.
The kind of a round follows from its seed by counting, so that any stretch of seeds has all kinds in equal parts.
"""

from dataclasses import dataclass, replace
from random import Random

from tests.harness.servers import V2_10, V2_11
from tests.judge.history import SECOND, Terms

STRIKES = (
    *("kill", "stop", "cut", "partition", "slow", "server-kill", "server-restart", "node-kill", "quorum", "bucket"),
    "forged",
)
"""The strikes that the nemesis can do."""
KINDS = (*STRIKES, "mixed")
"""The subject of a round: one kind of strike, or all that its servers allow."""

CLUSTER_KINDS = ("clock", "node-stop", "two-stops", "node-kill", "two-kills", "step-down", "sidecars", "mixed")
"""The subject of a round of a loaded cluster: see `in_cluster`."""

OF_SINGLE_SERVERS = ("server-kill", "server-restart")
OF_CLUSTERS = ("node-kill", "quorum")
FAULTS_OF_SIDECARS = ("kill", "stop", "cut", "partition", "slow")
PAUSES = ("node-stop", "two-stops")

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
    "bucket": 0.0,
    "forged": 2.0,
    "clock": 4.0,
    "node-stop": 5.0,
    "two-stops": 5.0,
    "two-kills": 4.0,
    "step-down": 0.0,
}
"""The longest time (s) that each lasts until it is healed."""
SHORTEST_PAUSE = 0.5
"""The shortest time (s) for which nodes of a cluster are stopped."""

PARTITIONS = ("held", "lost", "refused", "held-answers")
FORGERIES = ("owner-nobody", "owner-another", "heartbeats")
"""What a hostile client writes into the bucket, again and again: that nobody owns the stream under test, that another
sidecar does, heartbeats of sidecars that do not exist and serve it."""
HARMS = ("", "", "", "folder-deleted", "file-cut", "file-flipped")
"""What happens to the file of schedules of a sidecar that was killed, before it is started again: mostly nothing."""
LANES = ("to-server", "to-client", "both")
SLOWEST = 400
"""The longest delay of a direction (ms)."""
CLOCKS = ("machine-of-one", "machine-of-all", "machine-of-all", "wall-of-all")
"""The clocks that are ahead, and of which sidecars: all of their machine, the monotonic one too; or only the wall clock
of their machine."""
MOST_AHEAD = 4.9
"""The most seconds of that lead: what is promised ends at 5 s."""
LONGEST_GAP = 4.0
"""Between the kills of two nodes (s)."""

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
CLUSTER_BREAKS_FOR = 20.0
"""Strikes on a loaded cluster begin within this time (s)."""
BESIDE = 19
"""Streams beside the one under test where sidecars share many."""
REPEATING = 130
"""Schedules of a loaded cluster that fire from the beginning to the end, each second or less often."""
SOON = 390
"""Schedules of a loaded cluster that fire once, soon after they are stored."""


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
    """The seconds by which it delays, is ahead, or lets two kills follow each other."""

    @property
    def puts_ahead(self) -> bool:
        """True if a sidecar takes the server's clock for ahead: its machine's wall clock does not matter."""
        return self.kind == "clock" and not self.way.startswith("wall")

    def __str__(self) -> str:
        """Describe it in a few words."""
        how = f" {self.way}" if self.way else ""
        how += f" by {self.delay:.2f} s" if self.delay else ""
        return f"{self.kind}{how} #{self.victim} at {self.after:.2f} s for {self.lasts:.2f} s"


@dataclass(frozen=True, slots=True)
class Scenario:
    """The scenario that one seed stands for."""

    seed: int
    kind: str
    version: str
    nodes: int
    instances: int
    consumes: bool
    """True if the stream is a work queue, from which workers remove generated messages."""
    strikes: tuple[Strike, ...]
    standbys: int | None = None
    """The number of sidecars that stand by for each stream (`standbys`); None: it is not set."""
    beside: int = 0
    """The number of streams beside the one under test, each with a schedule that fires throughout."""
    breaks_for: float = BREAKS_FOR
    """Strikes begin within this time (s)."""
    repeating: int = STEADY
    """Schedules that fire from the beginning to the end."""
    soon: int = 0
    """Schedules that are stored while everything breaks, and fire once, soon."""
    durable: bool = False
    """True if the servers write everything to the disk at once (`sync_interval: always`)."""
    busy: int = 0
    """The number of processes that compute all the time beside the round."""

    @property
    def is_loaded_cluster(self) -> bool:
        """True if it is a round of `in_cluster`."""
        return self.soon > 0

    def __str__(self) -> str:
        """Describe it in one line."""
        where = f"{self.nodes} × {self.version}" + (", work queue" if self.consumes else "")
        where += f", {self.standbys} standby" if self.standbys is not None else ""
        where += f", {self.beside} streams beside" if self.beside else ""
        where += ", sync always" if self.durable else ""
        where += f", {self.busy} busy" if self.busy else ""
        return f"{self.kind}: {self.instances} sidecar(s), {where}; " + ", ".join(map(str, self.strikes))

    @property
    def terms(self) -> Terms:
        """The limits of the promises: what had been sent before a stall or a delay still arrives."""
        window = SECOND // 10 + self._in_flight()
        return Terms(
            guard=self.version != V2_10,
            slack=LATE,
            window=window,
            held_elsewhere=self._held(),
            window_elsewhere=SHORT_WINDOW,
            consumed=self.consumes,
            removed_by_workers=self.consumes,
            clock_ahead=max([0, *(int(one.delay * SECOND) for one in self.strikes if one.puts_ahead)]),
        )

    def _in_flight(self) -> int:
        """Return how long (ns) a fire that was sent before a fault can be in transit."""
        ways = {"stop": LONGEST["stop"], "partition": LONGEST["partition"], "slow": 3 * SLOWEST / 1000}
        kinds = {strike.kind for strike in self.strikes}
        if self.version == V2_10:  # nothing but the sidecar knows that a fire is outdated that a node holds
            ways |= {kind: LONGEST[kind] for kind in PAUSES}
        return sum(int(longest * SECOND) for kind, longest in ways.items() if kind in kinds)

    def _held(self) -> int:
        """Return how long (ns) a node can hold a fire into another stream, where no guard shows that it is outdated."""
        kinds = {strike.kind for strike in self.strikes}
        return sum(int(LONGEST[kind] * SECOND) for kind in PAUSES if kind in kinds)


def drawn(seed: int) -> Scenario:
    """Draw the scenario of a seed."""
    random = Random(f"nemesis {seed}")
    kind = KINDS[seed % len(KINDS)]
    version, nodes = _servers(kind, random)
    instances = random.choice([1, 2, 2, 3])
    count = random.randint(2, 4)
    times = sorted(random.uniform(0.5, BREAKS_FOR) for _ in range(count))
    strikes = tuple(_strike(_kind_of(kind, nodes, random), after, random) for after in times)
    consumes = random.random() < CONSUMES
    usual = Scenario(seed, kind, version, nodes, instances, consumes, strikes)
    return _harmed(_shared(usual))


def in_cluster(seed: int, busy: int = 0) -> Scenario:
    """Draw a round of a loaded cluster: three sidecars, streams of three replicas, many schedules, and long trouble.

    Beside it `busy` processes compute all the time.
    """
    random = Random(f"cluster {seed}")
    kind = CLUSTER_KINDS[seed % len(CLUSTER_KINDS)]
    version = random.choice([V2_11, V2_11, V2_11, V2_10])
    durable = random.random() < 0.5
    times = sorted(random.uniform(0.5, CLUSTER_BREAKS_FOR) for _ in range(random.randint(4, 7)))
    strikes = tuple(_cluster_strike(kind, after, random) for after in times)
    usual = _shared(Scenario(seed, kind, version, 3, 3, False, strikes))
    loaded = replace(usual, breaks_for=CLUSTER_BREAKS_FOR, repeating=REPEATING, soon=SOON, durable=durable, busy=busy)
    return _harmed(loaded)


def _cluster_strike(kind: str, after: float, random: Random) -> Strike:
    if kind == "mixed":
        kind = random.choice(CLUSTER_KINDS[:-1])
    if kind == "sidecars":
        return _strike(random.choice(FAULTS_OF_SIDECARS), after, random)
    shortest = min(SHORTEST_PAUSE, LONGEST[kind])
    lasts, victim = random.uniform(shortest, LONGEST[kind]), random.randrange(3)
    if kind == "clock":
        return Strike(kind, after, lasts, victim, random.choice(CLOCKS), random.uniform(0.5, MOST_AHEAD))
    return Strike(kind, after, lasts, victim, delay=random.uniform(0.1, LONGEST_GAP) if kind == "two-kills" else 0.0)


def _shared(usual: Scenario) -> Scenario:
    """Draw how many of three sidecars stand by, and how many streams they share: one, or in a third of rounds many."""
    if usual.instances < 3:
        return usual
    random = Random(f"standbys {usual.seed}")
    return replace(usual, standbys=random.choice([0, 1, 2]), beside=random.choice([0, 0, BESIDE]))


def _harmed(usual: Scenario) -> Scenario:
    """Draw what happens to the files of the sidecars that are killed."""
    random = Random(f"files {usual.seed}")
    strikes = (replace(one, way=random.choice(HARMS)) if one.kind == "kill" else one for one in usual.strikes)
    return replace(usual, strikes=tuple(strikes))


def _servers(kind: str, random: Random) -> tuple[str, int]:
    if kind in OF_CLUSTERS:
        return V2_11, 3
    choices = [(V2_11, 1), (V2_11, 1), (V2_10, 1), (V2_10, 1)]
    if kind not in OF_SINGLE_SERVERS:
        choices.append((V2_11, 3))
    return random.choice(choices)


def _kind_of(kind: str, nodes: int, random: Random) -> str:
    others = OF_CLUSTERS if nodes == 1 else OF_SINGLE_SERVERS
    return random.choice([one for one in STRIKES if one not in others]) if kind == "mixed" else kind


def _strike(kind: str, after: float, random: Random) -> Strike:
    lasts = random.uniform(0.05, 1.0) * LONGEST[kind]
    ways = {"partition": PARTITIONS, "slow": LANES, "forged": FORGERIES}.get(kind, ("",))
    delay = random.randint(50, SLOWEST) / 1000 if kind == "slow" else 0.0
    return Strike(kind, after, lasts, random.randrange(3), random.choice(ways), delay)
