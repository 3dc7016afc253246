"""The line of a part of a document: its own, or that of the nearest part around it; none without a text."""

from nats_scheduler.files.document import Document
from nats_scheduler.files.text import read_documents


def test_a_part_has_the_line_of_the_nearest_part_around_it() -> None:
    [document] = read_documents("stream: ORDERS\nschedules:\n  - subject: orders.s\n    pattern: '@daily'\n")
    paths = (), ("schedules",), ("schedules", 0), ("schedules", 0, "pattern")
    assert [document.line(path) for path in paths] == [1, 3, 3, 4]
    beyond = ("schedules", 1), ("schedules", 0, "target"), ("stream", "none"), ("schedules", "0")
    assert [document.line(path) for path in beyond] == [3, 3, 1, 3]


def test_a_value_without_a_text_has_no_line() -> None:
    assert Document({"stream": "ORDERS"}).line(("stream",)) is None
