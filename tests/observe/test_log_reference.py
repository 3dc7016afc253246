"""The reference page of log events describes what the code can write: each event, its levels and its fields."""

import json
from pathlib import Path

import pytest

from nats_scheduler.observe.log import configure_logging, logger
from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.reporter import Reporter
from tests.conftest import StartServer
from tests.harness.account import account_on, in_seconds, sidecar_on
from tests.harness.log_lines import capture_logs
from tests.harness.servers import V2_11
from tests.house import log_events as source
from tests.observe.log_reference import described_events, described_fields, fault_of


@pytest.mark.slow
def test_the_reference_describes_every_event_that_the_code_can_write_and_no_other() -> None:
    assert sorted(described_events()) == sorted(source.log_events())


@pytest.mark.slow
def test_each_event_is_described_with_its_levels_and_fields() -> None:
    said = {name: (set(row.levels), set(row.fields)) for name, row in described_events().items()}
    written = {name: (event.levels, event.fields) for name, event in source.log_events().items()}
    assert said == written


def test_each_field_is_explained_once_and_no_other_is() -> None:
    explained = described_fields()
    assert sorted(explained) == sorted({field for row in described_events().values() for field in row.fields})


def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    """Apply the rules to a module of a test instead of the package."""
    module = tmp_path / "sample.py"
    module.write_text(text)
    monkeypatch.setattr(source, "PACKAGE", tmp_path)
    monkeypatch.setattr("tests.house.sources.ROOT", tmp_path)
    for cached in (source._calls, source.log_events, source.advisories):
        monkeypatch.setattr(source, cached.__name__, cached.__wrapped__)
    return module


ROUNDABOUT = """
class Teller:
    def _warn(self, kind, fields):
        self._log.warning(kind, **fields)

    def problem(self, action, **fields):
        self._warn(action, fields)

    def told(self, is_bad, more):
        tell = self._log.warning if is_bad else self._log.info
        tell("either", a=1, **more_of(more))

    def broken(self, error):
        told = {"b": 1}
        told |= {"c": 2}
        self._log.error("broke", exc_info=error, **({"d": 1} | told))

def more_of(more):
    return {"e": 1} if more else {}

def caller(teller):
    teller.problem("called", f=1)
    logger().debug("directly")
"""


def test_the_rule_follows_an_event_through_functions_and_dictionaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample(tmp_path, monkeypatch, ROUNDABOUT)
    found = {name: (sorted(event.levels), sorted(event.fields)) for name, event in source.log_events().items()}
    assert found == {
        "called": (["warning"], ["f"]),
        "either": (["info", "warning"], ["a", "e"]),
        "broke": (["error"], ["b", "c", "d", "exception"]),
        "directly": (["debug"], []),
    }


@pytest.mark.parametrize(
    "text",
    [
        "def f(name):\n    logger().info('a' + name)",
        "def f():\n    name = 'a'\n    logger().info(name)",
        "def f(fields):\n    logger().info('a', **fields[0])",
        "def g(kind):\n    logger().info(kind)\ndef f(teller):\n    give(teller.g)",
    ],
    ids=["a-name-that-is-built", "a-name-that-is-no-parameter", "fields-from-elsewhere", "a-teller-that-is-given-away"],
)
def test_the_rule_refuses_what_it_cannot_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    sample(tmp_path, monkeypatch, text)
    with pytest.raises(AssertionError):
        source.log_events()


def test_a_line_that_the_reference_does_not_describe_is_found() -> None:
    assert fault_of("info", {"event": "can_serve_again", "stream": "S"}) is None
    assert "is not described" in str(fault_of("info", {"event": "flown_away"}))
    assert "has the level debug" in str(fault_of("debug", {"event": "can_serve_again", "stream": "S"}))
    assert "has the fields" in str(fault_of("info", {"event": "can_serve_again"}))
    assert "has the fields" in str(fault_of("info", {"event": "can_serve_again", "stream": "S", "at": 1}))


def test_a_json_line_has_its_event_level_and_time_beside_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", "debug")
    Reporter(Metrics()).can_serve_again("S")
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


async def test_a_real_run_writes_what_the_reference_describes(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    with capture_logs() as lines:
        async with account_on(server.url) as account, sidecar_on(server.url) as running:
            await account.create("S")
            await running.ready("S")
            await account.publish("S.wrong", {"Nats-Schedule": "@every soon", "Nats-Schedule-Target": "S.out"})
            await account.publish("S.s", {"Nats-Schedule": f"@at {in_seconds(0.5)}", "Nats-Schedule-Target": "S.out"})
            await account.wait_for("S", "S.out")
    assert [fault for line in lines if (fault := fault_of(line["log_level"], line))] == []
    seen = {line["event"] for line in lines}
    assert {"connected", "stream_served", "stream_ready", "schedule_rejected", "schedule_accepted"} <= seen
