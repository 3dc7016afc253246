"""The next fires of a schedule as it would be stored: with its policies, the changes of the clock, and what is past."""

from typing import Any

import pytest

from nats_scheduler.control.current import Current, read_current
from nats_scheduler.control.store_port import Served
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.observe.outlook import OutlookDocument, outlook
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.harness.blocks import block_of

SERVED = Served(StreamRules("O", ("O.>",), allow_msg_ttl=True, schedules_enabled=True), DIALECTS, False)


def instant(text: str) -> int:
    found = parse_rfc3339(text)
    assert isinstance(found, int)
    return found


def schedule(pattern: str, at: str, sequence: int = 0, **headers: str) -> Current:
    """Return a schedule that is stored at a time, or would be."""
    named = {"Nats_Schedule": pattern, "Nats_Schedule_Target": "O.out", **headers}
    block = block_of(*((name.replace("_", "-"), value) for name, value in named.items()))
    found = read_current(StoredMessage("O.s", sequence, instant(at), block, b""), SERVED)
    assert found is not None
    return found


def ahead(found: Current, now: str) -> OutlookDocument | None:
    work = outlook(found, instant(now))
    while True:
        try:
            next(work)
        except StopIteration as end:
            answer: OutlookDocument | None = end.value
            return answer


AT = "2026-03-27T12:00:00Z"
BERLIN: dict[str, Any] = {"Nats_Schedule_Time_Zone": "Europe/Berlin"}


def test_the_fires_are_those_that_policies_leave() -> None:
    found = ahead(schedule("@every 1h", AT, Nats_Schedule_X_Limit="2"), AT)
    assert found is not None
    assert [one["utc"] for one in found["fires"]] == ["2026-03-27T13:00:00Z", "2026-03-27T14:00:00Z"]
    assert (found["ends"], found["unknown_calendar"]) == (True, None)
    weekdays = schedule("0 0 9 * * *", AT, Nats_Schedule_X_Except="2026-03-28..2026-03-29")
    found = ahead(weekdays, AT)
    assert found is not None
    assert [one["utc"][:10] for one in found["fires"]] == [f"2026-03-3{day}" for day in range(2)] + [
        f"2026-04-0{day}" for day in range(1, 4)
    ]
    named = ahead(schedule("0 0 9 * * *", AT, Nats_Schedule_X_Except="calendar:de"), AT)
    assert named is not None
    assert named["unknown_calendar"] == "de"


def test_times_that_the_clock_skips_or_doubles_are_said() -> None:
    spring = ahead(schedule("0 30 2 * * *", AT, **BERLIN), AT)
    assert spring is not None
    assert [one["first"] for one in spring["skipped"]] == ["2026-03-29T02:30:00"]
    before = "2026-10-23T12:00:00Z"
    autumn = ahead(schedule("0 30 2 * * *", before, **BERLIN), before)
    assert autumn is not None
    assert "first_of_two" in [one["clock_change"] for one in autumn["fires"]]


@pytest.mark.parametrize("headers", [{"Nats_Schedule_TTL": "soon"}, {}])
def test_what_is_rejected_or_paused_has_none(headers: dict[str, Any]) -> None:
    found = schedule("@every 1h", AT, **headers)
    if not headers:
        paused = block_of(("Nats-Schedule-X-Paused", "@every 1h"), ("Nats-Schedule-Target", "O.out"))
        read = read_current(found.message._replace(block=paused), SERVED)
        assert read is not None
        found = read
    assert ahead(found, AT) is None
