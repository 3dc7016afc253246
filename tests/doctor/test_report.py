"""The report of the doctor is sorted and bounded; its page and its codes say the same."""

import re

from nats_scheduler.doctor.report import MAX_LISTED, report_of
from nats_scheduler.message.findings import Code, Finding, Severity
from tests.house.sources import ROOT

NOTE = Finding(Code.COPIED, "what", "command", "A", "a")
ERROR = Finding(Code.NO_SIDECAR, "what", "command", "B")


def test_many_of_one_code_on_one_stream_are_counted_and_not_listed() -> None:
    many = [Finding(Code.SCHEDULE_REJECTED, "what", "command", "A", f"a.{n:02}") for n in range(MAX_LISTED + 3)]
    few = [Finding(Code.SCHEDULE_REJECTED, "what", "command", "B", "b")]
    report = report_of([*reversed(many), *few, NOTE])
    assert list(report.findings) == [*many[:MAX_LISTED], *few, NOTE]
    assert report.unlisted == {(Code.SCHEDULE_REJECTED, "A"): 3}
    assert (report.number_of(Severity.ERROR), report.number_of(Severity.NOTE)) == (len(many) + 1, 1)
    before = report_of([ERROR], {(Code.NO_SIDECAR, "B"): 2, (Code.COPIED, "A"): 0})
    assert before.unlisted == {(Code.NO_SIDECAR, "B"): 2}, "what was left out before is counted too"


PAGE = ROOT / "docs" / "operating" / "doctor.md"
HEADINGS = {"Errors": Severity.ERROR, "Warnings": Severity.WARNING, "Notes": Severity.NOTE}


def test_each_code_has_its_heading_and_no_other_has_one() -> None:
    above, described = "", []
    for mark, text in re.findall(r"^(##+) (.+)$", PAGE.read_text("utf-8"), re.M):
        above = text if mark == "##" else above
        if mark == "###":
            described.append((text, HEADINGS[above]))
    assert described == [(code.value, code.severity) for code in Code]
    assert [code.severity for code in Code] == sorted((code.severity for code in Code), key=list(Severity).index)
    assert all(len(code.why) > 20 for code in Code)
