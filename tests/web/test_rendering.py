"""Numbers, times and the texts of others, as the pages show them; and the pictures: bars, lines and words."""

from markupsafe import Markup

from nats_scheduler.message.foreign_json import time_of
from nats_scheduler.observe.documents import PastFireDocument
from nats_scheduler.schedule.instants import DAY, HOUR, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.web.charts import (
    day_of,
)
from nats_scheduler.web.rendering import templates, visible

NOON = time_of("2026-03-01T12:00:00Z") or 0


def test_a_template_shows_the_texts_of_others_escaped_and_visible() -> None:
    shown = {
        "<script>alert(1)</script>": "&lt;script&gt;alert(1)&lt;/script&gt;",
        "a\"b'c&d": "a&#34;b&#39;c&amp;d",
        "right\u202eleft": "right\\u202eleft",
        "zero\u200bwidth": "zero\\u200bwidth",
        "bell\x07 and\nnewline": "bell\\x07 and\\nnewline",
        "half \udcff pair": "half \\udcff pair",
        "grün 日本": "grün 日本",
    }
    template = templates().from_string('<p title="{{ text }}">{{ text }}</p>')
    assert {text: template.render(text=text) for text in shown} == {
        text: f'<p title="{one}">{one}</p>' for text, one in shown.items()
    }
    assert [visible(one) for one in (Markup("a\nb"), None, 7)] == ["a\nb", "", 7], "what a template writes itself stays"


def fire(stored: int, late: int | None) -> PastFireDocument:
    """Make a fire of a schedule that was stored at an instant (ns)."""
    return {
        "stream": "S",
        "schedule": "S.s",
        "schedule_sequence": 1,
        "target": "S.out",
        "sequence": stored // SECOND,
        "fire_time": None,
        "stored": format_rfc3339(stored),
        "lateness_nanoseconds": late,
        "next_fire": None,
        "fired_by": "sidecar",
    }


def test_a_day_has_half_hours_known_and_unknown() -> None:
    fires = [fire(NOON - 1, 3), fire(NOON - 2, 1), fire(NOON - 3, None), fire(NOON - 2 * HOUR, 9), fire(NOON - DAY, 5)]
    day = day_of(fires, NOON, are_all=True)
    periods = day["periods"]
    assert isinstance(periods, list)
    assert [(one.start, one.fires, one.p50, one.p99, one.most) for one in periods if one.fires] == [
        (NOON - DAY, 1, 5, 5, 5),
        (NOON - 2 * HOUR, 1, 9, 9, 9),
        (NOON - HOUR // 2, 3, 1, 3, 3),
    ]
    assert (len(periods), day["start"], day["end"], day["since"]) == (48, NOON - DAY, NOON, None)
    assert all(one.is_known for one in periods)
    newest = day_of(fires[:4], NOON, are_all=False)
    assert isinstance(newest["periods"], list)
    assert [one.start for one in newest["periods"] if one.is_known] == [NOON - n * HOUR // 2 for n in range(4, 0, -1)]
    assert newest["since"] == NOON - 2 * HOUR
    assert day_of([], NOON - 1, are_all=True)["end"] == NOON, "the present half hour is the last one"
