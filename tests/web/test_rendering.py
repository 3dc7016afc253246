"""Numbers, times and the texts of others, as the pages show them."""

import pytest
from markupsafe import Markup

from nats_scheduler.message.foreign_json import time_of
from nats_scheduler.schedule.instants import DAY, HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND
from nats_scheduler.web.rendering import clock_text, distance_text, lateness_text, plural, templates, utc_text, visible

NOON = time_of("2026-03-01T12:00:00Z") or 0


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (None, "–"),
        (0, "0.00 ms"),
        (840 * MICROSECOND, "0.84 ms"),
        (-2 * MILLISECOND, "−2.00 ms"),
        (12_400 * MICROSECOND, "12 ms"),
        (1_340 * MILLISECOND, "1.3 s"),
        (125 * SECOND, "2m5s"),
        (3 * DAY, "3d0h"),
    ],
)
def test_lateness_has_a_unit_and_the_digits_that_matter(nanoseconds: int | None, text: str) -> None:
    assert lateness_text(nanoseconds) == text


@pytest.mark.parametrize(
    ("away", "text"),
    [
        (0, "now"),
        (-999 * MILLISECOND, "now"),
        (SECOND, "in 1s"),
        (200 * SECOND, "in 3m20s"),
        (-90 * SECOND, "1m30s ago"),
        (59 * MINUTE + 59 * SECOND, "in 59m"),
        (3 * HOUR, "in 3h0m"),
        (50 * HOUR, "in 2d2h"),
    ],
)
def test_how_far_an_instant_is_away(away: int, text: str) -> None:
    assert distance_text(NOON + away, NOON) == text


def test_times_have_no_more_digits_than_help() -> None:
    assert utc_text(NOON + 500 * MICROSECOND) == "2026-03-01 12:00:00"
    assert utc_text(NOON + 5 * MILLISECOND) == "2026-03-01 12:00:00.005"
    assert (clock_text(NOON), clock_text(None)) == ("12:00:00", "–")
    assert plural(1, "schedule") == "1 schedule"
    assert plural(1200, "schedule") == "1,200 schedules"


HOSTILE = {
    "<script>alert(1)</script>": "&lt;script&gt;alert(1)&lt;/script&gt;",
    "a\"b'c&d": "a&#34;b&#39;c&amp;d",
    "right\u202eleft": "right\\u202eleft",
    "zero\u200bwidth": "zero\\u200bwidth",
    "bell\x07 and\nnewline": "bell\\x07 and\\nnewline",
    "half \udcff pair": "half \\udcff pair",
    "grün 日本": "grün 日本",
}


@pytest.mark.parametrize("text", HOSTILE)
def test_a_template_shows_the_texts_of_others_escaped_and_visible(text: str) -> None:
    shown = templates().from_string('<p title="{{ text }}">{{ text }}</p>').render(text=text)
    assert shown == f'<p title="{HOSTILE[text]}">{HOSTILE[text]}</p>'


def test_what_a_template_writes_itself_stays_as_it_is() -> None:
    assert visible(Markup("a\nb")) == "a\nb"
    assert visible(None) == ""
    assert visible(7) == 7
