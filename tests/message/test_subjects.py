"""Subjects are valid, literal and covered exactly when the server says so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.message.subjects import (
    is_covered,
    is_literal_subject,
    is_valid_subject,
    subject_matches,
)
from tests.message import reference

_tokens = st.sampled_from(["a", "b", "*", ">", "", "a*", "*a", ">a", "a>", " ", "\t", "é", "\f", "\u00a0", "\udcff"])
subjects = st.one_of(st.lists(_tokens, max_size=5).map(".".join), st.text(max_size=10))
literals = subjects.filter(reference.is_literal)


@pytest.mark.parametrize(
    ("subject", "valid", "literal"),
    [
        ("orders", True, True),
        ("orders.due.1", True, True),
        ("orders.*", True, False),
        ("orders.>", True, False),
        (">", True, False),
        ("orders.größe", True, True),
        ("orders.\u00a0", True, True),
        ("orders.\udcff", True, True),
        ("", False, False),
        (".", False, False),
        ("orders.", False, False),
        (".orders", False, False),
        ("orders..due", False, False),
        ("orders.>.due", False, False),
        ("orders due", False, False),
        ("orders.due ", False, False),
        ("orders\t", False, False),
    ],
)
def test_a_subject_is_what_the_server_takes_for_one(subject: str, valid: bool, literal: bool) -> None:
    assert (is_valid_subject(subject), is_literal_subject(subject)) == (valid, literal)


@pytest.mark.parametrize("subject", ["orders.a*", "orders.*a", "orders.>a", "orders.x>", "**"])
def test_a_star_inside_a_token_is_literal(subject: str) -> None:
    assert is_literal_subject(subject)


@pytest.mark.parametrize(
    ("subject", "covering", "covered"),
    [
        ("orders.due", "orders.due", True),
        ("orders.due", "orders.*", True),
        ("orders.due", "*.due", True),
        ("orders.due", "orders.>", True),
        ("orders.due", ">", True),
        ("orders", "orders.>", False),
        ("orders.due.x", "orders.*", False),
        ("Orders.due", "orders.>", False),
        ("orders.due", "orders.du", False),
        ("orders.a*", "orders.a*", True),
        ("orders.ab", "orders.a*", False),
        ("orders.a.b", "orders.*.*", True),
        ("orders+due", "orders.due", False),
    ],
)
def test_a_stream_owns_what_one_of_its_subjects_matches(subject: str, covering: str, covered: bool) -> None:
    assert is_covered(subject, ["elsewhere", covering]) == covered


def test_a_stream_without_subjects_owns_none() -> None:
    assert not is_covered("orders", [])


def test_a_filter_token_that_starts_with_a_star_passes_anything() -> None:
    assert subject_matches("orders.due", "*rders.due")
    assert subject_matches("orders.due", "orders.*x")
    assert is_covered("orders.due.now", ["orders.*x.>"])


def test_a_wildcard_is_passed_by_a_wider_one_only() -> None:
    assert subject_matches("orders.*", "orders.*")
    assert subject_matches("orders.*", "orders.>")
    assert subject_matches("orders.>", "orders.>")
    assert not subject_matches("orders.>", "orders.*")
    assert not subject_matches("orders.*", "orders.due")


@given(subjects)
def test_validity_agrees_with_the_server_on_any_text(subject: str) -> None:
    assert is_valid_subject(subject) == reference.is_valid(subject)
    assert is_literal_subject(subject) == reference.is_literal(subject)


@given(subjects, subjects)
def test_matching_agrees_with_the_server_on_any_text(subject: str, test: str) -> None:
    assert subject_matches(subject, test) == reference.subset_match(subject.split("."), test.split("."))


@given(literals, st.lists(subjects, max_size=3))
def test_coverage_agrees_with_the_server_on_any_text(subject: str, coverings: list[str]) -> None:
    assert is_covered(subject, coverings) == any(reference.collides(one, subject) for one in coverings)
