"""An advisory that repeats another one within a minute is counted and not shown."""

import pytest

from nats_scheduler.cli import watch as repetitions
from nats_scheduler.cli.watch import MAX_VALUE_CHARS, SPAN_NS, Repetitions
from nats_scheduler.message.foreign_json import Object

REFUSED: Object = {"type": "x.fire_refused", "stream": "S", "schedule": "S.s", "seq": 7, "code": 503}


def test_what_is_repeated_is_counted_until_the_span_is_over() -> None:
    seen = Repetitions()
    assert [seen.is_new({**REFUSED, "due": due}, at) for at, due in enumerate(("a", "b", "c"))] == [True, False, False]
    assert seen.take_over(SPAN_NS - 1) == []
    (over,) = seen.take_over(SPAN_NS)
    assert (over.about, over.times) == (REFUSED, 2)
    assert seen.take_over() == []
    assert seen.is_new(REFUSED, SPAN_NS), "the next span begins"


@pytest.mark.parametrize(
    "change",
    [
        {"type": "x.fire_late"},
        {"stream": "T"},
        {"schedule": "S.t"},
        {"seq": 8},
        {"code": 1},
        {"header": "h"},
        {"key": 1},
    ],
)
def test_what_reports_something_else_is_new(change: Object) -> None:
    seen = Repetitions()
    assert seen.is_new(REFUSED, 0)
    assert seen.is_new(REFUSED | change, 0)
    assert seen.take_over() == [], "nothing was repeated"


def test_what_a_stranger_publishes_is_compared_too() -> None:
    seen = Repetitions()
    assert [seen.is_new({"stream": [{}], "type": None}, 0) for _ in range(2)] == [True, False]
    long = {"schedule": "s" * 5_000, "seq": [7] * 5_000}
    assert [seen.is_new({**long, **more}, 0) for more in ({}, {}, {"schedule": "s" * 5_001})] == [True, False, True]
    assert [len(value) for value in seen.take_over()[1].about.values()] == [MAX_VALUE_CHARS, MAX_VALUE_CHARS]


def test_at_the_end_all_that_was_repeated_is_returned() -> None:
    seen = Repetitions()
    for seq in (1, 2, 2, 3, 3, 3):
        seen.is_new({**REFUSED, "seq": seq}, 0)
    assert [(one.about["seq"], one.times) for one in seen.take_over()] == [(2, 1), (3, 2)]


def test_no_more_advisories_are_kept_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repetitions, "MAX_ENTRIES", 2)
    seen = Repetitions()
    for seq in (1, 1, 2, 2, 3):
        seen.is_new({**REFUSED, "seq": seq}, 0)
    assert [one.about["seq"] for one in seen.take_over(0)] == [1]
    assert not seen.is_new({**REFUSED, "seq": 2}, 0)
    assert seen.is_new({**REFUSED, "seq": 1}, 0)
