"""The references of log events and advisories describe what the code can write.

Every test judges the lines that it has written (`tests/harness/log_lines.py`), and the advisories that it waits for.
"""

import json

import pytest
from jsonschema import Draft202012Validator

from nats_scheduler.message.advisory_messages import ADVISORY_TYPE, SCHEDULE_CHANGED
from nats_scheduler.observe.advisories import KINDS, advisories_schema
from nats_scheduler.observe.log import configure_logging
from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.reporter import Reporter
from tests.harness.advisories import IN_EACH
from tests.house import log_events as source
from tests.observe.advisory_reference import PAGE, derived_part, page_with
from tests.observe.log_reference import described_events, described_fields


@pytest.mark.slow
def test_the_reference_has_every_event_and_no_other() -> None:
    assert sorted(described_events()) == sorted(source.log_events())
    assert sorted(KINDS) == sorted(source.advisories())


@pytest.mark.slow
def test_the_reference_has_every_field_and_no_other() -> None:
    described = {name: set(row.fields) for name, row in described_events().items()}
    published = {kind: set(about.keys) | IN_EACH for kind, about in KINDS.items()}
    for said, written in ((described, source.log_events()), (published, source.advisories())):
        assert {name: fields - said[name] for name, fields in written.items() if not fields <= said[name]} == {}
        assert set().union(*said.values()) - source.field_names() - {"exception"} == set()


def test_each_field_is_explained_once_and_no_other_is() -> None:
    assert sorted(described_fields()) == sorted({field for row in described_events().values() for field in row.fields})


def test_the_page_of_advisories_says_what_the_table_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_with(derived_part()), "python -m tests.observe.advisory_reference"
    assert set(KINDS) - {SCHEDULE_CHANGED} <= set(described_events())


def test_the_schema_tells_the_kinds_apart() -> None:
    schema = advisories_schema()
    Draft202012Validator.check_schema(schema)
    assert sorted(schema["discriminator"]["mapping"]) == sorted(f"{ADVISORY_TYPE}.{kind}" for kind in KINDS)
    for model in schema["$defs"].values():
        assert sorted(model["required"]) == sorted(model["properties"])
        assert all("description" in said for key, said in model["properties"].items() if key != "type")


def test_a_json_line_has_its_event_level_and_time_beside_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", "debug")
    Reporter(Metrics()).became_able("S")
    line = json.loads(capsys.readouterr().err)
    assert line == {"event": "can_serve_again", "level": "info", "stream": "S", "timestamp": line["timestamp"]}
