"""JSON of other clients: a value has the type that is asked for, or counts as absent."""

from typing import Any

from nats_scheduler.message.foreign_json import (
    REMOVAL_TYPES,
    STREAM_CONFIG_TYPES,
    as_answered,
    count_of,
    has_types,
    inner,
    integer,
    is_expressible,
    read_object,
    server_time,
    stored_message,
    time_of,
)
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND

TIME = "2026-01-01T00:00:00.5Z"
INSTANT = 1_767_225_600 * SECOND + SECOND // 2


def test_a_document_is_an_object_or_nothing() -> None:
    for document in (b"", b"1", b"[]", b"null", b"{", b"{}{}", b'{"a":NaN}', b'{"a":-Infinity}', b'{"a":' * 100_000):
        assert read_object(document) is None, document[:20]
    for document, value in (
        (b"{}", {}),
        (b'{"a":{"b":[1,null]}}', {"a": {"b": [1, None]}}),
        (b'{"a":"\xff"}', {"a": "\ufffd"}),
        (b'{"a":"\\ud800"}', {"a": "?"}),
        (b'{"a":"\\uDFFF"}', {"a": "?"}),
        (b'{"a":"\\ud83d\\ude00\xc3\xa4"}', {"a": "\U0001f600ä"}),
    ):
        assert read_object(document) == value


def test_a_value_of_another_type_counts_as_absent() -> None:
    odd: list[Any] = [None, True, "1", 1.0, [], (1 << 63), -(1 << 63) - 1]
    for value in odd:
        assert (integer(value), integer(value, 7), count_of(value), inner(value)) == (0, 7, 0, {}), value
    for number in (-(1 << 63), -1, 0, 1, (1 << 63) - 1):
        assert (integer(number, 7), count_of(number)) == (number, max(number, 0))
    assert inner({"a": 1}) == {"a": 1}
    assert [time_of(value) for value in (TIME, "soon", "", 7, None)] == [INSTANT, None, None, None, None]
    assert [server_time(info) for info in ({"ts": TIME}, {"ts": 1}, {}, None)] == [INSTANT, None, None, None]


def test_a_stored_message_is_whole_or_none() -> None:
    answer = {"subject": "s.a", "seq": 1, "time": TIME, "hdrs": "SGk=", "data": "Qm8="}
    assert stored_message(answer) == StoredMessage("s.a", 1, INSTANT, b"Hi", b"Bo")
    bare = {key: answer[key] for key in ("subject", "seq", "time")}
    assert stored_message(bare) == StoredMessage("s.a", 1, INSTANT, b"", b"")
    for key, values in {"subject": (None, 7), "seq": (None, 0, "1"), "time": (None, "soon"), "hdrs": ("x", 7)}.items():
        for value in values:
            assert stored_message({**answer, key: value}) is None, (key, value)
    assert stored_message({**answer, "data": "x"}) is None
    assert stored_message(None) is None


def test_a_field_has_its_type_or_is_null_or_is_unknown() -> None:
    types: list[tuple[str, list[Any], list[Any]]] = [
        ("max_age", [-1, (1 << 63) - 1], [True, "1", 1.0, 1 << 63]),
        ("first_seq", [0, (1 << 64) - 1], [-1, 1 << 64]),
        ("name", ["", "a"], [1, ["a"]]),
        ("sealed", [True], [1, "true"]),
        ("mirror", [{"a": 1}], [1, []]),
        ("subjects", [[], ["a", None]], ["a", [1], {}]),
        ("sources", [[{}, None]], [{}, ["a"]]),
        ("metadata", [{"a": "b", "c": None}], [[], {"a": 1}]),
    ]
    for key, right, wrong in types:
        for value in (None, *right):
            assert has_types({"other": 1, key: value}, STREAM_CONFIG_TYPES), (key, value)
        for value in wrong:
            assert not has_types({"name": "S", key: value}, STREAM_CONFIG_TYPES), (key, value)
    assert has_types({"filter": "a", "seq": 1, "keep": None, "no_erase": False}, REMOVAL_TYPES)
    assert not has_types({"seq": -1}, REMOVAL_TYPES)


def test_a_subject_that_json_cannot_hold_is_shown_with_a_replacement() -> None:
    for subject, is_possible, shown in (
        ("s.a", True, "s.a"),
        ("s.größe", True, "s.größe"),
        ("s.\x7f", False, "s.\x7f"),
        ("s.ö\x7f", False, "s.ö\x7f"),
        ("s.\udc80\udcff", False, "s.\ufffd\ufffd"),
    ):
        assert (is_expressible(subject), as_answered(subject)) == (is_possible, shown)
