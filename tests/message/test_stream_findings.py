"""What is found about a stream names it, and its command can be typed."""

import pytest

from nats_scheduler.message.findings import Code, Finding, typed
from nats_scheduler.message.stream_findings import ANNOUNCED, announced, dormant, no_sidecar, schedules_unserved


def test_a_stream_that_nothing_fires_is_found_with_what_changes_that() -> None:
    for sidecars, portable, who, which, command in (
        (0, None, "is running", "", "run"),
        (1, None, "that is running serves the stream", "", "instances"),
        (0, 0, "is running", " with X-Nats-Schedule", "run"),
        (0, 1, "is running", " with X-Nats-Schedule (1)", "run"),
    ):
        what = f"no sidecar {who}: nothing fires the schedules of S{which}"
        assert no_sidecar("S", sidecars, portable) == Finding(Code.NO_SIDECAR, what, f"nats-scheduler {command}", "S")
    code, what, command, *about = dormant("S")
    assert (code, what[:20], command[:26], about) == (
        *(Code.DORMANT, "stream S is dormant:", "nats-scheduler graduate S,", ["S", None]),
    )
    for mode, state in ((None, "S carries no flag"), ("paused", "S is paused")):
        what = f"s.one has schedule headers that are not fired: {state}"
        finding = Finding(Code.SCHEDULES_UNSERVED, what, "type this", "S", "s.one")
        assert schedules_unserved("S", "s.one", "type this", mode) == finding


@pytest.mark.parametrize("code", ANNOUNCED)
def test_what_is_announced_is_about_the_subject_it_was_announced_for(code: Code) -> None:
    found = announced(code, "S", "s.$x", {"seq": 7, "reason": "so", "subject": "elsewhere", "stream": "ELSEWHERE"})
    assert (found.code, found.stream, found.subject) == (code, "S", "s.$x")
    assert "s.$x" in found.what
    assert "(sequence 7" in found.what or ": so" in found.what
    assert "elsewhere" not in (found.what + found.command).lower()
    assert found.command.count("s.$x") == found.command.count("'s.$x'"), "as it is typed into a shell"


def test_a_finding_about_a_schedule_names_it() -> None:
    found = Finding(Code.STEP_UNEVEN, "it is so", "do this").of("S", "s.one")
    assert found == Finding(Code.STEP_UNEVEN, "s.one: it is so", "do this", "S", "s.one")
    assert typed("nats", "stream", "info", "a b") == "nats stream info 'a b'"
