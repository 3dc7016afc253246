"""The scenario of a seed: how many instances, which server, what breaks, and for how long at most.

Its rule: everything is drawn here or later from one seed, and each seed breaks only some of what can break, since
faults of all kinds at once hide each other.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from nats_scheduler.engine.ownership.order import ALL_INSTANCES, PATIENCE_NS, REPLACED_AFTER_NS
from tests.judge.history import SECOND, Terms

MILLISECOND = SECOND // 1000

KINDS = (
    *("kill", "crash", "leave", "stall", "cut", "partition", "lossy", "slow", "refusing", "clock"),
    *("bucket deleted", "bucket silent"),
)

UNABLE = ("denied", "idle", "receives nothing")
"""Faults of an instance whose heartbeats arrive: its fires are denied, or get lost, or it receives nothing."""

OF_FILES = ("disk full", "row altered")
"""Faults of an instance that keeps its schedules in a file."""

FORGED = ("forged owner", "forged heartbeat")
"""What a hostile client writes into the bucket: the record of the owner, or the heartbeat of an unknown instance."""

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
    "denied": 20 * SECOND,
    "idle": 20 * SECOND,
    "receives nothing": 8 * SECOND,
    "disk full": 0,
    "row altered": 0,
    "forged owner": 0,
    "forged heartbeat": 0,
}
"""The longest time (ns) that each kind of fault lasts."""

ANSWER_DEADLINE = 5 * SECOND

UNANSWERED = ANSWER_DEADLINE + SECOND
"""The time (ns) after which a request that got lost is repeated at the latest."""

NOTICED_AFTER = {"denied": SECOND, "idle": 3 * SECOND, "receives nothing": 0}
"""The time (ns) after which an instance that is unable is noticed, on top of *Live*: at its first fire, or after some
that are missing."""

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

LIVE = 3 * SECOND
LONGEST_RETRY = {"lossy": UNANSWERED, "slow": 3 * SLOWEST, "refusing": 7 * SECOND, "clock": CLOCK_OFF}
"""The time (ns) on top of *Live*: an answer that is lost on a live connection is awaited until its deadline,
and refused fires are retried less and less often."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """The scenario that one seed stands for."""

    seed: int
    instances: int
    elects: bool
    """True if the instances agree on one owner; if not, each fires everything, the harder case for *Unique*."""
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

    Only if there is one instance: two that fire at a takeover, or by wrong clocks, may send a fire to one leader each.
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
    spreads: bool
    """True if some schedules are spread."""
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
    standbys: int | None = None
    """How many instances read the stream besides its owner (the setting `standbys`); None: all. No draw either."""
    beats: bool = False
    """True if a schedule fires each second that nobody changes: so an owner that fires nothing is noticed soon."""
    files: bool = False
    """True if instances keep their schedules in files, and begin with them: no draw, so that each seed has a world of
    either kind."""
    alters_files: bool = False
    """True if something happens to files while no process uses them; no draw either."""
    shares_folder: bool = False
    """True if two of the instances use one folder: the second one keeps no file. No draw either."""

    @property
    def heals_for(self) -> int:
        """The time (ns) at the end in which nothing is broken: until all must be ready, and a while to check it."""
        settles = REPLACED_AFTER_NS + 2 * PATIENCE_NS + self.reads_for if self.standbys is not None else 0
        return self.terms.resumes_within + self.reads_for + settles + 12 * SECOND

    @property
    def terms(self) -> Terms:
        """The limits of the promises in a world with these faults."""
        off = CLOCK_OFF if "clock" in self.kinds else 0
        return Terms(
            guard=self.guard,
            covered_unguarded=self.lags,
            resumes_within=LIVE + max((LONGEST_RETRY.get(kind, 0) for kind in self.kinds), default=0),
            slack=SECOND // 2 + off,
            leader_behind=LONGEST_LAG if self.lags else 0,
            window=SECOND // 10 + off + self._in_flight(),
            clock_ahead=off,
            clock_behind=off,
            elected=self.elects,
            readers=min(1 + self.standbys, self.instances) if self.standbys is not None else 0,
            consumed=self.consumes,
            duplicate_window=self.duplicate_window,
        )

    def _in_flight(self) -> int:
        """Return how long (ns) what was read or sent before may still be in transit."""
        ways = {
            "slow": 3 * SLOWEST,
            "stall": LONGEST["stall"],
            "partition": PARTITION_NOTICED,
            "receives nothing": LONGEST["receives nothing"],
        }
        lag = LONGEST_AGREEMENT if self.disagrees else LONGEST_LAG if self.lags else 0
        return sum(ways.get(kind, 0) for kind in self.kinds) + lag


def drawn(seed: int) -> Scenario:
    """Draw the scenario of a seed."""
    random, later = (
        Random(f"scenario {seed}"),
        Random(f"content {seed}"),
    )  # later features do not change the worlds of existing seeds
    elects = random.random() < 0.5
    consumes = random.random() < 0.25
    kinds = tuple(kind for kind in KINDS if random.random() < 0.4)
    lags = Random(f"leader {seed}").random() < 0.3
    instances = random.choice([1, 2, 2, 3] if elects else [1, 1, 2, 2, 3])
    forges = Random(f"forger {seed}").random() < 0.2
    return Scenario(
        seed=seed,
        instances=instances,
        elects=elects,
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
        spreads=Random(f"spreading {seed}").random() < 0.3,
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


def with_files(seed: int) -> Scenario:
    """Draw the scenario of a seed in which instances keep files, and are killed at least; fires have deadlines."""
    random, usual = Random(f"files {seed}"), drawn(seed)
    of_files = tuple(kind for kind in OF_FILES if random.random() < 0.15)
    return replace(
        usual,
        files=True,
        alters_files=random.random() < 0.5,
        shares_folder=random.random() < 0.1,
        deadlines=not usual.consumes,
        kinds=(*(kind for kind in KINDS if kind == "kill" or kind in usual.kinds), *of_files),
    )


def with_standbys(seed: int) -> Scenario:
    """Draw the scenario of a seed in which three or four instances share a stream: it has no standby, one, or all.

    They come, go and die at least. Half of the seeds are those with files. Faults are rare in half of each, and
    after none of them an instance may need long: both would excuse a stream that is left too early.
    """
    random, usual = Random(f"readers {seed}"), with_files(seed) if seed % 2 else drawn(seed)
    if random.random() < 0.5:
        kinds = tuple(kind for kind in usual.kinds if kind not in LONGEST_RETRY)
        usual = replace(usual, kinds=kinds, breaks_every=6 * SECOND, breaks_for=40 * SECOND)
    return replace(
        usual,
        elects=True,
        instances=random.choice([3, 4]),
        standbys=random.choice([0, 1, 1, ALL_INSTANCES]),
        reads_for=random.choice([0, 6, 9]) * SECOND,
        kinds=tuple(kind for kind in (*KINDS, *OF_FILES) if kind in ("kill", "leave", *usual.kinds)),
        leads_anew=False,
    )


def with_unable(seed: int) -> Scenario:
    """Draw the scenario of a seed in which instances are alive and unable, and a hostile client writes into the bucket.

    Where the fires of an owner cannot be read back, or others than it hold them back, it cannot be judged by them. One
    that is idle is noticed by standbys only, and forgiven after a while: so there is one at most, and no standby dies.
    """
    random, usual = Random(f"unable {seed}"), drawn(seed)
    others = ("idle",) if random.random() < 0.4 else ("denied", "receives nothing", "kill")
    kinds = tuple(kind for kind in (*others, *FORGED, "bucket deleted") if random.random() < 0.6)
    return replace(
        usual,
        elects=True,
        instances=random.choice([2, 3]),
        standbys=random.choice([None, 1]),
        kinds=kinds or others,
        breaks_every=random.choice([3, 8]) * SECOND,
        breaks_for=40 * SECOND,
        reads_for=0,
        beats=True,
        leads_anew=False,
        consumes=False,
        purges=False,
        elsewhere=False,
        overlaps=False,
        forges=False,
    )


DRAWS: dict[str, Callable[[int], Scenario]] = {
    "": drawn,
    "--files": with_files,
    "--roll-ups": with_roll_ups,
    "--standbys": with_standbys,
    "--unable": with_unable,
}
"""What is drawn of a seed, by the option of the command."""
