"""Examine an account: all checks over the facts, and the report of what they found.

Rule: a check is a function from facts to findings. To add one: a code in `codes`, the check in the module of its group,
a heading in `docs/operating/doctor.md`, and a test on a server in which it is reported and one in which it is not.
"""

from collections.abc import Callable, Iterator, Sequence

from nats_scheduler.doctor.clock import check_clocks, check_zone_data, check_zones
from nats_scheduler.doctor.defects import check_defects
from nats_scheduler.doctor.facts import AccountFacts
from nats_scheduler.doctor.finding import Finding, Report, report_of
from nats_scheduler.doctor.permissions import check_permissions
from nats_scheduler.doctor.schedules import check_schedules
from nats_scheduler.doctor.server import check_level, check_servers, check_unexamined
from nats_scheduler.doctor.streams import check_streams

CHECKS: Sequence[Callable[[AccountFacts], Iterator[Finding]]] = (
    check_servers,
    check_level,
    check_permissions,
    check_clocks,
    check_zone_data,
    check_zones,
    check_streams,
    check_schedules,
    check_defects,
    check_unexamined,
)


def examine(facts: AccountFacts) -> Report:
    """Return what is wrong, worst first."""
    return report_of(finding for check in CHECKS for finding in check(facts))
