"""`calendars.list`: the calendars as they are stored, by any client, and their days that are to come."""

from collections.abc import AsyncIterator, Mapping

import pytest

from nats_scheduler.jetstream.calendar_bucket import CalendarBucket
from nats_scheduler.observe.documents import instant_of
from nats_scheduler.schedule.calendars import MAX_CALENDAR_BYTES
from nats_scheduler.schedule.days import day_text
from nats_scheduler.schedule.instants import DAY
from nats_scheduler.service.calendar_endpoints import MAX_COMING
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, account_on, sidecar_on
from tests.harness.servers import V2_11
from tests.service.asking import Asked

BUCKET = "nats_scheduler_calendars"


@pytest.fixture
async def asked(start_server: StartServer) -> AsyncIterator[Asked]:
    server = await start_server(V2_11)
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        yield Asked(account, running)


async def write(account: Account, texts: Mapping[str, bytes | None]) -> None:
    """Write calendars, or delete them."""
    bucket = CalendarBucket(account.connection, account.api, BUCKET)
    await bucket.open()
    for name, text in texts.items():
        _found, revision = await bucket.revised_text(name)
        assert await bucket.write(name, text, revision)


async def test_calendars_by_name_with_the_days_that_are_to_come(asked: Asked) -> None:
    """Those that are deleted are gone, also if no schedule names one; without a bucket there is none."""
    answer = await asked.answer("calendars.list")
    assert (answer["calendars"], answer["cursor"]) == ([], None)
    day = CLOCK.now() // DAY
    work = f"2001-01-01  # long ago\n{day_text(day - 3)}..{day_text(day + 3)}, {day_text(day + 9)}\n"
    await write(asked.account, {"work": work.encode(), "de-by": b"", "gone": b"2030-01-01"})
    await write(asked.account, {"gone": None})
    answer = await asked.answer("calendars.list")
    empty, found = answer["calendars"]
    assert (empty["calendar"], empty["days"], empty["days_to_come"], empty["coming"]) == ("de-by", 0, 0, [])
    today = instant_of(answer["at"]) // DAY
    assert (found["calendar"], found["error"], found["days"]) == ("work", None, 9)
    assert found["coming"] == [f"{day_text(day - 3)}..{day_text(day + 3)}", day_text(day + 9)]
    assert found["days_to_come"] == day + 3 - today + 1 + 1
    assert abs(instant_of(found["edited"]) - CLOCK.now()) < DAY
    before = found["revision"]
    await write(asked.account, {"work": b"9999-12-31"})
    (_empty, found) = (await asked.answer("calendars.list"))["calendars"]
    assert (found["coming"], found["days_to_come"], found["revision"] > before) == (["9999-12-31"], 1, True)


async def test_what_is_no_calendar_is_listed_with_the_reason(asked: Asked) -> None:
    rows = [f"{3000 + number // 300}-{number // 25 % 12 + 1:02}-{number % 25 + 1:02}" for number in range(0, 2000, 2)]
    texts = {
        "binary": b"\xff\xfe",
        "lines": b"a\n" * (MAX_CALENDAR_BYTES // 2),
        "long": b"2030-01-01," * (MAX_CALENDAR_BYTES // 11),
        "markup": "<script>\u202e\r\n2030-01-01".encode(),
        "most": "\n".join(rows).encode(),
    }
    await write(asked.account, texts)
    await asked.account.publish(f"$KV.{BUCKET}.no.name", body=b"2030-01-01")
    await asked.account.publish(f"$KV.{BUCKET}.{'n' * 65}", body=b"2030-01-01")
    found = {one["calendar"]: one for one in (await asked.answer("calendars.list"))["calendars"]}
    assert list(found) == list(texts)
    most = found.pop("most")
    assert (most["days"], most["days_to_come"], most["coming"]) == (1000, 1000, rows[:MAX_COMING])
    assert all(one["error"] and not one["coming"] and len(one["error"]) < 300 for one in found.values()), found
    assert found["binary"]["error"] == "is not UTF-8 text"
    assert "line 1 contains '<script>\\u202e'" in found["markup"]["error"]
