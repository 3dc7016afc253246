"""Each endpoint on a real server: what it answers, and that it answers as its schema says.

They are in `service/schedule_endpoints.py`, `service/stream_endpoints.py`, `service/past_answers.py` and others; what
they read is behind `service/sidecar_port.py`.
"""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from nats_scheduler.message.jitter import delay_of
from nats_scheduler.observe.documents import instant_of
from nats_scheduler.schedule.instants import HOUR
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.micro import is_inbox
from tests.conftest import StartServer
from tests.harness.account import account_on, far_hour, in_seconds, sidecar_on
from tests.harness.servers import V2_11, V2_15
from tests.harness.waiting import eventually
from tests.service.asking import Asked, Refusal, ask, at

ZONE = "Europe/Berlin"
CRON_HOUR = far_hour(ZONE)
HOURS = (5, 3, 9, 1, 7)
"""The hours after which the schedules `O.s.<hours>` fire."""


async def held(asked: Asked, count: int) -> None:
    """Wait until the sidecar holds `count` schedules, and owns their stream."""

    async def are_held() -> bool:
        answer = await ask(asked.account.connection, "streams.list")
        streams = answer["streams"] if isinstance(answer, dict) else []
        return any(one["schedules"] and one["schedules"]["total"] == count and one["owner"] for one in streams)

    await eventually(are_held, describe=f"{count} schedules are held")


@pytest.fixture(params=[V2_11, V2_15])
async def asked(request: pytest.FixtureRequest, start_server: StartServer) -> AsyncIterator[Asked]:
    server = await start_server(request.param)
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        asked = Asked(account, running, request.param)
        await account.create("O", allow_msg_ttl=True)
        for hours in HOURS:  # of those on a native server, the sidecar fires one
            await asked.schedule(f"O.s.{hours}", at(hours), "X-" if asked.is_native and hours == 3 else "")
        morning = {"Nats_Schedule_Time_Zone": ZONE, "Nats_Schedule_Target": "O.morning"}
        await asked.schedule("O.cron", f"0 30 {CRON_HOUR} * * mon-fri", "", b"", **morning)
        await asked.schedule("O.invalid", "@every soon", "X-" if asked.is_native else "")  # the server refuses it
        await account.publish("O.misnamed", {"Nats-Schedul": "@every 1s"})
        await held(asked, len(HOURS) + 1)
        await running.healthy()
        yield asked


async def test_streams_with_their_counts_and_what_fires_next(asked: Asked) -> None:
    answer = await asked.answer("streams.list")
    (stream,) = answer["streams"]
    mode, me = "native" if asked.is_native else "emulated", asked.running.sidecar.instance
    assert (stream["stream"], stream["mode"], stream["ready"]) == ("O", mode, True)
    assert stream["unread"] is None
    assert stream["schedules"]["total"] == 6
    assert stream["schedules"]["kinds"] == {"at": 5, "cron": 1}
    assert (stream["rejected"], stream["misnamed"], stream["failing"]) == (1, 1, 0)
    assert stream["next"]["subject"] == "O.s.1"
    assert (stream["owner"], stream["standbys"], stream["takeover_reason"]) == (me, [], "first")
    assert instant_of(stream["owner_since"]) <= instant_of(answer["at"])
    assert (answer["cursor"], answer["unanswered"]) == (None, [])
    listed = await asked.answer("instances.list")
    (instance,) = listed["instances"]
    assert (instance["id"], instance["state"], instance["standbys"]) == (me, "alive", 1)
    owned = {**dict.fromkeys(("stream", "mode")), "since": stream["owner_since"], "before": "", "reason": "first"}
    assert instance["owns"] == [{**owned, "stream": "O", "mode": stream["mode"]}]
    assert instance["stands_by"] == []
    for endpoint in ("health.get", f"health.get.{me}"):
        health = await asked.answer(endpoint)
        assert (health["instance"], health["ready"], health["reasons"]) == (me, True, [])


async def test_schedules_are_listed_soonest_first_on_pages_and_chosen(asked: Asked) -> None:
    pages, cursor = list[list[str]](), None
    while cursor is not None or not pages:
        page = await asked.answer("schedules.list", stream="O", filter="O.s.*", limit=2, cursor=cursor)
        pages.append([one["subject"] for one in page["schedules"]])
        cursor = page["cursor"]
    assert pages == [["O.s.1", "O.s.3"], ["O.s.5", "O.s.7"], ["O.s.9"]]
    for cron in ({"target": "O.morning"}, {"kind": ["cron", "every"]}):
        assert await asked.subjects("O", **cron) == ["O.cron"], cron
    assert sorted(await asked.subjects("O", contains=".s.")) == [f"O.s.{number}" for number in (1, 3, 5, 7, 9)]
    for text in ("(a+)+$", "%", "*", "O.s", "\0", "ä"):
        expected = 5 if text == "O.s" else 0
        counted = await asked.answer("schedules.list", stream="O", contains=text, limit=1, count=True)
        assert (counted["total"], len(counted["schedules"])) == (expected, min(expected, 1)), text
    assert (await asked.answer("schedules.list", stream="O"))["total"] is None
    for kind in ("rejected", "misnamed"):
        listed = (await asked.answer(f"{kind}.list", stream="O"))[kind]
        assert [one["subject"] for one in listed] == [f"O.{kind.replace('rejected', 'invalid')}"], "it is listed apart"
    assert (await asked.answer("rejected.list", stream="O", filter="O.s.*"))["rejected"] == []


async def test_one_schedule_and_what_is_known_of_it(asked: Asked) -> None:
    answer = await asked.answer("schedules.get", stream="O", subject="O.s.5")
    me = asked.running.sidecar.instance
    owner, fired_by = (None, "server") if asked.is_native else (me, "sidecar")
    assert (answer["instance"], answer["owner"], answer["owner_answered"]) == (me, owner, True)
    assert (answer["schedule"]["target"], answer["schedule"]["fired_by"]) == ("O.out", fired_by)
    invalid = await asked.answer("schedules.get", stream="O", subject="O.invalid")
    assert (invalid["schedule"], invalid["rejected"]["error"]["err_code"]) == (None, 10189)
    misnamed = await asked.answer("schedules.get", stream="O", subject="O.misnamed")
    assert misnamed["misnamed"]["headers"][0]["header"] == "Nats-Schedul"


async def test_the_next_fires_of_a_schedule_are_answered(asked: Asked) -> None:
    today = datetime.now(UTC).date()
    day, after = today + timedelta(days=2), today + timedelta(days=3)
    await asked.schedule("O.short", "@every 2h", Nats_TTL="5h")
    sequence = await asked.schedule("O.spread", "@every 2h", "X-", Nats_Schedule_X_Jitter="1h")
    await asked.schedule("O.holidays", "0 0 */12 * * *", "X-", Nats_Schedule_X_Except=str(day))
    await held(asked, len(HOURS) + 4)
    once = await asked.answer("schedules.next", stream="O", subject="O.s.5")
    assert (len(once["fires"]), once["ends"]) == (1, True)
    cron = await asked.answer("schedules.next", stream="O", subject="O.cron", count=3)
    assert all(f"T{CRON_HOUR:02}:30:00+0" in fire["local"] for fire in cron["fires"])
    assert (len(cron["fires"]), cron["time_zone"]) == (3, "Europe/Berlin")
    short = await asked.answer("schedules.next", stream="O", subject="O.short")
    assert (len(short["fires"]), short["ends"]) == (2, True), "its TTL ends it before the third"
    for fire in (await asked.answer("schedules.next", stream="O", subject="O.spread", count=2))["fires"]:
        due = fire["nanoseconds"]
        assert fire["sent"] == format_rfc3339(due + delay_of("O.spread", sequence, due, HOUR))
    holidays = await asked.answer("schedules.next", stream="O", subject="O.holidays", count=8)
    assert holidays["excepted"] == [{"first": f"{day}T00:00:00Z", "last": f"{day}T12:00:00Z"}], "days that are left out"
    days = [fire["utc"][:10] for fire in holidays["fires"]]
    assert (str(day) in days, str(after) in days) == (False, True)


async def test_patterns_and_messages_are_computed_explained_and_checked(asked: Asked) -> None:
    every = await asked.answer("schedules.next", pattern="@every 90m", after="2026-03-01T10:00:00Z", count=2)
    assert [fire["utc"] for fire in every["fires"]] == ["2026-03-01T11:30:00Z", "2026-03-01T13:00:00Z"]
    explained = await asked.answer("explain", pattern="0 30 9 * * mon-fri", time_zone="Europe/Berlin", count=2)
    assert explained["words"] == "every weekday at 09:30 in Berlin"
    assert (len(explained["fires"]), explained["error"]) == (2, None)
    valid = await asked.answer("check", pattern="@every 5m")
    assert (valid["valid"], valid["message"], valid["schedule"]["target"]) == (True, "schedule", None)
    headers = {"Nats-Schedule": "@every 5m", "Nats-Schedule-Target": "elsewhere"}
    assert (await asked.answer("check", headers=headers))["valid"]
    outside = await asked.answer("check", headers=headers, stream="O", subject="O.new")
    assert (outside["valid"], outside["error"]["err_code"]) == (False, 10190)
    for endpoint, body, code, part in WRONG:
        refused = await ask(asked.account.connection, endpoint, body)
        assert isinstance(refused, Refusal), refused
        assert (refused.code, part in refused.sentence) == (code, True), refused
        assert len(refused.sentence) < 600


WRONG: list[tuple[str, object, int, str]] = [
    ("schedules.list", {}, 400, "the key stream is missing"),
    ("schedules.list", {"stream": "NONE"}, 404, "stream 'NONE' is not served"),
    ("schedules.list", {"stream": "O", "limit": 5000}, 400, "limit of 5000"),
    ("schedules.list", {"stream": "O", "state": "sleeping"}, 400, "of 'sleeping'"),
    ("schedules.list", {"stream": "O", "filter": "a..b"}, 400, "a subject such as 'orders.>' is expected"),
    ("schedules.list", {"stream": "O", "contains": "x" * 257}, 400, "contains of 'xxx"),
    ("schedules.list", {"stream": "O", "filer": "O.>"}, 400, "the key 'filer' is unknown"),
    ("schedules.list", {"stream": "O", "cursor": "xx"}, 400, "the cursor of another page is expected"),
    ("schedules.get", {"stream": "O", "subject": "O.*"}, 400, "a subject without wildcards"),
    ("schedules.get", {"stream": "O", "subject": "O.none"}, 404, "no schedule on 'O.none'"),
    ("schedules.next", {}, 400, "either stream and subject, or pattern is expected"),
    ("schedules.next", {"pattern": "@every 5m", "after": "soon"}, 400, "after of 'soon'"),
    ("schedules.next", {"pattern": "@every 5m\r\nNats-TTL: 1s"}, 400, "a text without line breaks"),
    ("check", {"headers": {"A": "b\nNats-Schedule: x"}}, 400, "a text without line breaks"),
    ("check", {"headers": {"A: b": "c"}}, 400, "a name without a colon"),
    ("check", {"pattern": "@every 5m", "headers": {}}, 400, "either headers or pattern is expected"),
    ("health.get", b"\xff\x00{", 400, "a JSON object is expected"),
    ("health.get", b"[" * 5_000, 400, "a JSON object is expected"),
    ("health.get", b"x" * 70_000, 400, "at most 65536 are expected"),
]


@pytest.mark.parametrize("asked", [V2_11], indirect=True)
async def test_an_answer_goes_to_an_inbox_and_nowhere_else(asked: Asked) -> None:
    arrived: list[bytes] = []
    connection = asked.account.connection
    connection.subscribe("private.>", lambda subject, *_rest: arrived.append(subject))
    for subject in ("nats_scheduler.v1.health.get", "$SRV.PING", "nats_scheduler.v1.check"):
        body = b"not json" if subject.endswith("check") else b""
        connection.write(b"PUB %b private.x %d\r\n%b\r\n" % (subject.encode(), len(body), body))
    await asked.answer("health.get")  # requests of one connection are received in order
    assert arrived == []


async def test_one_long_answer_is_a_shorter_page_and_a_cursor(start_server: StartServer) -> None:
    server = await start_server(config="max_payload: 6000\n")
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        asked, count = Asked(account, running), 30
        await account.create("O")
        for number in range(count):
            await asked.schedule(f"O.s.{number:02}", f"@at {in_seconds(3600 + number)}")
        await running.ready("O")
        await held(asked, count)
        found, cursor, pages = list[str](), None, 0
        while cursor is not None or not pages:
            page = await asked.answer("schedules.list", stream="O", cursor=cursor)
            assert len(json.dumps(page)) <= 6_000
            found += [one["subject"] for one in page["schedules"]]
            cursor, pages = page["cursor"], pages + 1
        assert (found, pages > 3) == ([f"O.s.{number:02}" for number in range(count)], True)


def test_no_answer_can_pass_for_an_acknowledgement() -> None:
    sidecar = b"nats-scheduler-sidecar-" + b"0" * 32
    allowed = (b"_INBOX.abc", b"_R_.x.y", b"_INBOX_app.a.b", b"_INBOX." + sidecar + b".asked.7")
    acknowledgements = (b"_INBOX." + sidecar + b".ack.7", b"_I." + sidecar + b".r.1")
    assert all(map(is_inbox, allowed))
    assert not any(map(is_inbox, (b"", b"orders.s", b"$KV.nats_scheduler.owner.x", *acknowledgements)))
