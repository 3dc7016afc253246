"""The report of the doctor: worst first, and bounded by code and stream."""

from nats_scheduler.doctor.finding import MAX_LISTED, Code, Finding, Severity, report_of

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
    assert report.unlisted == {(Code.SCHEDULE_INVALID, "A"): 3}
    assert (report.number_of(Severity.ERROR), report.number_of(Severity.NOTE)) == (len(many) + 1, 1)


def test_what_was_left_out_before_is_counted_too() -> None:
    report = report_of([ERROR], {(Code.NO_SIDECAR, "B"): 2, (Code.COPIED, "A"): 0})
    assert report.unlisted == {(Code.NO_SIDECAR, "B"): 2}
