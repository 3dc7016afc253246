"""The report of all findings: worst first, and bounded.

Rule: of one code and stream at most `MAX_LISTED` findings are listed, and the number of the others is given, because a
stream of a million invalid schedules has one cause.
Cost: one sort of what was found.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from nats_scheduler.message.findings import Code, Finding, Severity

MAX_LISTED = 10
"""Most findings of one code and stream that are listed."""

_RANK = {severity: number for number, severity in enumerate(Severity)}
_CODE_RANK = {code: number for number, code in enumerate(Code)}


Unlisted = Mapping[tuple[Code, str | None], int]
"""The numbers of further findings, by their code and stream."""

NONE_UNLISTED: Unlisted = {}


class DoctorReport(NamedTuple):
    """The findings of the doctor."""

    findings: Sequence[Finding]
    """Worst first, then by code and stream."""
    unlisted: Unlisted

    @property
    def worst(self) -> Severity | None:
        """The severity of the worst finding, None if nothing was found."""
        return self.findings[0].severity if self.findings else None

    def number_of(self, severity: Severity) -> int:
        """Return how many findings have a severity, those that are not listed too."""
        listed = sum(finding.severity is severity for finding in self.findings)
        return listed + sum(number for (code, _stream), number in self.unlisted.items() if code.severity is severity)


def report_of(findings: Iterable[Finding], more: Unlisted = NONE_UNLISTED) -> DoctorReport:
    """Sort findings, and leave out those beyond `MAX_LISTED` of one code and stream; `more` are left out already."""
    counts: Counter[tuple[Code, str | None]] = Counter()
    listed = []
    for finding in sorted(findings, key=_place):
        key = finding.code, finding.stream
        counts[key] += 1
        if counts[key] <= MAX_LISTED:
            listed.append(finding)
    unlisted = Counter({key: count - MAX_LISTED for key, count in counts.items()})
    return DoctorReport(listed, +unlisted + Counter(more))


def _place(finding: Finding) -> tuple[int, int, str, str]:
    return _RANK[finding.severity], _CODE_RANK[finding.code], finding.stream or "", finding.subject or ""
