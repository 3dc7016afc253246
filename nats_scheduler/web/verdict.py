"""The one look: whether all is well, and if not, why not, worst first.

The rule: each sentence names what is wrong and where, and links to the page that shows it. What does not keep a valid
schedule from firing (a rejected message) is a note, and changes no colour: publishers make mistakes all the time, and a
page that is never green is not looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from nats_scheduler.observe.documents import instant_of
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.service.schemas import FindingsAnswer, HealthAnswer, InstancesAnswer, StreamDocument, StreamsAnswer
from nats_scheduler.service.sidecar_answers import AnswerState
from nats_scheduler.service.stream_owners import ownership_of
from nats_scheduler.web.rendering import address, clock_text, plural

Level = Literal["ok", "note", "warn", "bad"]

MAX_USUAL_LATENESS_NS = 5 * SECOND
"""A schedule is overdue for a moment at each fire, and for seconds in a large burst; beyond this it is reported."""

SEVERITY: dict[Level, int] = {"ok": 0, "note": 1, "warn": 2, "bad": 3}
WORDS: dict[Level, str] = {
    "ok": "All is well",
    "note": "All is well",
    "warn": "Needs attention",
    "bad": "Not working",
}


@dataclass(frozen=True, slots=True)
class StatusReason:
    """One thing that is not as it should be."""

    level: Level
    sentence: str
    href: str = ""


@dataclass(frozen=True, slots=True)
class StatusVerdict:
    """The verdict: whether all is well, and the reasons if not."""

    level: Level
    reasons: Sequence[StatusReason] = field(default=())
    is_blind: bool = False
    """True if no sidecar can be asked: what is shown is old."""

    @property
    def words(self) -> str:
        """The verdict in words."""
        return WORDS[self.level]


def totals(streams: AnswerState[StreamsAnswer], instances: AnswerState[InstancesAnswer]) -> dict[str, object]:
    """Return sums over the streams that are shown: what their names say, and when anything fires next (ns)."""
    listed = () if streams.data is None else streams.data["streams"]
    fires = [one["next"]["next_fire"] for one in listed if one["next"] is not None]
    counts = [one["schedules"] for one in listed if one["schedules"] is not None]
    kinds = {kind: sum(one["kinds"].get(kind, 0) for one in counts) for kind in ("at", "every", "cron")}
    known = () if instances.data is None else instances.data["instances"]
    return {
        "schedules": sum(one["total"] for one in counts),
        "failing": sum(one["failing"] for one in listed),
        "next": min((fire["nanoseconds"] for fire in fires if fire is not None), default=None),
        "alive": sum(one["state"] == "alive" for one in known),
        "kinds": ", ".join(f"{number:,} {kind}" for kind, number in kinds.items() if number),
    }


def troubled_first(streams: Sequence[StreamDocument]) -> list[StreamDocument]:
    """Return streams with those first of which something is wrong; else they stay in their order."""
    return sorted(streams, key=lambda one: not any(SEVERITY[reason.level] > 1 for reason in _of_stream(one, 0)))


def verdict(
    health: AnswerState[HealthAnswer],
    each: Sequence[HealthAnswer],
    streams: AnswerState[StreamsAnswer],
    instances: AnswerState[InstancesAnswer],
    findings: AnswerState[FindingsAnswer],
    last_good_at: int | None,
) -> StatusVerdict:
    """Return the verdict on what is known; `last_good_at` is when anything was answered last (ns).

    `health` is that of one instance, whichever answered; `each` is that of each instance, if there are several.
    """
    reach = _reach(health, last_good_at)
    reasons = reach or [
        *_of_health(health, each),
        *([] if streams.data is None else _of_streams(streams.data)),
        *([] if instances.data is None else _of_instances(instances.data)),
        *([] if findings.data is None else _of_findings(findings.data)),
    ]
    reasons.sort(key=lambda one: -SEVERITY[one.level])
    return StatusVerdict(reasons[0].level if reasons else "ok", reasons, is_blind=bool(reach))


def _reach(health: AnswerState[HealthAnswer], last_good_at: int | None) -> list[StatusReason]:
    """Return why no sidecar can be asked."""
    if health.is_waiting or (health.data is None and not health.fault):
        return [StatusReason("warn", "No answer yet.")]
    if not health.fault:
        return []
    shown = (
        "Nothing was ever answered."
        if last_good_at is None
        else f"What you see is from {clock_text(last_good_at)} UTC."
    )
    if health.is_absent:
        shown += " What a server of 2.12 or later fires by itself goes on, and nats-scheduler top shows it."
    what = "No sidecar answers" if health.is_connected else "The connection to NATS is lost"
    return [StatusReason("bad", f"{what}: {health.fault}. {shown}")]


def _of_health(health: AnswerState[HealthAnswer], each: Sequence[HealthAnswer]) -> list[StatusReason]:
    """Return why instances are not ready; while another one is, its work is taken over."""
    if not each:
        return [StatusReason("bad", reason) for reason in (health.data or {"reasons": ()})["reasons"]]
    level: Level = "warn" if any(one["ready"] for one in each) else "bad"
    return [StatusReason(level, f"Instance {one['instance']}: {reason}") for one in each for reason in one["reasons"]]


def _of_streams(answer: StreamsAnswer) -> list[StatusReason]:
    now = instant_of(answer["at"])
    reasons = [reason for one in answer["streams"] for reason in _of_stream(one, now)]
    if answer["cursor"] is not None:
        reasons.append(
            StatusReason("note", f"Only the first {len(answer['streams']):,} streams are judged.", "/streams")
        )
    return reasons


def _of_instances(answer: InstancesAnswer) -> list[StatusReason]:
    reasons = []
    for one in answer["instances"]:
        if one["state"] == "silent":
            reasons.append(
                StatusReason("warn", f"Instance {one['id']} is silent: its heartbeats stopped.", "/instances")
            )
        if one["state"] == "alive" and one["unable"]:
            number = plural(len(one["unable"]), "stream")
            reasons.append(StatusReason("warn", f"Instance {one['id']} cannot serve {number}.", "/instances"))
    streams = ownership_of(answer["instances"])
    alone = [one["stream"] for one in streams if one["lacks_standby"]]
    if alone:
        which = f"Stream {alone[0]} has" if len(alone) == 1 else f"{len(alone):,} streams have"
        sentence = f"{which} no standby: if the owner goes, another instance has to read it first."
        reasons.append(StatusReason("warn", sentence, "/instances"))
    return reasons


def _of_findings(known: FindingsAnswer) -> list[StatusReason]:
    """Return how many findings of the doctor there are; those about one schedule are its publisher's to mend."""
    bad = [one for one in known["findings"] if one["severity"] in ("error", "warning")]
    found: list[StatusReason] = []
    for severity in ("error", "warning"):
        number = sum(one["severity"] == severity and one["subject"] is None for one in bad)
        if number:
            found.append(StatusReason("warn", f"The doctor found {plural(number, severity)}.", "/findings"))
    single = sum(one["subject"] is not None for one in bad)
    if single:
        found.append(
            StatusReason("note", f"The doctor found {plural(single, 'mistake')} in single messages.", "/findings")
        )
    return found


def _of_stream(stream: StreamDocument, now: int) -> list[StatusReason]:
    name, counts = stream["stream"], stream["schedules"]
    reasons: list[StatusReason] = []
    if not stream["ready"]:
        reasons.append(
            StatusReason("warn", f"Stream {name} is not read to its end: its schedules do not all fire yet.")
        )
    if stream["mode"] == "dormant":
        reasons.append(StatusReason("bad", f"Stream {name} is dormant: nothing fires its schedules. Graduate it."))
    if counts is not None and counts["total"] and stream["owner"] is None and stream["mode"] != "native":
        reasons.append(StatusReason("bad", f"Stream {name} has no owner: nothing fires its schedules.", "/instances"))
    if stream["failing"]:
        subject = plural(stream["failing"], "schedule")
        href = address("/schedules", stream=name, state="failing")
        reasons.append(StatusReason("warn", f"The server refuses the fires of {subject} in stream {name}.", href))
    overdue = 0 if counts is None else counts["states"].get("overdue", 0)
    first = None if stream["next"] is None else stream["next"]["next_fire"]
    if overdue and first is not None and now - first["nanoseconds"] > MAX_USUAL_LATENESS_NS:
        href = address("/schedules", stream=name, state="overdue")
        reasons.append(StatusReason("warn", f"{plural(overdue, 'schedule')} of stream {name}: overdue.", href))
    bad = stream["rejected"] + stream["misnamed"]
    if bad:
        sentence = f"{plural(bad, 'message')} of stream {name} looked like a schedule and will never fire."
        reasons.append(StatusReason("note", sentence, address("/rejected", stream=name)))
    return reasons
