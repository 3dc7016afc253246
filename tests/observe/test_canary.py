"""The statements about the canary follow from its fires and the time alone."""

from prometheus_client import CollectorRegistry

from nats_scheduler.observe.canary import GRACE_NS, CanaryMetrics, CanaryRecord
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

INTERVAL = 10 * SECOND
NEVER = ["the canary has not fired yet"]


class Life:
    """A canary that was expected from the instant 100 s on."""

    def __init__(self) -> None:
        self.now = 100 * SECOND
        self.record = CanaryRecord(INTERVAL, lambda: self.now)

    def fired(self, late: int = 0) -> None:
        """Let it fire now."""
        self.record.fired(self.now, self.now + late)


def test_it_is_not_ready_before_the_first_fire_and_when_the_last_one_is_too_old() -> None:
    life = Life()
    assert life.record.not_ready() == NEVER
    life.fired()
    life.now += INTERVAL + GRACE_NS - 1
    assert life.record.not_ready() == []
    life.now += 1
    assert life.record.not_ready() == ["the canary fired 15 s ago for the last time, and is due every 10s"]
    life.fired()
    assert life.record.not_ready() == []


def test_the_reason_is_named_if_it_is_known() -> None:
    life = Life()
    life.record.setback = "no permission"
    assert life.record.not_ready() == [f"{NEVER[0]}: no permission"]
    life.fired()
    life.now += 3600 * SECOND
    (said,) = life.record.not_ready()
    assert said == "the canary fired 3600 s ago for the last time, and is due every 10s: no permission"


def test_it_is_missed_once_in_each_interval_also_while_nothing_happens_and_it_is_never_less() -> None:
    life, seen = Life(), []
    for seconds in (0, 14, 15, 24, 25, 35, 35, 60):
        life.now = (100 + seconds) * SECOND
        seen.append(life.record.missed)
    assert seen == [0, 0, 1, 1, 2, 3, 3, 5]
    life.fired()
    assert life.record.missed == 5
    life.now += 14 * SECOND
    assert life.record.missed == 5
    life.now += SECOND
    assert life.record.missed == 6


def test_its_metrics_are_shown_only_if_there_is_one() -> None:
    registry, shown = CollectorRegistry(), CanaryMetrics()
    registry.register(shown)
    value = registry.get_sample_value
    assert value("nats_scheduler_canary_fires_total") is None
    assert value("nats_scheduler_canary_missed_total") is None
    life = Life()
    shown.record = life.record
    assert (value("nats_scheduler_canary_fires_total"), value("nats_scheduler_canary_missed_total")) == (0, 0)
    assert value("nats_scheduler_canary_lateness_seconds_count") == 0
    assert value("nats_scheduler_canary_last_fire_timestamp_seconds") is None
    life.fired(3 * MILLISECOND)
    life.now += SECOND
    life.fired(2 * SECOND)
    assert value("nats_scheduler_canary_fires_total") == value("nats_scheduler_canary_lateness_seconds_count") == 2
    assert value("nats_scheduler_canary_last_fire_timestamp_seconds") == 103
    assert value("nats_scheduler_canary_lateness_seconds_bucket", {"le": "0.005"}) == 1
    assert value("nats_scheduler_canary_lateness_seconds_bucket", {"le": "5.0"}) == 2
