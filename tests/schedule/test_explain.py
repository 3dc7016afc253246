"""The plain words of a pattern say exactly when it fires: all of it, and nothing else.

It tests `schedule/cron_words.py` too.
"""

from nats_scheduler.schedule.bounds import Bounded, Bounds, OnExcepted
from nats_scheduler.schedule.calendars import Calendar
from nats_scheduler.schedule.days import DayRows, Days, EveryNth
from nats_scheduler.schedule.explain import explain_pattern
from nats_scheduler.schedule.instants import DAY
from nats_scheduler.schedule.patterns import Syntax
from tests.schedule.reading import at, read

STORED = at("2026-11-22T10:00:00.4Z")

# Read by people: each line says in English what the pattern means, and would say it to somebody who does not know cron.
TABLE = [
    ("0 30 9 * * mon-fri", "every weekday at 09:30"),
    ("0 0 18 * * fri", "every Friday at 18:00"),
    ("0 0 10 * * sat,sun", "every Saturday and Sunday at 10:00"),
    ("0 0 10 * * mon,wed,fri", "every Monday, Wednesday and Friday at 10:00"),
    ("0 0 10 * * mon-sat", "every day except Sunday at 10:00"),
    ("@yearly", "every year on 1 January at 00:00"),
    ("@monthly", "on the 1st of every month at 00:00"),
    ("@weekly", "every Sunday at 00:00"),
    ("@daily", "every day at 00:00"),
    ("@hourly", "every hour"),
    ("* * * * * *", "every second"),
    ("*/10 * * * * *", "every 10 seconds"),
    ("*/7 * * * * *", "at seconds 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every minute"),
    ("*/3,1 * * * * *", "at seconds 0, 1, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45, 48, 51, 54 and 57"
                        " of every minute"),
    ("30 * * * * *", "at second 30 of every minute"),
    ("0 * * * * *", "every minute"),
    ("0 */15 * * * *", "every 15 minutes"),
    ("0 5/15 * * * *", "at minutes 5, 20, 35 and 50 of every hour"),
    ("0 1-59/2 * * * *", "every day, every 2 minutes from 00:01 to 23:59"),
    ("15 30 * * * *", "at second 15 of minute 30 of every hour"),
    ("* 0 * * * *", "every second of minute 0 of every hour"),
    ("0 0 */2 * * *", "every 2 hours"),
    ("0 0 */6 * * *", "every day at 00:00, 06:00, 12:00 and 18:00"),
    ("0 */15 9-17 * * mon-fri", "every weekday, every 15 minutes from 09:00 to 17:45"),
    ("* * 9-17 * * *", "every day, every second from 09:00:00 to 17:59:59"),
    ("0 0-4 9-17 * * *", "every day at minutes 0 to 4 of hours 9 to 17"),
    ("0 */10 9,13 * * *", "every day at minutes 0, 10, 20, 30, 40 and 50 of hours 9 and 13"),
    ("0 */2 9,13 * * *", "every day at minutes 0 to 58 in steps of 2 of hours 9 and 13"),
    ("0,30 * 9,13 * * *", "every day at seconds 0 and 30 of every minute of hours 9 and 13"),
    ("0 * 9,13 * * *", "every day, every minute of hours 9 and 13"),
    ("5 0 9 * * *", "every day at 09:00:05"),
    ("0 0 9,12,17 * * *", "every day at 09:00, 12:00 and 17:00"),
    ("0 0 0 31 * *", "on the 31st of every month (if the month has that day) at 00:00"),
    ("0 0 0 29 2 *", "every leap year on 29 February at 00:00"),
    ("0 0 12 24 dec *", "every year on 24 December at 12:00"),
    ("0 0 0 30 2,3 *", "on the 30th of February and March (if the month has that day) at 00:00"),
    ("0 0 0 */2 * *", "on every 2nd day from the 1st to the 31st of every month (if the month has that day) at 00:00"),
    ("0 0 0 1-7 * *", "on days 1 to 7 of every month at 00:00"),
    ("0 0 12 1 */3 ?", "on the 1st of January, April, July and October at 12:00"),
    ("0 0 12 * 1,6-8 mon", "every Monday in January and June to August at 12:00"),
    ("0 0 12 13 1,6 fri", "on the 13th of January and June, and on every Friday in January and June, at 12:00"),
    ("0 */5 * 13 * fri", "on the 13th of every month, and on every Friday, every 5 minutes"),
    # Which day: one star means that both day fields must match, without a star one is enough.
    ("0 0 0 13 * fri", "on the 13th of every month, and on every Friday, at 00:00"),
    ("0 0 0 */10 * fri", "on the 1st, 11th, 21st and 31st of every month (if the month has that day), and on every"
                         " Friday, at 00:00"),
    ("0 0 0 2,3,11,23 * *", "on the 2nd, 3rd, 11th and 23rd of every month at 00:00"),
    ("0 0 0 1-31 * fri", "every day at 00:00"),
    ("0 0 0 *,13 * fri", "every Friday at 00:00"),
    ("0 0 0 , * fri", "every Friday at 00:00"),
    # Oddities of the grammar have no words of their own.
    ("00 1,,2 +5 *-rubbish * FR\u0130", "every Friday at 05:01 and 05:02"),
]  # fmt: skip


def test_the_words_are_those_that_a_person_would_use() -> None:
    assert [(text, explain_pattern(read(text))) for text, _ in TABLE] == [
        (text, f"{words} in UTC") for text, words in TABLE
    ]
    assert explain_pattern(read("@at 2026-01-02T05:04:05.5+02:00")) == "once, at 2026-01-02T03:04:05.5Z"


# The days of `L`, `W` and `#`, and years.
SYNTAX_TABLE = [
    ("0 18 * * 2#1", "crontab", "on the first Tuesday of every month at 18:00 in UTC"),
    (
        "0 18 * 3,6 L5,5#3,MON#1",
        "crontab",
        "on the first Monday, the third Friday and the last Friday of March and June at 18:00 in UTC",
    ),
    ("0 18 * * 0#5", "crontab", "on the fifth Sunday of every month (if the month has that day) at 18:00 in UTC"),
    ("0 9 L * *", "crontab", "on the last day of every month at 09:00 in UTC"),
    (
        "*/5 9-10 1,L * fri",
        "crontab",
        "on the 1st and the last day of every month, and on every Friday, every 5 minutes from 09:00 to 10:55 in UTC",
    ),
    ("0 9 20-L * *", "crontab", "on days 20 to 31 of every month (if the month has that day) at 09:00 in UTC"),
    ("0 9 15W * *", "crontab", "on the weekday nearest to the 15th of every month at 09:00 in UTC"),
    ("0 9 31W * *", "crontab", "on the last weekday of every month at 09:00 in UTC"),
    (
        "0 9 30W * *",
        "crontab",
        "on the weekday nearest to the 30th of every month (or to its last day, if the month is shorter)"
        " at 09:00 in UTC",
    ),
    ("0 9 L * 0-6", "crontab", "every day at 09:00 in UTC"),
    ("0 9 *,L * fri", "crontab", "every Friday at 09:00 in UTC"),
    ("0 9 1-7 * */7", "crontab", "every Sunday that falls on days 1 to 7 of every month at 09:00 in UTC"),
    ("0 9 13,L 12 */5", "crontab",
     "every Friday and Sunday that falls on the 13th and the last day of December at 09:00 in UTC"),
    ("0 9 */30 12 1-5", "crontab", "every weekday that falls on the 1st and 31st of December at 09:00 in UTC"),
    ("0 9 29 2 */6", "crontab",
     "every Saturday and Sunday that falls on the 29th of February (if the month has that day) at 09:00 in UTC"),
    ("0 9 13,* * fri", "crontab", "every day at 09:00 in UTC"),
    ("0 30 9 ? * mon-fri 2027", "quartz", "every weekday at 09:30 in UTC, only in 2027"),
    ("0 0 * * * ? 2027-2029,2031", "quartz", "every hour in UTC, only in 2027 to 2029 and 2031"),
    ("0 0 9 L * ? 2027,2028", "quartz", "on the last day of every month at 09:00 in UTC, only in 2027 and 2028"),
]  # fmt: skip


def test_days_of_other_syntaxes_have_words() -> None:
    assert [(text, syntax, explain_pattern(read(text, None, Syntax(syntax)))) for text, syntax, _ in SYNTAX_TABLE] == (
        SYNTAX_TABLE
    )


def test_a_zone_is_named_after_its_place() -> None:
    places = {
        None: "UTC",
        "UTC": "UTC",
        "Europe/Berlin": "Berlin",
        "America/New_York": "New York",
        "America/Argentina/Buenos_Aires": "America/Argentina/Buenos_Aires",
        "Etc/GMT+2": "Etc/GMT+2",
        "Australia/Sydney": "Sydney",
        "Local": "the time zone of the host",
    }
    assert {zone: explain_pattern(read("0 30 9 * * mon-fri", zone)) for zone in places} == {
        zone: f"every weekday at 09:30 in {place}" for zone, place in places.items()
    }


def test_an_interval_is_given_with_its_start() -> None:
    intervals = {
        "@every 1h30m": "1 hour 30 minutes",
        "@every 1h": "hour",
        "@every 1.4s": "1.4 seconds",
        "@every 1m0.000000001s": "1 minute 0.000000001 seconds",
        "@every 24h": "24 hours",
        "@every 47h59m": "47 hours 59 minutes",
        "@every 48h": "2 days",
        "@every 25h1s": "25 hours 1 second",
    }
    for text, interval in intervals.items():
        assert explain_pattern(read(text), STORED) == f"every {interval}, counted from 2026-11-22T10:00:00Z"
        assert explain_pattern(read(text)) == f"every {interval}, counted from the time at which it is stored"


def test_bounds_are_named_after_the_pattern() -> None:
    for pattern, bounds, words in (
        ("0 30 9 * * mon-fri", Bounds(limit=1), "every weekday at 09:30 in UTC, once"),
        (
            "@daily",
            Bounds(start=0, end=DAY, limit=1_000),
            "every day at 00:00 in UTC, not before 1970-01-01T00:00:00Z, not at or after 1970-01-02T00:00:00Z, "
            "at most 1,000 times",
        ),
        (
            "0 0 9 * * mon",
            Bounds(every=EveryNth(2, True, 3)),
            "every Monday at 09:00 in UTC, only in every 2nd week, counted from that of 1970-01-04",
        ),
        (
            "0 0 9 * * *",
            Bounds(every=EveryNth(111, False, 0)),
            "every day at 09:00 in UTC, only on every 111th day, counted from 1970-01-01",
        ),
        ("@every 1h", Bounds(anchor=DAY), "every hour, counted from 1970-01-02T00:00:00Z"),
        (
            "@hourly",
            Bounds(excepted=DayRows([Days(0, 0), Days(2, 4)])),
            "every hour in UTC, not on 1970-01-01, 1970-01-03 to 1970-01-05",
        ),
        (
            "@daily",
            Bounds(calendars=(Calendar("de"),), on_excepted=OnExcepted.PREVIOUS),
            "every day at 00:00 in UTC, not on the days of the calendar de, but on the previous other day instead",
        ),
        (
            "@hourly",
            Bounds(calendars=(Calendar("de"), Calendar("fr"))),
            "every hour in UTC, not on the days of the calendars de and fr",
        ),
        (
            "@hourly",
            Bounds(excepted=DayRows(Days(number, number) for number in range(0, 20, 2))),
            "every hour in UTC, not on 1970-01-01, 1970-01-03, 1970-01-05, 1970-01-07, 1970-01-09 "
            "and 5 more days or ranges",
        ),
    ):
        assert explain_pattern(Bounded(read(pattern), bounds), 0) == words
