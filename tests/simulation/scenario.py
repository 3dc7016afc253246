"""The scenario of a seed: how many instances, which server, what breaks, and for how long at most.

Its rule: everything is drawn here or later from one seed, and each seed breaks only some of what can break, since
faults of all kinds at once hide each other.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from nats_scheduler.engine.sharing.readers import PATIENCE_NS, REPLACED_AFTER_NS
from tests.judge.history import SECOND, Terms

MILLISECOND = SECOND // 1000

KINDS = (
    *("kill", "crash", "leave", "stall", "cut", "partition", "lossy", "slow", "refusing", "clock"),
    *("bucket deleted", "bucket silent"),
)

SILENT = ("stall", "cut", "partition")
"""Faults during which no heartbeat of the instance arrives."""

LONGEST = {
    "kill": 8 * SECOND,
    "crash": 3 * SECOND,
    "leave": 8 * SECOND,
    "stall": 20 * SECOND,
    "cut": 1 * SECOND,
    "partition": 6 * SECOND,
    "lossy": 5 * SECOND,
    "slow": 5 * SECOND,
    "refusing": 5 * SECOND,
    "clock": 8 * SECOND,
    "bucket deleted": 0,
    "bucket silent": 4 * SECOND,
}
"""The longest time (ns) that each kind of fault lasts."""

PARTITION_NOTICED = 2 * SECOND
"""A partition that lasts longer (ns) ends the contact; a shorter one delays everything.

Several that follow on each other count as one: a connection ends when nothing was received on it for that time. Were
each of them noticed separately, a chain of them could hold back a cancel, and a fire behind it, for any time.
"""

LONGEST_LAG = 300 * MILLISECOND
"""The longest time (ns) from following a message until the leader applies it; no publisher is answered before that."""

LONGEST_AGREEMENT = 1 * SECOND
"""The longest time (ns) that the replicas need to agree on a fire."""

SLOWEST = 3 * SECOND // 2
"""Longest transit (ns) of a request, of an answer, or of a message to a follower, while it is slow."""

CLOCK_OFF = 2 * SECOND
"""The most (ns) that a clock may be off, either way."""

ANSWER_DEADLINE = 5 * SECOND

LIVE = 3 * SECOND
LONGEST_RETRY = {"lossy": ANSWER_DEADLINE + SECOND, "slow": 3 * SLOWEST, "refusing": 7 * SECOND, "clock": CLOCK_OFF}
"""The time (ns) on top of *Live*: an answer that is lost on a live connection is awaited until its deadline,
and refused fires are retried less and less often."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """The scenario that one seed stands for."""

    seed: int
    instances: int
    divides: bool
    """True if the instances divide the work by leases; if not, each serves everything, the harder case for *Unique*."""
    guard: bool
    consumes: bool
    duplicate_window: int
    reads_for: int
    """The time (ns) that a new process needs to read the stream."""
    kinds: tuple[str, ...]
    breaks_for: int
    """The time (ns) for which things break, before they heal."""
    breaks_every: int
    """Mean time (ns) between two faults."""
    publishes_every: int
    """Mean time (ns) between two requests of the publishers."""
    expires: bool
    """True if some schedules, and some of their fires, have a TTL."""
    samples: bool
    """True if some schedules sample a source."""
    purges: bool
    """True if publishers purge the whole stream at times."""
    lags: bool
    """True if the leader of the stream is behind the followed node at times."""
    disagrees: bool
    """True if the replicas of the stream need long at times to agree on a fire."""
    leads_anew: bool
    """True if the stream gets another leader at times while its replicas need long to agree.

    Only if there is one instance: two that fire at a handover, or by wrong clocks, may send a fire to one leader each.
    And not with a forger: another leader frees the identities that it has blocked (`engine.firing.sending`).
    """
    lands: bool
    """True if some schedules fire onto the subjects of others, which stay alive."""
    forges: bool
    """True if a forger stores messages that look like fires at times."""
    bounds: bool
    """True if some schedules have a start, an end, a limit, or another grid."""
    calendars: bool
    """True if some schedules name calendars, which are edited."""
    jitters: bool
    """True if some schedules have a jitter."""
    misses: bool
    """True if some schedules say what happens to missed fires, and ask for reports."""
    elsewhere: bool
    """True if some schedules fire into another stream."""
    pauses: bool
    """True if publishers pause schedules, and resume them."""
    overlaps: bool
    """True if some schedules hold fires back while the one before is unfinished, and workers take their time."""

    compares: bool
    """True if a one-shot that is replaced is compared with what replaces it, and purged after that."""
    asks: bool
    """True if instances can ask each other whether they are there; if not, a permission for that is missing."""

    rolls_up: bool = False
    """True if fires of some schedules replace those before them, in a stream that does not take `Nats-Rollup`.

    No draw either.
    """
    deadlines: bool = False
    """True if some schedules say within which time their fires are to be done; no draw either."""
    readers: int = 0
    """How many instances read the stream (`instances_per_stream`); 0: all. No draw either."""
    full: frozenset[str] = frozenset()
    """The instances that have no room for the stream (`schedules_per_instance`); no draw either."""
    snapshots: bool = False
    """True if instances keep snapshots, and begin with them: no draw, so that each seed has a world of either kind."""

    @property
    def heals_for(self) -> int:
        """The time (ns) at the end in which nothing is broken: until all must be ready, and a while to check it."""
        settles = REPLACED_AFTER_NS + 2 * PATIENCE_NS + self.reads_for if self.readers else 0
        return self.terms.resumes_within + self.reads_for + settles + 12 * SECOND

    @property
    def terms(self) -> Terms:
        """The limits of the promises in a world with these faults."""
        off = CLOCK_OFF if "clock" in self.kinds else 0
        return Terms(
            guard=self.guard,
            lands_unguarded=self.lands and self.lags,
            resumes_within=LIVE + max((LONGEST_RETRY.get(kind, 0) for kind in self.kinds), default=0),
            slack=SECOND // 2 + off,
            leader_behind=LONGEST_LAG if self.lags else 0,
            window=SECOND // 10 + off + self._in_flight(),
            clock_ahead=off,
            clock_behind=off,
            divided=self.divides,
            readers=min(self.readers, self.instances),
            consumed=self.consumes,
            duplicate_window=self.duplicate_window,
            allows_roll_ups=not self.rolls_up,
        )

    def _in_flight(self) -> int:
        """Return how long (ns) what was read or sent before may still be in transit."""
        ways = {"slow": 3 * SLOWEST, "stall": LONGEST["stall"], "partition": PARTITION_NOTICED}
        lag = LONGEST_AGREEMENT if self.disagrees else LONGEST_LAG if self.lags else 0
        return sum(ways.get(kind, 0) for kind in self.kinds) + lag


def drawn(seed: int) -> Scenario:
    """Draw the scenario of a seed."""
    random, later = (
        Random(f"scenario {seed}"),
        Random(f"content {seed}"),
    )  # later features do not change the worlds of existing seeds
    divides = random.random() < 0.5
    consumes = random.random() < 0.25
    kinds = tuple(kind for kind in KINDS if random.random() < 0.4)
    lags = Random(f"leader {seed}").random() < 0.3
    instances = random.choice([1, 2, 2, 3] if divides else [1, 1, 2, 2, 3])
    forges = Random(f"forger {seed}").random() < 0.2
    return Scenario(
        seed=seed,
        instances=instances,
        divides=divides,
        guard=random.random() < 0.6,
        consumes=consumes,
        duplicate_window=120 * SECOND if consumes else random.choice([7, 120]) * SECOND,
        kinds=kinds,
        breaks_for=random.choice([20, 40]) * SECOND,
        breaks_every=random.choice([500, 1000, 2000]) * MILLISECOND,
        publishes_every=random.choice([200, 500, 1500]) * MILLISECOND,
        reads_for=random.choice([0, 0, 6]) * SECOND,
        expires=later.random() < 0.3,
        samples=later.random() < 0.3,
        purges=later.random() < 0.15,
        lags=lags,
        disagrees=lags and Random(f"agreement {seed}").random() < 0.5,
        leads_anew=instances == 1 and not forges,
        lands=Random(f"landing {seed}").random() < 0.3,
        forges=forges,
        bounds=Random(f"bounds {seed}").random() < 0.3,
        calendars=Random(f"the calendar {seed}").random() < 0.2,
        jitters=Random(f"jitter {seed}").random() < 0.3,
        misses=Random(f"missed {seed}").random() < 0.3,
        elsewhere=Random(f"elsewhere {seed}").random() < 0.3,
        pauses=Random(f"pausing {seed}").random() < 0.3,
        overlaps=Random(f"overlap {seed}").random() < 0.3,
        compares=Random(f"compared {seed}").random() < 0.2,
        asks=Random(f"asks {seed}").random() < 0.5,
    )


def with_roll_ups(seed: int) -> Scenario:
    """Draw the scenario of a seed in which fires are followed by purges of their targets, and instances are killed."""
    usual = drawn(seed)
    return replace(usual, rolls_up=True, consumes=False, kinds=tuple(dict.fromkeys((*usual.kinds, "kill", "crash"))))


def with_snapshots(seed: int) -> Scenario:
    """Draw the scenario of a seed in which instances keep snapshots, and are killed at least; fires have deadlines.

    No schedule names a calendar, which prevents snapshots, and nothing is consumed: witnesses would not stay.
    """
    usual = drawn(seed)
    return replace(
        usual,
        snapshots=True,
        deadlines=True,
        kinds=tuple(kind for kind in KINDS if kind == "kill" or kind in usual.kinds),
        consumes=False,
        calendars=False,
    )


def with_readers(seed: int) -> Scenario:
    """Draw the scenario of a seed in which one or two of three or four instances read the stream.

    They come, go and die at least, and some may have no room for it. Half of the seeds are those with snapshots. Faults
    are rare in half of each, and after none of them an instance may need long: both would excuse a stream that is left
    too early.
    """
    random, usual = Random(f"readers {seed}"), with_snapshots(seed) if seed % 2 else drawn(seed)
    if random.random() < 0.5:
        kinds = tuple(kind for kind in usual.kinds if kind not in LONGEST_RETRY)
        usual = replace(usual, kinds=kinds, breaks_every=6 * SECOND, breaks_for=40 * SECOND)
    return replace(
        usual,
        divides=True,
        instances=random.choice([3, 4]),
        readers=random.choice([1, 2, 2]),
        reads_for=random.choice([0, 6, 9]) * SECOND,
        kinds=tuple(kind for kind in KINDS if kind in ("kill", "leave", *usual.kinds)),
        leads_anew=False,
        full=frozenset(f"i{number}" for number in range(random.choice([0, 0, 1, 2, 4]))),
    )


DRAWS: dict[str, Callable[[int], Scenario]] = {
    "": drawn,
    "--snapshots": with_snapshots,
    "--roll-ups": with_roll_ups,
    "--readers": with_readers,
}
"""What is drawn of a seed, by the option of the command."""
