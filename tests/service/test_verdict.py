"""The one look: what counts as well, what needs attention, and what does not work."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from nats_scheduler.message.foreign_json import time_of
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.service.schemas import FindingsAnswer, HealthAnswer, InstanceDocument, StreamDocument
from nats_scheduler.service.sidecar_answers import AnswerState
from nats_scheduler.service.verdict import Known, StatusVerdict, grouped, troubled_first, verdict

T = TypeVar("T")

AT = "2026-03-01T12:00:00Z"
NOON = time_of(AT) or 0
HEAD: dict[str, Any] = {"at": AT, "instance": "one"}


def answered(data: T) -> AnswerState[T]:
    return AnswerState(data, NOON, "")


def stream(name: str = "O", **values: Any) -> StreamDocument:
    """Return a stream of which nothing is wrong, but for these values."""
    counts = {"total": 5, "states": {"waiting": 5}, "kinds": {"at": 5}}
    usual = {
        "mode": "emulated",
        "ready": True,
        "unread": None,
        "schedules": counts,
        "failing": 0,
        "rejected": 0,
        "misnamed": 0,
    }
    document: Any = {"stream": name, **usual, "next": None, "owner": "one", "standbys": [], **values}
    return document  # type: ignore[no-any-return]


def health(name: str = "one", *reasons: str) -> HealthAnswer:
    return {"at": AT, "instance": name, "ready": not reasons, "reasons": list(reasons)}


def instance(name: str = "one", state: Any = "alive", **values: Any) -> InstanceDocument:
    usual: dict[str, Any] = dict.fromkeys(("since", "last_heartbeat", "serves")) | {"age_nanoseconds": 0}
    usual |= {"unable": [], "owns": [], "stands_by": [], "standbys": 1}
    document: Any = {"id": name, "state": state, **usual, **values}
    return document  # type: ignore[no-any-return]


ALONE = "if the owner goes, another instance has to read it first."


def owned(name: str) -> dict[str, Any]:
    return {"stream": name, "mode": "emulated", "since": AT, "before": "", "reason": "first"}


NOBODY: Mapping[str, AnswerState[HealthAnswer]] = {}


def each_of(*answers: HealthAnswer) -> Mapping[str, AnswerState[HealthAnswer]]:
    return {one["instance"]: answered(one) for one in answers}


def on(
    *streams: StreamDocument,
    own: AnswerState[HealthAnswer] | None = None,
    each: Mapping[str, AnswerState[HealthAnswer]] = NOBODY,
    instances: Sequence[InstanceDocument] = (),
    findings: AnswerState[FindingsAnswer] | None = None,
    cursor: str | None = None,
) -> StatusVerdict:
    """Return the verdict on these answers, of which none is bad unless it is given."""
    listed: Any = {**HEAD, "unanswered": [], "cursor": cursor, "streams": list(streams or (stream(),))}
    known: Any = {**HEAD, "cursor": None, "instances": list(instances or (instance(),))}
    parts = answered(listed), answered(known), findings or AnswerState(None, None, "")
    return verdict(Known(NOON, own or answered(health()), each, *parts))


def found(severity: str, subject: str | None) -> AnswerState[FindingsAnswer]:
    """Return a report with one finding, and a note, which is no reason."""
    one: dict[str, Any] = {"severity": severity, "code": "code", "stream": "O", "subject": subject}
    one |= {"what": "what", "why": "why", "command": "command"}
    report: Any = {**HEAD, "findings": [one, {**one, "code": "other", "severity": "note"}], "unlisted": []}
    return answered(report)


def sentences(found: StatusVerdict) -> list[str]:
    return [one.sentence for one in found.reasons]


def overdue(seconds: int) -> StreamDocument:
    """Return a stream with one schedule that is overdue by `seconds`."""
    fire = {"utc": "", "local": "", "nanoseconds": NOON - seconds * SECOND}
    return stream(schedules={"total": 1, "states": {"overdue": 1}, "kinds": {}}, next={"next_fire": fire})


def test_what_is_wrong_is_named() -> None:
    busy: AnswerState[HealthAnswer] = AnswerState(None, None, "", is_waiting=True)
    warned = {
        "The server refuses the fires of 3 schedules in stream O.": on(stream(failing=3)),
        "Stream O is not read to its end: its schedules do not all fire yet.": on(stream(ready=False)),
        "1 schedule of stream O: overdue.": on(overdue(60)),
        "Instance one is silent: its heartbeats stopped.": on(instances=[instance(state="silent")]),
        "Instance one cannot serve 1 stream.": on(instances=[instance(unable=[{"stream": "O"}])]),
        f"Stream O has no standby: {ALONE}": on(instances=[instance(owns=[owned("O")]), instance("two")]),
        f"2 streams have no standby: {ALONE}": on(
            instances=[instance(owns=[owned("O"), owned("P")]), instance("two", stands_by=[])]
        ),
        "Instance two: O: reading": on(each=each_of(health("one"), health("two", "O: reading"))),
        "The doctor found 1 error.": on(findings=found("error", None)),
        "The doctor found 1 warning.": on(findings=found("warning", None)),
        "No answer yet.": on(own=busy),
        "No answer about health for 3s.": on(own=AnswerState(health(), NOON - 3 * SECOND, "")),
        "No answer about health for 5s: ask again.": on(own=AnswerState(health(), NOON - 5 * SECOND, "ask again", 503)),
        "Instance two does not answer: what only it knows is missing.": on(
            each={**each_of(health("one")), "two": AnswerState(None, None, "no answer within 10 s")}
        ),
        "Instance old does not answer: what only it knows is missing.": on(
            each={**each_of(health("one")), "old": AnswerState(health("old"), NOON - 3 * SECOND, "")}
        ),
        "Nothing fires the schedules of stream P.": on(
            own=answered({**health(), "notes": ["nothing fires the schedules of stream P"]})
        ),
    }
    bad = {
        "Stream O is dormant: nothing fires its Nats-Schedule until it is graduated.": on(stream(mode="dormant")),
        "Stream O has no owner: nothing fires its schedules.": on(stream(owner=None)),
        "No sidecar answers: none runs.": on(own=AnswerState(health(), NOON, "none runs", is_absent=True)),
        "no connection": on(own=answered(health("one", "no connection"))),
        "Instance two: O: reading": on(each=each_of(health("two", "O: reading"))),
    }
    noted = {
        "1 message of stream O looked like a schedule and will never fire.": on(stream(rejected=1)),
        "Only the first 1 streams are judged.": on(cursor="x"),
        "The server fires by itself.": on(own=answered({**health(""), "notes": ["the server fires by itself"]})),
        "Stream O is not counted: it is being read.": on(stream(unread="it is being read", schedules=None)),
        "The doctor found 1 error in single messages.": on(findings=found("error", "O.s")),
    }
    for level, verdicts in (("warn", warned), ("bad", bad), ("note", noted)):
        said = {sentence: (one.level, sentences(one)) for sentence, one in verdicts.items()}
        assert said == {sentence: (level, [sentence]) for sentence in verdicts}


def test_what_is_usual_is_no_reason() -> None:
    empty = {"total": 0, "states": {}, "kinds": {}}
    usual = [stream(), overdue(2), stream(mode="native", owner=None), stream(schedules=empty, owner=None)]
    for fine in (*usual, stream(schedules=None, owner=None)):
        assert (on(fine).level, on(fine).words, sentences(on(fine))) == ("ok", "All is well", [])


def test_without_a_connection_nothing_else_is_judged() -> None:
    lost = on(own=AnswerState(None, None, "the reader stopped", is_connected=False))
    assert lost.level == "bad"
    assert sentences(lost) == ["The connection to NATS is lost: the reader stopped."]


def test_the_worst_comes_first() -> None:
    found = on(stream(rejected=1, failing=1), stream("P", mode="dormant"))
    assert [one.level for one in found.reasons] == ["bad", "warn", "note"]
    listed = [stream("A"), stream("B", rejected=1), stream("C", failing=1)]
    assert [one["stream"] for one in troubled_first(listed)] == ["C", "A", "B"]


def test_findings_are_grouped_and_their_numbers_are_those_of_all() -> None:
    same: dict[str, Any] = {"severity": "error", "stream": "O", "why": "why", "subject": "O.a", "command": "do it"}
    invalid = [{**same, "code": "schedule_rejected", "what": f"no {n}"} for n in range(2)]
    missing = [{**same, "code": "calendar_missing", "what": "de", "stream": stream} for stream in ("O", "P")]
    unlisted = [{"code": "calendar_missing", "stream": "O", "number": 7}]
    report: Any = {**HEAD, "findings": [*invalid, *missing], "unlisted": unlisted}
    found = [(one.code, one.stream, one.number, one.commands) for one in grouped(report)]
    assert found == [
        ("schedule_rejected", "O", 2, ["do it"]),
        ("calendar_missing", "O", 8, ["do it"]),
        ("calendar_missing", "P", 1, ["do it"]),
    ]
    counted = on(stream(rejected=2), findings=answered(report))
    assert sentences(counted) == [
        "2 messages of stream O looked like a schedule and will never fire.",
        "The doctor found 9 errors in single messages.",
    ], "none is counted twice"
