"""What the doctor found, as JSON objects: the same for the command and for the micro service."""

from typing_extensions import TypedDict  # not that of typing: pydantic refuses it before Python 3.12


class FindingDocument(TypedDict):
    """One thing that is wrong."""

    severity: str
    """`error`, `warning` or `note`."""
    code: str
    """A heading of `docs/operating/doctor.md`."""
    stream: str | None
    subject: str | None
    what: str
    """What is wrong, with the values that show it."""
    why: str
    """Why it matters."""
    command: str
    """What to type, or to change."""


class UnlistedDocument(TypedDict):
    """How many more findings there are of one code on one stream."""

    code: str
    stream: str | None
    number: int


class UnexaminedDocument(TypedDict):
    """Something that was not examined."""

    what: str
    why: str
    stream: str | None


class ReportDocument(TypedDict):
    """What was found, worst first."""

    worst: str | None
    """The severity of the worst finding; null if nothing was found."""
    findings: list[FindingDocument]
    unlisted: list[UnlistedDocument]
    """Findings beyond ten of one code on one stream."""
    counts: dict[str, int]
    """How many findings have each severity, those that are not listed too."""
