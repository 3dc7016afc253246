"""Texts of files as plain values: what YAML guesses is text here, and errors have lines."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.files.document import MAX_DEPTH, TextError
from nats_scheduler.files.text import read_documents
from nats_scheduler.files.yaml_writing import yaml_lines
from tests.harness.seeds import draws

ODD_PARTS = [*"a\n \t#:-'\"\\é\u3000\u2028\ufeff\x85😀", "x: y"]
AMBIGUOUS = ["true", "no", "Off", "~", "null", "1", "1.5", "1e3", "0x10", "12:30:00", "2027-01-01", *"|>", "---", "..."]

texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.lists(st.sampled_from(ODD_PARTS + AMBIGUOUS), max_size=8).map("".join),
)
scalars = st.one_of(texts, st.booleans(), st.integers(-5, 100))
keys = st.sampled_from(["a", "b", "body"])
maps = st.recursive(
    st.dictionaries(keys, scalars, min_size=1),
    lambda inner: st.dictionaries(keys, st.one_of(scalars, inner, st.lists(st.one_of(texts, inner))), min_size=1),
    max_leaves=8,
)


def yaml_of(value: dict[str, Any]) -> str:
    return "".join(f"{line}\n" for line in yaml_lines(value))


def only(text: str) -> Any:
    [document] = read_documents(text)
    return document.value


@settings(max_examples=draws(30))
@given(maps)
def test_what_is_written_is_read_as_the_same_value(value: dict[str, Any]) -> None:
    text = yaml_of(value)
    assert only(text) == value, text
    assert only(json.dumps(value)) == value
    assert yaml.safe_load(text) == value, text


def test_what_yaml_guesses_is_text() -> None:
    for text in ("no", "yes", "on", "2027-07-01", "2027-07-01T00:00:00Z", "12:30:00", "0x10", "1_000"):
        assert only(f"a: {text}") == {"a": text}


def test_a_file_may_have_several_documents_and_empty_ones() -> None:
    assert [one.value for one in read_documents("a: 1\n---\n---\nb: 2\n")] == [{"a": 1}, {"b": 2}]
    assert [one.value for one in read_documents('[{"a": 1}, {"b": 2}]')] == [{"a": 1}, {"b": 2}]
    assert read_documents("# nothing\n") == []


def test_an_error_has_its_line() -> None:
    for text, line, error in (
        ("x: 1\na: b: c", 2, "is no YAML: mapping values"),
        ("a: 1\nb: 2\na: 3", 3, "the key 'a' is there twice"),
        ("? [a]\n: b", 1, "the key ['a'] is no text"),
        ("a:\n  !!python/name:os.system x", 2, "has the tag"),
        ("a: &loop [*loop]", 1, "nested more than"),
        ("a: " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), 1, "nested more than"),
        ("a:\n  " + "[" * 50_000, 2, "nest"),
        ("- " * 50_000, 1, "nested more than"),
        ("a: 1\nb: " + "9" * 5_000, 2, "has a number of 5,000 digits"),
        ('{"a": ' + "9" * 5_000 + "}", None, "has a number of thousands of digits"),
        ('{"a": ' + "[" * 50_000, None, "nested more than"),
        ('{\n"a": 1,}', 2, "is no JSON"),
        ('{"a": 1, "a": 2}', None, "the key 'a' is there twice"),
    ):
        with pytest.raises(TextError, match=re.escape(error)) as raised:
            read_documents(text)
        assert raised.value.line == line, error


def test_aliases_of_a_long_text_cannot_stand_for_gigabytes() -> None:
    text = f'a: &a "{"x" * 1_000_000}"\nb: [{", ".join(["*a"] * 100)}]'
    with pytest.raises(TextError, match="more than 67,108,864 characters"):
        read_documents(text)


@pytest.mark.slow
def test_a_few_aliases_cannot_stand_for_billions_of_values() -> None:
    levels = "\n".join(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 100)}]" for level in range(1, 6))
    with pytest.raises(TextError, match="more than 2,000,000 values"):
        read_documents(f"a0: &a0 [1]\n{levels}")
