"""Whether all is well, and if not, why not, worst first: one verdict for the status page and for `top`.

The rules:

- Nothing is well without an answer about health of the last two seconds, of each instance: what is not known is never
  said to be well.
- Each sentence names what is wrong and where, and the page that shows it.
- What does not keep a valid schedule from firing (a rejected message) is a note, and changes no colour: publishers make
  mistakes all the time, and a page that is never green is not looked at.

Cost: some microseconds for each stream, instance and finding.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from nats_scheduler.message.findings import Code, Severity
from nats_scheduler.message.stream_findings import dormant
from nats_scheduler.observe.documents import FindingDocument, instant_of
from nats_scheduler.observe.times import plural, span_text
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.service.schemas import FindingsAnswer, HealthAnswer, InstancesAnswer, StreamDocument, StreamsAnswer
from nats_scheduler.service.sidecar_answers import PASSING_CODES, AnswerState
from nats_scheduler.service.stream_owners import ownership_of

Level = Literal["ok", "note", "warn", "bad"]

MAX_HEALTH_AGE_NS = 2 * SECOND
"""An answer about health that is older (ns) says nothing about now."""

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
    page: str = ""
    """The page that shows it, such as `instances`; "" for none."""
    query: tuple[tuple[str, str], ...] = ()
    """What that page is asked to show, such as the name of the stream."""


@dataclass(frozen=True, slots=True)
class StatusVerdict:
    """The verdict: whether all is well, and the reasons if not."""

    level: Level
    reasons: Sequence[StatusReason] = ()
    is_blind: bool = False
    """True if no sidecar can be asked: what is shown is old."""

    @property
    def words(self) -> str:
        """The verdict in words."""
        return WORDS[self.level]

    @property
    def is_waiting(self) -> bool:
        """True before the first answer."""
        return self.is_blind and self.level == "warn"

    def of_level(self, *levels: Level) -> list[str]:
        """Return the sentences of the reasons that have one of these levels."""
        return [one.sentence for one in self.reasons if one.level in levels]


SAID_OF_STREAMS = frozenset({Code.DORMANT, Code.SCHEDULE_REJECTED, Code.HEADER_MISNAMED, Code.FIRE_REFUSED})
"""The codes of findings of which the number is in what is known of a stream."""


class FindingGroup(NamedTuple):
    """The findings of one code on one stream."""

    findings: Sequence[FindingDocument]
    """Those that are listed, one at least."""
    unlisted: int
    """The number of the others."""

    @property
    def code(self) -> str:
        """Their code."""
        return self.findings[0]["code"]

    @property
    def stream(self) -> str | None:
        """Their stream; None if they are about more than one."""
        return self.findings[0]["stream"]

    @property
    def severity(self) -> str:
        """Their severity."""
        return self.findings[0]["severity"]

    @property
    def is_of_messages(self) -> bool:
        """True if each is about one message."""
        return self.findings[0]["subject"] is not None

    @property
    def number(self) -> int:
        """The number of all of them."""
        return len(self.findings) + self.unlisted

    @property
    def commands(self) -> Sequence[str]:
        """What to type for those that are listed, each once."""
        return list(dict.fromkeys(one["command"] for one in self.findings if one["command"]))


def grouped(answer: FindingsAnswer) -> list[FindingGroup]:
    """Return the findings by code and stream, worst first."""
    listed = defaultdict[tuple[str, str | None], list[FindingDocument]](list)
    for one in answer["findings"]:
        listed[one["code"], one["stream"]].append(one)
    unlisted = {(one["code"], one["stream"]): one["number"] for one in answer["unlisted"]}
    return [FindingGroup(findings, unlisted.get(key, 0)) for key, findings in listed.items()]


@dataclass(frozen=True, slots=True)
class Known:
    """The answers on which the verdict rests, and the time."""

    now: int
    """By the server's clock, in ns since the Unix epoch."""
    health: AnswerState[HealthAnswer]
    """That of one instance, whichever answered."""
    each: Mapping[str, AnswerState[HealthAnswer]]
    """That of each instance that is alive, by its name, if there are several."""
    streams: AnswerState[StreamsAnswer]
    instances: AnswerState[InstancesAnswer]
    findings: AnswerState[FindingsAnswer]
    stream: str | None = None
    """The only stream that is judged; None for all."""
    max_age: int = MAX_HEALTH_AGE_NS
    """The age (ns) from which on an answer about health says nothing: more only where nobody asks that often."""

    def age(self, part: AnswerState[HealthAnswer]) -> int:
        """Return the age (ns) of an answer about health, 0 if there is none."""
        return 0 if part.at is None else self.now - part.at

    def listed(self) -> Sequence[StreamDocument]:
        """Return the streams that are judged."""
        rows = () if self.streams.data is None else self.streams.data["streams"]
        return [one for one in rows if self.stream in (None, one["stream"])]


def verdict(known: Known) -> StatusVerdict:
    """Return the verdict on what is known."""
    reach = _reach(known)
    found = reach
    if found is None:
        found = [*_of_health(known), *_of_streams(known), *_of_instances(known), *_of_findings(known)]
    reasons = sorted(dict.fromkeys(found), key=lambda one: -SEVERITY[one.level])
    return StatusVerdict(reasons[0].level if reasons else "ok", reasons, is_blind=reach is not None)


def troubled_first(streams: Sequence[StreamDocument]) -> list[StreamDocument]:
    """Return streams with those first of which something is wrong; else they stay in their order."""
    return sorted(streams, key=lambda one: not any(SEVERITY[reason.level] > 1 for reason in _of_stream(one, 0)))


def _reach(known: Known) -> list[StatusReason] | None:
    """Return why no sidecar can be asked; None if one can."""
    health = known.health
    if health.data is None and not health.fault:
        return [StatusReason("warn", "No answer yet.")]
    if not health.fault or (health.data is not None and health.code in PASSING_CODES):
        return None
    what = "No sidecar answers" if health.is_connected else "The connection to NATS is lost"
    return [StatusReason("bad", f"{what}: {health.fault}.")]


def _of_health(known: Known) -> Iterator[StatusReason]:
    """Yield why instances are not ready; while another one is, its work is taken over."""
    health, age = known.health, known.age(known.health)
    if age > known.max_age:
        why = f": {health.fault}" if health.fault else ""
        yield StatusReason("warn", f"No answer about health for {span_text(age)}{why}.")
    answers = {}
    for name, part in known.each.items():
        if (part.fault and part.is_connected) or known.age(part) > known.max_age:
            yield StatusReason("warn", f"Instance {name} does not answer: what only it knows is missing.", "instances")
        elif part.data is not None:
            answers[name] = part.data
    told = answers or ({} if health.data is None else {"": health.data})
    level: Level = "warn" if any(one["ready"] for one in told.values()) else "bad"
    for name, answer in told.items():
        for reason in answer["reasons"]:
            yield StatusReason(level, f"Instance {name}: {reason}" if name else reason)
        if not answer["ready"] and not answer["reasons"]:
            yield StatusReason(level, f"Instance {answer['instance']} is not ready.")
    for answer in told.values():
        # Where no sidecar runs, answers are made in its place, and that the server fires by itself is as it may be.
        of_note: Level = "warn" if answer["instance"] else "note"
        for note in answer.get("notes", ()):
            yield StatusReason(of_note, _sentence(note))


def _of_streams(known: Known) -> Iterator[StatusReason]:
    answer, listed = known.streams.data, known.listed()
    if answer is None:
        return
    for one in listed:
        yield from _of_stream(one, instant_of(answer["at"]))
    if known.stream is not None and not listed and answer["cursor"] is None:
        yield StatusReason("bad", f"Stream {known.stream} is not served.")
    if answer["cursor"] is not None:
        sentence = f"Only the first {len(answer['streams']):,} streams are judged."
        yield StatusReason("note", sentence, "streams")


def _of_instances(known: Known) -> Iterator[StatusReason]:
    rows, stream = () if known.instances.data is None else known.instances.data["instances"], known.stream
    for one in rows:
        unable = [each for each in one["unable"] if stream in (None, each["stream"])]
        if one["state"] == "silent":
            yield StatusReason("warn", f"Instance {one['id']} is silent: its heartbeats stopped.", "instances")
        if one["state"] == "alive" and unable:
            sentence = f"Instance {one['id']} cannot serve {plural(len(unable), 'stream')}."
            yield StatusReason("warn", sentence, "instances")
    owned = ownership_of(rows)
    alone = [one["stream"] for one in owned if one["lacks_standby"] and stream in (None, one["stream"])]
    if alone:
        which = f"Stream {alone[0]} has" if len(alone) == 1 else f"{len(alone):,} streams have"
        sentence = f"{which} no standby: if the owner goes, another instance has to read it first."
        yield StatusReason("warn", sentence, "instances")


def _of_findings(known: Known) -> Iterator[StatusReason]:
    """Yield how many findings of the doctor there are; those about one schedule are its publisher's to mend.

    What `_of_stream` says of all schedules of a stream is not counted again.
    """
    every = [] if known.findings.data is None else grouped(known.findings.data)
    groups = [one for one in every if known.stream is None or one.stream in (None, known.stream)]
    for severity in (Severity.ERROR, Severity.WARNING):
        here = [one for one in groups if one.severity == severity and one.code not in SAID_OF_STREAMS]
        number = sum(one.number for one in here if not one.is_of_messages)
        if number:
            yield StatusReason("warn", f"The doctor found {plural(number, severity)}.", "findings")
        single = sum(one.number for one in here if one.is_of_messages)
        if single:
            sentence = f"The doctor found {plural(single, severity)} in single messages."
            yield StatusReason("note", sentence, "findings")


def _of_stream(stream: StreamDocument, now: int) -> Iterator[StatusReason]:
    name, counts = stream["stream"], stream["schedules"]
    if not stream["ready"]:
        yield StatusReason("warn", f"Stream {name} is not read to its end: its schedules do not all fire yet.")
    if stream["unread"] is not None:
        yield StatusReason("note", f"Stream {name} is not counted: {stream['unread']}.")
    if stream["mode"] == "dormant":
        yield StatusReason("bad", _sentence(dormant(name).what))
    if counts is not None and counts["total"] and stream["owner"] is None and stream["mode"] != "native":
        yield StatusReason("bad", f"Stream {name} has no owner: nothing fires its schedules.", "instances")
    if stream["failing"]:
        subject = plural(stream["failing"], "schedule")
        where = (("stream", name), ("state", "failing"))
        yield StatusReason("warn", f"The server refuses the fires of {subject} in stream {name}.", "schedules", where)
    overdue = 0 if counts is None else counts["states"].get("overdue", 0)
    first = None if stream["next"] is None else stream["next"]["next_fire"]
    if overdue and first is not None and now - first["nanoseconds"] > MAX_USUAL_LATENESS_NS:
        where = (("stream", name), ("state", "overdue"))
        sentence = f"{plural(overdue, 'schedule')} of stream {name}: overdue."
        yield StatusReason("warn", sentence, "schedules", where)
    bad = stream["rejected"] + stream["misnamed"]
    if bad:
        sentence = f"{plural(bad, 'message')} of stream {name} looked like a schedule and will never fire."
        yield StatusReason("note", sentence, "rejected", (("stream", name),))


def _sentence(text: str) -> str:
    """Return a text as a sentence that stands alone."""
    return f"{text[:1].upper()}{text[1:]}."
