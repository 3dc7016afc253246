"""What is found about a stream names it, and its command can be typed."""

import pytest

from nats_scheduler.message.findings import Code, Finding, Severity, typed
from nats_scheduler.message.stream_findings import ANNOUNCED, announced, dormant, no_sidecar, schedules_unserved

HERE = "nothing fires the schedules of S"


@pytest.mark.parametrize(
    ("sidecars", "portable", "what", "command"),
    [
        (0, None, f"no sidecar is running: {HERE}", "nats-scheduler run"),
        (1, None, f"no sidecar that is running serves the stream: {HERE}", "nats-scheduler instances"),
        (0, 0, f"no sidecar is running: {HERE} with X-Nats-Schedule", "nats-scheduler run"),
        (0, 1, f"no sidecar is running: {HERE} with X-Nats-Schedule (1)", "nats-scheduler run"),
    ],
)
def test_a_stream_without_a_sidecar_is_found_with_what_it_leaves_unfired(
    sidecars: int, portable: int | None, what: str, command: str
) -> None:
    assert no_sidecar("S", sidecars, portable) == Finding(Code.NO_SIDECAR, what, command, "S")


def test_a_stream_that_nothing_fires_is_found_with_what_changes_that() -> None:
    found = dormant("S")
    assert (found.code, found.stream, found.subject) == (Code.DORMANT, "S", None)
    assert found.what.startswith("stream S is dormant")
    assert found.command.startswith("nats-scheduler graduate S,")
    for mode, state in ((None, "S carries no flag"), ("paused", "S is paused")):
        found = schedules_unserved("S", "s.one", "type this", mode)
        assert found[2:] == ("type this", "S", "s.one")
        assert (found.code, found.what) == (
            Code.SCHEDULES_UNSERVED,
            f"s.one has schedule headers that are not fired: {state}",
        )


@pytest.mark.parametrize("code", ANNOUNCED)
def test_what_is_announced_is_about_the_subject_it_was_announced_for(code: Code) -> None:
    advisory = {"seq": 7, "reason": "it is so", "subject": "other", "stream": "OTHER", "unknown": "{x}"}
    found = announced(code, "S", "s.$x", advisory)
    assert (found.code, found.stream, found.subject) == (code, "S", "s.$x")
    assert "s.$x" in found.what
    assert "(sequence 7" in found.what or "it is so" in found.what
    assert "ther" not in (found.what + found.command).lower().replace("another", "")
    assert found.command.count("s.$x") == found.command.count("'s.$x'"), "as it is typed into a shell"


def test_a_finding_of_a_schedule_names_it() -> None:
    found = Finding(Code.STEP_UNEVEN, "it is so", "do this")
    assert found.of("S", "s.one") == Finding(Code.STEP_UNEVEN, "s.one: it is so", "do this", "S", "s.one")
    assert found.sentence == "it is so; do this (step_uneven)"
    assert (found.severity, found.why) == (Severity.WARNING, Code.STEP_UNEVEN.why)
    assert typed("nats", "stream", "info", "a b") == "nats stream info 'a b'"
