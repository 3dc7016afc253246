"""`docs/operating/doctor.md` and the codes of the findings say the same."""

import re

from nats_scheduler.doctor.finding import Code, Severity
from tests.house.sources import ROOT

PAGE = ROOT / "docs" / "operating" / "doctor.md"
HEADINGS = {"Errors": Severity.ERROR, "Warnings": Severity.WARNING, "Notes": Severity.NOTE}


def headings() -> list[tuple[str, str]]:
    """List the codes of the page, each with the heading that it stands under."""
    above, found = "", []
    for mark, text in re.findall(r"^(##+) (.+)$", PAGE.read_text("utf-8"), re.M):
        above = text if mark == "##" else above
        if mark == "###":
            found.append((text, above))
    return found


def test_each_code_has_its_heading_under_its_severity_and_no_other_has_one() -> None:
    described = [(code, HEADINGS[above]) for code, above in headings()]
    assert described == [(code.value, code.severity) for code in Code]


def test_each_code_means_something() -> None:
    assert all(len(code.why) > 20 for code in Code)
    assert [code.severity for code in Code] == sorted((code.severity for code in Code), key=list(Severity).index)
