"""Examine an account: all checks over the facts, and the report of what they found.

Rule: a check is a function from facts to findings. To add one: a code in `message.findings`, the check in the module of
its group (of a single schedule: in `message.schedule_findings`), a heading in `docs/operating/doctor.md`, and a test on
a server in which it is reported and one in which it is not.
"""

from collections.abc import Callable, Iterator, Sequence

from nats_scheduler.doctor import clock_checks, permissions, schedule_checks, server, server_defects, stream_checks
from nats_scheduler.doctor.facts import AccountFacts, StreamFacts
from nats_scheduler.doctor.report import DoctorReport, Unlisted, report_of
from nats_scheduler.engine.views.seen import Work, done
from nats_scheduler.message.findings import Finding, Severity
from nats_scheduler.observe.documents import ReportDocument, finding_document

OF_ACCOUNT: Sequence[Callable[[AccountFacts], Iterator[Finding]]] = (
    server.check_servers,
    server.check_level,
    server.check_bucket,
    permissions.check_permissions,
    clock_checks.check_clocks,
    clock_checks.check_nodes_clocks,
    clock_checks.check_zone_data,
    clock_checks.check_zones,
    server.check_unexamined,
)
"""The checks of what is there once."""

CheckOfStream = Callable[[AccountFacts, StreamFacts], Iterator[Finding]]

OF_OUTLINE: Sequence[CheckOfStream] = (stream_checks.check_firing, stream_checks.check_flag)
"""The checks of each stream, read or not: a sidecar reads those that it serves, and others may not be fired at all."""

OF_STREAM: Sequence[CheckOfStream] = (
    stream_checks.check_eviction,
    stream_checks.check_interest,
    stream_checks.check_consumers,
    stream_checks.check_copies,
    stream_checks.check_duplicate_window,
    schedule_checks.check_each,
    schedule_checks.check_rejections,
    schedule_checks.check_failures,
    schedule_checks.check_targets,
    schedule_checks.check_targets_elsewhere,
    schedule_checks.check_equal,
    schedule_checks.check_silent,
    schedule_checks.check_replaced,
    schedule_checks.check_announced,
    schedule_checks.check_graduation,
    server_defects.check_defects,
    clock_checks.check_server_zones,
)
"""The checks of each stream that was read."""


def examine(facts: AccountFacts) -> DoctorReport:
    """Return what is wrong, worst first."""
    return done(examination(facts))


def examination(facts: AccountFacts) -> Work[DoctorReport]:
    """Do the same, one unit of work for each stream."""
    found: list[Finding] = []
    for check in OF_ACCOUNT:
        found += check(facts)
        yield
    for stream in facts.streams:
        for check_stream in (*OF_OUTLINE, *(OF_STREAM if stream.is_read else ())):
            found += check_stream(facts, stream)
        yield
    more: Unlisted = {(code, one.name): number for one in facts.read for code, number in one.more.items()}
    return report_of(found, more)


# -- the report as a JSON object, for the command and the micro service ----------------------------------------------


def report_document(report: DoctorReport) -> ReportDocument:
    """Return what was found."""
    worst = report.worst
    return {
        "worst": None if worst is None else worst.value,
        "findings": [*map(finding_document, report.findings)],
        "unlisted": [
            {"code": code.value, "stream": stream, "number": number}
            for (code, stream), number in report.unlisted.items()
        ],
        "counts": {severity.value: report.number_of(severity) for severity in Severity},
    }
