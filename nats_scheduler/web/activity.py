"""What was fired in the last hour, as the pictures and the tiles need it."""

from collections.abc import Sequence
from dataclasses import dataclass

from nats_scheduler.service.now_schemas import ActivityAnswer
from nats_scheduler.web.charts import Chart, Late, bar_chart, lateness_chart, quantile
from nats_scheduler.web.shown import instant_of


@dataclass(frozen=True, slots=True)
class Hour:
    """The last hour."""

    fires: int
    last_minute: int | None
    """Fires of the last complete minute; None if there is none yet."""
    refused: int
    overdue: int
    whole: Late
    """Of all minutes together."""
    minutes: Sequence[Late]
    rate: Chart
    lateness: Chart


def hour_of(answer: ActivityAnswer) -> Hour:
    """Return the last hour."""
    bounds, minutes = answer["bounds_seconds"], answer["minutes"]
    late = [
        _late(instant_of(one["from"]) or 0, one["fires"], one["lateness"], bounds, one["lateness_max_nanoseconds"])
        for one in minutes
    ]
    summed = [sum(column) for column in zip(*(one["lateness"] for one in minutes), strict=False)]
    most = max((one["lateness_max_nanoseconds"] for one in minutes), default=0)
    fires = sum(one["fires"] for one in minutes)
    return Hour(
        fires=fires,
        last_minute=minutes[-2]["fires"] if len(minutes) > 1 else None,
        refused=sum(one["refused"] for one in minutes),
        overdue=sum(one["overdue"] for one in minutes),
        whole=_late(0, fires, summed, bounds, most),
        minutes=late,
        rate=bar_chart([(one.start, one.fires) for one in late], "fires"),
        lateness=lateness_chart(late),
    )


def _late(start: int, fires: int, counts: Sequence[int], bounds: Sequence[float], most: int) -> Late:
    p50, p99 = (quantile(share, counts, bounds, float(most)) for share in (0.5, 0.99))
    return Late(start, fires, p50, p99, None if p50 is None else float(most))
