"""Lists of items are as long as the answer may be, and valid JSON whatever is in them."""

import json

from nats_scheduler.engine.views.pages import Sliced
from nats_scheduler.service.endpoint import encode_items, with_items


def encoded(rows: list[dict[str, object]], room: int) -> list[bytes]:
    return Sliced(encode_items(rows, lambda row: row, room)).finish()


def test_a_list_ends_where_the_next_item_would_not_fit() -> None:
    rows: list[dict[str, object]] = [{"a": number} for number in range(1_000)]
    items = encoded(rows, 1_000)
    assert 0 < len(items) < 1_000
    assert [json.loads(item) for item in items] == rows[: len(items)]
    assert sum(map(len, items)) <= 1_000
    assert len(encoded(rows, 1_000_000)) == 1_000


def test_an_item_that_does_not_fit_alone_is_shortened() -> None:
    large: dict[str, object] = {
        "text": "x" * 10_000,
        "list": list(range(5_000)),
        "inner": {"text": "y" * 10_000},
        "n": 7,
    }
    (item,) = encoded([large, large], 1_200)
    read = json.loads(item)
    assert (len(item) <= 1_200, read["n"], read["text"][-1]) == (True, 7, "…")
    assert read["shortened"] is True


def test_items_are_put_into_an_object_that_may_have_other_keys() -> None:
    assert json.loads(with_items({}, "a", [])) == {"a": []}
    assert json.loads(with_items({"x": 1, "y": None}, "a", [b"1", b'"}"'])) == {"x": 1, "y": None, "a": [1, "}"]}
