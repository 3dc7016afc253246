"""The report as a JSON object, for the command and for the micro service."""

from nats_scheduler.doctor.codes import Severity
from nats_scheduler.doctor.finding import Finding, Report
from nats_scheduler.observe.finding_documents import FindingDocument, ReportDocument


def report_document(report: Report) -> ReportDocument:
    """Return what was found."""
    worst = report.worst
    return {
        "worst": None if worst is None else worst.value,
        "findings": [_finding_document(finding) for finding in report.findings],
        "unlisted": [{"code": one.code.value, "stream": one.stream, "number": one.number} for one in report.unlisted],
        "counts": {severity.value: report.count(severity) for severity in Severity},
    }


def _finding_document(finding: Finding) -> FindingDocument:
    return {
        "severity": finding.severity.value,
        "code": finding.code.value,
        "stream": finding.stream,
        "subject": finding.subject,
        "what": finding.what,
        "why": finding.why,
        "command": finding.command,
    }
