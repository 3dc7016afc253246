"""The reference page of advisories and the printed schema describe what the code publishes."""

import pytest
from jsonschema import Draft202012Validator

from nats_scheduler.message.advisory_messages import ADVISORY_TYPE, SCHEDULE_CHANGED
from nats_scheduler.observe.advisories import KINDS, advisories_schema
from tests.harness.advisories import IN_EACH
from tests.house import log_events as source
from tests.observe.advisory_reference import PAGE, derived_part, page_with
from tests.observe.log_reference import described_events


@pytest.mark.slow
def test_every_advisory_that_the_code_publishes_is_in_the_table_with_its_keys_and_no_other_is() -> None:
    assert {kind: set(about.keys) - IN_EACH for kind, about in KINDS.items()} == {
        kind: published.fields for kind, published in source.advisories().items()
    }


def test_the_reference_page_says_what_the_table_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_with(derived_part()), "python -m tests.observe.advisory_reference"


def test_each_advisory_about_what_went_wrong_has_a_line_of_its_name_in_the_log() -> None:
    assert set(KINDS) - {SCHEDULE_CHANGED} <= set(described_events())


def test_the_schema_tells_the_kinds_apart_by_their_type_and_requires_every_key() -> None:
    schema = advisories_schema()
    Draft202012Validator.check_schema(schema)
    assert sorted(schema["discriminator"]["mapping"]) == sorted(f"{ADVISORY_TYPE}.{kind}" for kind in KINDS)
    for model in schema["$defs"].values():
        assert sorted(model["required"]) == sorted(model["properties"])
        assert all("description" in said for key, said in model["properties"].items() if key != "type")
