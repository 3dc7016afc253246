"""A finding, and the report of all of them: worst first, and bounded.

Rule: of one code and stream at most `MAX_LISTED` findings are listed, and the number of the others is given, because a
stream of a million invalid schedules has one cause.
Cost: one sort of what was found.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nats_scheduler.doctor.codes import MEANINGS, Code, Severity

MAX_LISTED = 10
"""Most findings of one code and stream that are listed."""

_RANK = {severity: number for number, severity in enumerate(Severity)}
_CODE_RANK = {code: number for number, code in enumerate(Code)}


class Finding(NamedTuple):
    """One thing that is wrong; `stream` and `subject` are None if it is about more than that."""

    code: Code
    what: str
    """What is wrong, with the values that show it."""
    command: str
    """What to type, or to change."""
    stream: str | None = None
    subject: str | None = None

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return MEANINGS[self.code].severity

    @property
    def why(self) -> str:
        """Why it matters."""
        return MEANINGS[self.code].why


class Unlisted(NamedTuple):
    """How many more findings there are of one code on one stream."""

    code: Code
    stream: str | None
    number: int


@dataclass(frozen=True, slots=True)
class Report:
    """What the doctor found."""

    findings: Sequence[Finding] = ()
    """Worst first, then by code and stream."""
    unlisted: Sequence[Unlisted] = ()

    @property
    def worst(self) -> Severity | None:
        """The severity of the worst finding, None if nothing was found."""
        return self.findings[0].severity if self.findings else None

    def count(self, severity: Severity) -> int:
        """Return how many findings have a severity, those that are not listed too."""
        listed = sum(finding.severity is severity for finding in self.findings)
        return listed + sum(more.number for more in self.unlisted if MEANINGS[more.code].severity is severity)


def report_of(findings: Iterable[Finding], more: Iterable[Unlisted] = ()) -> Report:
    """Sort findings, and leave out those beyond `MAX_LISTED` of one code and stream; `more` are left out already."""
    counts: dict[tuple[Code, str | None], int] = {}
    listed = []
    for finding in sorted(findings, key=_place):
        key = finding.code, finding.stream
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= MAX_LISTED:
            listed.append(finding)
    unlisted = {key: count - MAX_LISTED for key, count in counts.items() if count > MAX_LISTED}
    for code, stream, number in more:
        if number > 0:
            unlisted[code, stream] = unlisted.get((code, stream), 0) + number
    return Report(listed, [Unlisted(code, stream, number) for (code, stream), number in unlisted.items()])


def _place(finding: Finding) -> tuple[int, int, str, str]:
    return _RANK[finding.severity], _CODE_RANK[finding.code], finding.stream or "", finding.subject or ""
