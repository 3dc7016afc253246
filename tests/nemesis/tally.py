"""The tally of many rounds, one line for each kind, and what a failed round shows.

Its rule: a failed round is printed with the command that repeats it, and with everything about the schedules that the
violations name.
The silence of a round is the longest time until every steady schedule had fired again, counted from the moment from
which nothing excuses a sidecar: they fire each second, so up to a second of it is no fault.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace

from tests.judge.health import Readiness
from tests.judge.history import SECOND, History
from tests.nemesis.publishers import steady
from tests.nemesis.record import MACHINE
from tests.nemesis.round import Outcome
from tests.nemesis.scenario import CLUSTER_KINDS, KINDS, STEADY, Scenario

PROMISES = ("Complete", "Unique", "Timely", "Faithful", "Latest", "Gone", "Live")


@dataclass(slots=True)
class Line:
    """The counts of one kind of round."""

    rounds: int = 0
    schedules: int = 0
    fires: int = 0
    strikes: int = 0
    silence: int = 0
    ready: int = 0
    stood_still: int = 0
    lost: int = 0
    """The number of messages that servers had acknowledged and lost, by the files of all nodes."""
    broken: Counter[str] = field(default_factory=Counter)
    """The number of rounds that broke each promise."""

    def add(self, outcome: Outcome) -> None:
        """Count a round."""
        history = outcome.history
        self.rounds += 1
        self.schedules += len(history.schedules)
        self.fires += len(history.fires)
        self.strikes += len(outcome.strikes)
        self.silence = max(self.silence, longest_silence(history))
        self.ready += ready_time(history)
        self.stood_still += sum(fault.kind == MACHINE for fault in history.faults)
        self.lost += len(outcome.lost)
        self.broken.update({promise for promise, _evidence in outcome.violations})

    def written(self, kind: str) -> str:
        """Write it as a row of a table."""
        others = sum(self.broken.values()) - sum(self.broken[promise] for promise in PROMISES)
        counts = [self.rounds, self.strikes, self.schedules, self.fires]
        cells = [kind, *(f"{count:,}" for count in counts), *(str(self.broken[promise]) for promise in PROMISES)]
        times = [f"{self.ready / SECOND:,.0f}", f"{self.silence / SECOND:.1f}"]
        cells += [str(others), str(self.lost), *times, str(self.stood_still)]
        return "| " + " | ".join(cells) + " |"


class Tally:
    """All lines."""

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self.all = Line()
        self.continued = 0
        self.failures: list[tuple[Scenario, list[str]]] = []
        """The rounds that broke promises, and which."""

    def add(self, outcome: Outcome) -> None:
        """Count a round under its kind."""
        for line in (self.lines.setdefault(outcome.scenario.kind, Line()), self.all):
            line.add(outcome)
        self.continued += outcome.continued
        if outcome.violations:
            broken = Counter(promise for promise, _evidence in outcome.violations)
            self.failures.append((outcome.scenario, [f"{name} ({count})" for name, count in broken.items()]))

    @property
    def failed(self) -> int:
        """The number of broken promises, added up over the rounds."""
        return sum(self.all.broken.values())

    def written(self) -> str:
        """Write the table of the kinds, and one of the rounds that broke promises, with the violations of each."""
        counts = ["round", "rounds", "faults", "schedules", "fires"]
        names = [*counts, *PROMISES, "other", "lost by servers", "ready (s)", "silence (s)", "stood still"]
        rows = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
        kinds = dict.fromkeys((*KINDS, *CLUSTER_KINDS, *self.lines))
        rows += [self.lines[kind].written(kind) for kind in kinds if kind in self.lines]
        rows.append(self.all.written("all"))
        if self.failures:
            rows += ["", "| round | broken | repeat it |", "| --- | --- | --- |"]
        for scenario, broken in self.failures:
            rows.append(f"| {scenario.kind} | {', '.join(broken)} | `{command(scenario)}` |")
        return "\n".join(rows)


def longest_silence(history: History) -> int:
    """Return the longest silence (ns) of a steady schedule after a fault."""
    fires: dict[str, list[int]] = defaultdict(list)
    for fire in history.fires:
        fires[fire.schedule].append(fire.stored_at)
    at_once = replace(history.terms, resumes_within=0)
    stretches = Readiness(replace(history, terms=at_once)).stretches
    longest = 0
    for begin, end in stretches:
        for number in range(STEADY):
            instants = fires[steady(number)]
            after = min((instant for instant in instants if instant >= begin), default=end)
            longest = max(longest, min(after, end) - begin)
    return longest


def ready_time(history: History) -> int:
    """Return how long (ns) some sidecar was ready."""
    total = covered = 0
    for begin, end in sorted(Readiness(history).stretches):
        total += max(0, end - max(begin, covered))
        covered = max(covered, end)
    return total


def command(scenario: Scenario) -> str:
    """Write the command that repeats a round."""
    more = " --cluster" if scenario.is_loaded_cluster else ""
    more += f" --busy {scenario.busy}" if scenario.busy else ""
    return f"python -m tests.nemesis{more} --round-seed {scenario.seed}"


def evidence(outcome: Outcome) -> str:
    """Print what a failed round shows, and how to repeat it."""
    fails = "fails; repeat it" if outcome.violations else "keeps every promise; repeat it"
    lines = [f"round {outcome.scenario.seed} {fails}: {command(outcome.scenario)}", f"  {outcome.scenario}"]
    lines += [f"  {text}" for _promise, text in outcome.violations]
    lines += [f"  lost by the servers: {text}" for text in outcome.lost]
    lines += [f"    {line}" for line in outcome.story]
    names = {one.schedule for one in outcome.history.schedules}
    named = sorted(name for name in names if any(f": {name} (" in text for _promise, text in outcome.violations))
    for name in named:
        lines += [f"    {line}" for line in _lines_of(outcome.history, name)]
        lines += [f"    {line}" for line in outcome.log_lines.get(name, ())]
    return "\n".join(lines)


def _lines_of(history: History, schedule: str) -> list[str]:
    """List everything recorded about a schedule, in the order of time."""

    def seconds(instant: int | None) -> str:
        return "never" if instant is None else f"{(instant - history.begin) / SECOND:.4f}"

    told = [
        (o.invoked_at, f"{o.verb} {o.names or ''} answered at {seconds(o.completed_at)} as {o.sequence}: {o.pattern}")
        for o in history.operations
        if o.schedule == schedule
    ]
    told += [(s.stored_at, f"stored as {s.sequence}") for s in history.schedules if s.schedule == schedule]
    told += [
        (f.stored_at, f"fire of {f.schedule_sequence} for {seconds(f.fire_time)} stored as {f.sequence}")
        for f in history.fires
        if f.schedule == schedule
    ]
    return [f"{seconds(instant):>9} {schedule} {text}" for instant, text in sorted(told)]
