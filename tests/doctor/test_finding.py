"""The report of the doctor: worst first, and bounded by code and stream."""

from nats_scheduler.doctor.finding import MAX_LISTED, Code, Finding, Severity, Unlisted, report_of

NOTE = Finding(Code.COPIED, "what", "command", "A", "a")
WARNING = Finding(Code.CLOCK_OFF, "what", "command")
ERROR = Finding(Code.NO_SIDECAR, "what", "command", "B")
WORST = Finding(Code.NO_SERVER, "what", "command")


def test_the_worst_comes_first() -> None:
    report = report_of([NOTE, ERROR, WARNING, WORST])
    assert list(report.findings) == [WORST, ERROR, WARNING, NOTE]
    assert report.worst is Severity.ERROR
    assert report_of([NOTE]).worst is Severity.NOTE
    assert report_of([]).worst is None


def test_many_of_one_code_on_one_stream_are_counted_and_not_listed() -> None:
    many = [Finding(Code.SCHEDULE_INVALID, "what", "command", "A", f"a.{n:02}") for n in range(MAX_LISTED + 3)]
    few = [Finding(Code.SCHEDULE_INVALID, "what", "command", "B", "b")]
    report = report_of([*reversed(many), *few, NOTE])
    assert list(report.findings) == [*many[:MAX_LISTED], *few, NOTE]
    assert report.unlisted == [Unlisted(Code.SCHEDULE_INVALID, "A", 3)]
    assert (report.count(Severity.ERROR), report.count(Severity.NOTE)) == (len(many) + 1, 1)
