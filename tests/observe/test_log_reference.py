"""The references of log events and advisories describe what the code can write.

Every test judges the lines that it has written (`tests/harness/log_lines.py`), and the advisories that it waits for.
"""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from nats_scheduler.message.advisory_messages import ADVISORY_TYPE, SCHEDULE_CHANGED
from nats_scheduler.message.findings import Code
from nats_scheduler.observe.advisories import KINDS, advisories_schema
from nats_scheduler.observe.log import configure_logging, logger
from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.reporter import Reporter
from tests.harness.advisories import IN_EACH
from tests.house import log_events as source
from tests.observe.advisory_reference import PAGE, derived_part, page_with
from tests.observe.log_reference import described_events, described_fields, fault_of


@pytest.mark.slow
def test_the_reference_describes_every_event_that_the_code_can_write_and_no_other() -> None:
    assert sorted(described_events()) == sorted(source.log_events())
    assert sorted(KINDS) == sorted(source.advisories())


@pytest.mark.slow
def test_the_fields_that_are_written_are_described_and_no_field_is_that_nothing_can_write() -> None:
    described = {name: set(row.fields) for name, row in described_events().items()}
    published = {kind: set(about.keys) | IN_EACH for kind, about in KINDS.items()}
    for said, written in ((described, source.log_events()), (published, source.advisories())):
        assert {name: fields - said[name] for name, fields in written.items() if not fields <= said[name]} == {}
        assert set().union(*said.values()) - source.field_names() - {"exception"} == set()


def test_what_is_a_finding_too_has_its_code_as_a_name() -> None:
    noticed_over_time = {"schedule_replaced_unfired", "schedule_silent", "schedule_only_dropped", "target_mapped"}
    of_schedules = {"schedule_rejected", "header_misnamed", "schedule_ends_early", "fire_refused"}
    both = {*noticed_over_time, *of_schedules, "target_unconsumed", "calendar_missing", "cannot_serve"}
    assert {*KINDS} & {*Code} == both
    assert {*described_events()} & {*Code} == both | {
        "schedule_ends_by_age",
        "schedules_unserved",
        "jetstream_unavailable",
    }


def test_each_field_is_explained_once_and_no_other_is() -> None:
    assert sorted(described_fields()) == sorted({field for row in described_events().values() for field in row.fields})


def test_the_page_of_advisories_says_what_the_table_says_and_each_has_a_line_of_its_name_in_the_log() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_with(derived_part()), "python -m tests.observe.advisory_reference"
    assert set(KINDS) - {SCHEDULE_CHANGED} <= set(described_events())


def test_the_schema_tells_the_kinds_apart_by_their_type_and_requires_every_key() -> None:
    schema = advisories_schema()
    Draft202012Validator.check_schema(schema)
    assert sorted(schema["discriminator"]["mapping"]) == sorted(f"{ADVISORY_TYPE}.{kind}" for kind in KINDS)
    for model in schema["$defs"].values():
        assert sorted(model["required"]) == sorted(model["properties"])
        assert all("description" in said for key, said in model["properties"].items() if key != "type")


def test_a_name_is_followed_through_functions_and_refused_where_it_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(text: str) -> source.Written:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        (folder / "sample.py").write_text(text)
        monkeypatch.setattr(source, "PACKAGE", folder)
        monkeypatch.setattr("tests.house.sources.ROOT", tmp_path)
        source.calls.cache_clear()
        return source.written(source.LEVELS | source.ALIASES)

    try:
        assert found(
            "def _warn(self, kind, fields): self._log.warning(kind, **fields)\n"
            "def problem(self, action, **fields): self._warn(action, fields)\n"
            "def told(teller):\n"
            "    teller.problem('called', f=1)\n"
            "    write('chosen', g=1)\n"
            "    logger().debug('directly', exc_info=error)\n"
            "    teller._warn('in a dictionary', {'h': 1, **more})\n"
            "def alert(kind, fields):\n"
            "    def report(event): problem(kind, **fields(event))\n"
            "TABLE = {1: alert(Code.COPIED, lambda event: {'i': event})}\n"
        ) == {"called": {"f"}, "chosen": {"g"}, "directly": {"exception"}, "in a dictionary": {"h"}, "copied": {"i"}}
        for text in (
            "def f(name): logger().info('a' + name)",
            "def f(given):\n    name = 'a'\n    logger().info(name)",
            "def f(other, name): logger().info(name)",
        ):
            with pytest.raises(AssertionError, match="expected a text"):
                found(text)
    finally:
        source.calls.cache_clear()


def test_a_line_that_the_reference_does_not_describe_is_found() -> None:
    assert fault_of("info", {"event": "can_serve_again", "stream": "S"}) is None
    assert "is not described" in str(fault_of("info", {"event": "flown_away"}))
    assert "has the level debug" in str(fault_of("debug", {"event": "can_serve_again", "stream": "S"}))
    assert "has the fields" in str(fault_of("info", {"event": "can_serve_again"}))
    assert "has the fields" in str(fault_of("info", {"event": "can_serve_again", "stream": "S", "at": 1}))


def test_a_json_line_has_its_event_level_and_time_beside_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", "debug")
    Reporter(Metrics()).became_able("S")
    line = json.loads(capsys.readouterr().err)
    assert line == {"event": "can_serve_again", "level": "info", "stream": "S", "timestamp": line["timestamp"]}


def test_what_is_configured_later_changes_nothing_for_who_writes_already(capsys: pytest.CaptureFixture[str]) -> None:
    """A command that runs in the process of a sidecar, as in tests, does not get the lines of the sidecar."""
    configure_logging("text", "info")
    before = logger()
    configure_logging("json", "error")
    before.info("can_serve_again", stream="S")
    logger().info("can_serve_again", stream="S")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("stream=S")
