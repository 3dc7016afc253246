"""The explanation of a usual mistake says what is wrong, and then what to write; the grammar accepts that text."""

import re

from tests.schedule.reading import read, refused

MISTAKES = [
    ("*/5 * * * *", "five fields", "0 */5 * * * *"),
    ("0 0 9 * * * *", "no year", "0 0 9 * * *"),
    ("0 0 9 * * 7", "Sunday is 0", "0 0 9 * * 0"),
    ("@at 2026-01-01T00:00:00", "the time zone is missing", "@at 2026-01-01T00:00:00Z"),
    ("@at 2026-01-01 09:30", "the time zone is missing", "@at 2026-01-01T09:30:00Z"),
    ("@at 2026-01-01 00:00:00Z", "RFC 3339", "@at 2026-01-01T00:00:00Z"),
    ("@at 2026-01-01T00:00:00+0100", "RFC 3339", "@at 2026-01-01T00:00:00+01:00"),
    ("@at 1767225600000", "number since 1970", "@at 2026-01-01T00:00:00Z"),
    ("@at  2026-01-01T00:00:00Z", "one blank", "@at 2026-01-01T00:00:00Z"),
    ("2026-01-01T00:00:00Z", "follows '@at '", "@at 2026-01-01T00:00:00Z"),
    ("at 2026-01-01T00:00:00Z", "expected '@at '", "@at 2026-01-01T00:00:00Z"),
    ("@every 1d", "units", "@every 24h"),
    ("@every 1 hour 30 min", "units", "@every 1h30m"),
    ("@every 30", "the unit is missing", "@every 30s"),
    ("every 5m", "expected '@every '", "@every 5m"),
    ("5m", "follows '@every '", "@every 5m"),
    ("@Daily", "lower case", "@daily"),
    ("daily", "alias", "@daily"),
    ('"@every 5m"', "quotation marks", "@every 5m"),
    ("'@at 2026-01-01T00:00:00Z'", "quotation marks", "@at 2026-01-01T00:00:00Z"),
]


def test_a_usual_mistake_is_named_and_what_to_write_is_accepted() -> None:
    for text, what_is_wrong, instead in MISTAKES:
        explanation = refused(text)
        assert what_is_wrong in explanation
        assert re.findall("write '([^']+)'", explanation)[:1] == [instead], explanation
        assert read(instead)


FORMS = [
    ("@at tomorrow", "expected a time such as 2026-11-20T15:04:05Z"),
    ("@at 2026-02-30T00:00:00", "there is no day 2026-02-30"),
    ("@at 2026-01-01T00:00:00 Europe/Berlin", "'Europe/Berlin' is not an offset"),
    ("@every soon", "'@every 5m'"),
    ("@every 500ms", "an interval is at least 1s"),
    ("@in 5m", "not counted from now"),
    ("@minutely", "expected one of @at TIME"),
    ("soon", "expected a pattern such as '@every 5m'"),
    ("* * *", "expected 6 fields"),
    ("0 0 0 L * *", "valid with portable headers, and X-Syntax: quartz"),
    ("0 18 * * L5", "valid with portable headers, and X-Syntax: crontab"),
    ("0 0 9 ? * MON#1 2027", "valid with portable headers, and X-Syntax: quartz"),
]


def test_where_nothing_can_be_written_instead_the_form_is_named() -> None:
    assert [(text, refused(text)) for text, expected in FORMS if expected not in refused(text)] == []
    assert "offset" in refused("@at 2026-01-01T00:00:00Z", "UTC")
    assert "the time at which it was stored" in refused("@every 5m", "UTC")
    meant, shown = read("@at 2026-01-01T00:00:00+01:00"), read("@at 2025-12-31T23:00:00Z")
    assert meant.first_fire(0) == shown.first_fire(0)
    assert "'@at 2026-01-01T00:00:00+01:00'" in refused("@at 2026-01-01 00:00:00 +01")
