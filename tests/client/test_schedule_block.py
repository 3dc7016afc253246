"""A schedule is spelled for what fires it: ADR-51 where that does what it says, portable headers where not."""

from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest

from nats_scheduler.client import InvalidScheduleError, NotServedError, Serving, Sidecar
from nats_scheduler.client.hourly_to_monthly import daily
from nats_scheduler.client.schedule_block import Wanted, checked_name, spelled
from nats_scheduler.client.times import instant_of
from nats_scheduler.client.values import elsewhere
from nats_scheduler.client.when import at, cron, every
from nats_scheduler.control.store_port import Served
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect, schedule_fields
from nats_scheduler.message.headers import header_items, header_value
from nats_scheduler.message.stream_rules import StreamRules
from tests.harness.hiding import HIDES, HIDING, twice

NOW = instant_of(datetime(2026, 11, 20, 12, tzinfo=UTC), "now")
RULES = StreamRules("ORDERS", ("orders.>",), allow_msg_ttl=True)
AT = at(datetime(2030, 1, 1, tzinfo=UTC))
EVERY = every(timedelta(minutes=5))


def serving(level: int, sidecar: Sidecar, dialects: tuple[Dialect, ...], *, native: bool) -> Serving:
    return Serving(Served(RULES, dialects, is_native=native, server=Capabilities(api_level=level)), sidecar)


EMULATED = serving(1, Sidecar.FIRES_ALL, (ADR51, PORTABLE), native=False)
NAMED = serving(4, Sidecar.FIRES_PORTABLE, (PORTABLE,), native=False)
ALONE_2_12 = serving(3, Sidecar.SILENT, (ADR51,), native=True)
BOTH_2_12 = serving(3, Sidecar.FIRES_PORTABLE, (ADR51, PORTABLE), native=True)
ALONE_2_14 = serving(4, Sidecar.SILENT, (ADR51,), native=True)
BOTH_2_14 = serving(4, Sidecar.FIRES_PORTABLE, (ADR51, PORTABLE), native=True)
SCENES = (EMULATED, NAMED, ALONE_2_12, BOTH_2_12, ALONE_2_14, BOTH_2_14)
A, P, NONE = "adr51", "portable", "none"


def test_each_schedule_is_spelled_so_that_it_fires_as_it_says() -> None:
    rounded, gap = every(timedelta(seconds=1.4)), daily(time(9), "Africa/Cairo")
    out = "orders.out"
    for wanted, spellings in (
        (Wanted(AT, out), (A, P, A, A, A, A)),
        (Wanted(EVERY, out), (A, P, NONE, P, A, A)),
        (Wanted(AT, out, {"source": "orders.in"}), (A, P, NONE, P, A, A)),
        (Wanted(EVERY.policies(jitter=timedelta(minutes=1)), out), (A, P, NONE, P, NONE, P)),
        (Wanted(EVERY.policies(note="x", owner="y"), out), (A, P, NONE, P, A, A)),
        (Wanted(cron("0 9 * * L5", syntax="crontab"), out), (P, P, NONE, P, NONE, P)),
        (Wanted(AT, elsewhere("jobs.run")), (P, P, NONE, P, NONE, P)),
        (Wanted(rounded, out), (A, P, NONE, P, A, P)),
        (Wanted(gap, out), (A, P, NONE, P, A, P)),
        (Wanted(at(datetime(2300, 1, 1, tzinfo=UTC)), out), (A, P, NONE, P, NONE, P)),
    ):
        assert tuple(spelling(wanted, scene) for scene in SCENES) == spellings, wanted


def spelling(wanted: Wanted, scene: Serving) -> str:
    try:
        block = spelled(wanted, scene, NOW)
        return next(one.name for one in DIALECTS if header_value(block, one.schedule))
    except NotServedError:
        return NONE


def test_all_that_is_said_is_in_the_block() -> None:
    wanted = Wanted(
        cron("0 9 * * 1-5", "Europe/Berlin", syntax="crontab").policies(missed="all"),
        "orders.out",
        {"source": "orders.in", "ttl": "never", "rollup": True},
        headers=[("Trace", "a"), ("Trace", "b")],
    )
    block = spelled(wanted, EMULATED, NOW)
    assert schedule_fields(block, PORTABLE) == {
        b"X-Nats-Schedule": "0 9 * * 1-5",
        b"X-Nats-Schedule-Time-Zone": "Europe/Berlin",
        b"X-Nats-Schedule-X-Syntax": "crontab",
        b"X-Nats-Schedule-X-Missed": "all",
        b"X-Nats-Schedule-Target": "orders.out",
        b"X-Nats-Schedule-Source": "orders.in",
        b"X-Nats-Schedule-TTL": "never",
        b"X-Nats-Schedule-Rollup": "sub",
    }
    assert header_items(block)[-2:] == [(b"Trace", b"a"), (b"Trace", b"b")]


def test_what_would_be_another_header_is_refused() -> None:
    for wanted, code in (
        (Wanted(AT, "orders.out", {"ttl": timedelta(milliseconds=999)}), 10191),
        (Wanted(AT, "orders.out", {"ttl": "5m"}), 10191),  # type: ignore[typeddict-item]
        (Wanted(AT, "orders.out\r\nNats-Rollup: all"), None),
        (Wanted(AT, "orders.out", headers={"A": "x\r\nNats-Rollup: all"}), None),
        (Wanted(AT, "orders.out", headers={"A B": "x"}), None),
        (Wanted(AT, "orders.out", headers={"Nats-Schedule-TTL": "1h"}), None),
    ):
        with pytest.raises(InvalidScheduleError) as refused:
            spelled(wanted, EMULATED, NOW)
        assert refused.value.code == code, wanted
    others: list[Any] = [{"A": 1}, {"A": b"x"}, [("A", None)]]
    for headers in others:
        with pytest.raises(TypeError):
            spelled(Wanted(AT, "orders.out", headers=headers), EMULATED, NOW)
    assert [checked_name(name) for name in ("Nats-TTL", "Nats-Msg-Id")] == ["Nats-TTL", "Nats-Msg-Id"]


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(AT, HIDING["subjects"].target or "", {"source": HIDING["subjects"].source}),
        Wanted(AT.policies(note=twice("Nats-TTL")), "orders.out", headers={"Nats-TTL": "5m"}),
    ],
)
def test_a_value_that_hides_a_header_is_refused(wanted: Wanted) -> None:
    with pytest.raises(InvalidScheduleError, match=HIDES):
        spelled(wanted, EMULATED, NOW)


def test_a_subject_that_names_a_header_hides_none() -> None:
    for target in ("orders.Nats-Schedule-TTL", "orders.Nats-Schedule-Source"):
        block = spelled(Wanted(AT, target, {"source": "orders.in", "ttl": "never"}), EMULATED, NOW)
        found = schedule_fields(block, ADR51)
        assert (found[ADR51.target], found[ADR51.source], found[ADR51.ttl]) == (target, "orders.in", "never")
