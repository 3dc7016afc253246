"""What was fired in the last hour, as the pictures and the tiles need it."""

from collections.abc import Sequence
from dataclasses import dataclass

from nats_scheduler.service.histogram import Histogram
from nats_scheduler.service.overview import Activity
from nats_scheduler.web.charts import Chart, Late, bar_chart, lateness_chart

MINUTES = 60
LEAST_MINUTES = 5


@dataclass(frozen=True, slots=True)
class Hour:
    """The last hour."""

    fires: int
    per_minute: int
    """In the last 60 s."""
    refused: int
    overdue: int
    whole: Late
    """Of all minutes together."""
    is_steady: bool
    """Whether enough minutes had fires for a line of them to say something."""
    minutes: Sequence[Late]
    rate: Chart
    lateness: Chart


def hour_of(activity: Activity) -> Hour:
    """Return the last hour."""
    late = [_late(one.start, one.fires, one.lateness) for one in activity.minutes]
    fires = sum(one.fires for one in activity.minutes)
    return Hour(
        fires=fires,
        per_minute=round(activity.rate() * 60),
        refused=activity.refused(MINUTES),
        overdue=sum(one.overdue for one in activity.minutes),
        whole=_late(0, fires, activity.lateness(MINUTES)),
        is_steady=sum(one.fires > 0 for one in late) >= LEAST_MINUTES,
        minutes=late,
        rate=bar_chart([(one.start, one.fires) for one in late], "fires"),
        lateness=lateness_chart(late),
    )


def _late(start: int, fires: int, lateness: Histogram) -> Late:
    p50, p99 = lateness.quantile(0.5), lateness.quantile(0.99)
    return Late(start, fires, p50, p99, None if p50 is None else lateness.most)
