"""The answer of the service about a pattern is one document, whatever the pattern is."""

import pydantic
import pytest

from nats_scheduler.observe.explanations import ExplanationDocument, explanation_document
from nats_scheduler.schedule.rfc3339 import parse_rfc3339

EVENING = parse_rfc3339("2026-03-27T12:00:00Z")


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("0 30 2 * * *", "Europe/Berlin"),
        ("@every 90m", None),
        ("@at 2026-01-01T00:00:00Z", None),
        ("@often", None),
        ("@daily", "Mars/Olympus"),
        ("", None),
    ],
)
def test_a_document_has_the_keys_of_its_type(text: str, zone: str | None) -> None:
    assert isinstance(EVENING, int)
    document = explanation_document(text, zone, EVENING, 3)
    assert pydantic.TypeAdapter(ExplanationDocument).validate_python(document, strict=True) == document
    assert set(document) == set(ExplanationDocument.__annotations__)
    assert (document["words"] is None) == (document["kind"] is None) == (document["fires"] == [])


@pytest.mark.parametrize(
    ("text", "zone", "code"), [("@daily\r\nX: y", None, 10189), ("@daily", "Europe/Berlin\n", 10223)]
)
def test_a_line_break_is_in_no_header(text: str, zone: str | None, code: int) -> None:
    assert isinstance(EVENING, int)
    error = explanation_document(text, zone, EVENING, 3)["error"]
    assert error is not None
    assert (error["err_code"], "one line" in error["reason"]) == (code, True)


def test_blanks_around_a_pattern_do_not_survive_in_a_header() -> None:
    assert isinstance(EVENING, int)
    assert explanation_document(" @daily ", None, EVENING, 1)["words"] == "every day at 00:00 in UTC"
