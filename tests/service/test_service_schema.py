"""The printed schemas and the reference page are those of the models that the sidecar uses."""

import json
import re
from pathlib import Path

import pytest

from nats_scheduler.service.endpoints import ALL_ENDPOINTS, service_schema
from nats_scheduler.service.micro import NAME
from tests.house.sources import place
from tests.service.reference import PAGES, REFERENCE, derived_part, page_with
from tests.service.shapes import fault_of


@pytest.mark.parametrize("page", PAGES, ids=place)
def test_the_reference_page_says_what_the_models_say(page: Path) -> None:
    expected = page_with(page, derived_part(PAGES[page]))
    assert page.read_text(encoding="utf-8") == expected, "python -m tests.service.reference"


def test_the_answer_on_the_page_about_changes_is_an_answer() -> None:
    (example,) = re.findall(r"^```json\n(.*?)^```", (REFERENCE / "control.md").read_text("utf-8"), re.M | re.S)
    assert fault_of("schedules.pause", json.loads(example)) == ""


def test_each_endpoint_has_a_request_and_an_answer_whose_parts_are_all_defined() -> None:
    schema = service_schema()
    assert list(schema["endpoints"]) == [one.name for one in ALL_ENDPOINTS]
    text = json.dumps(schema)
    referred = {part.partition('"')[0] for part in text.split('"#/$defs/')[1:]}
    assert referred <= set(schema["$defs"])


def test_each_key_of_a_request_is_described_and_no_other_is_taken() -> None:
    for one in ALL_ENDPOINTS:
        schema = one.request.model_json_schema()
        assert schema["additionalProperties"] is False
        assert all(said.get("description") for said in schema.get("properties", {}).values()), one.name


def test_names_are_words_that_a_micro_service_may_have() -> None:
    names = [one.name for one in ALL_ENDPOINTS]
    assert len(set(names)) == len(names)
    assert all(NAME.fullmatch(name.replace(".", "-")) for name in names)
