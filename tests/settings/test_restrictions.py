"""Restrictions as settings: lists of STREAM=VALUE, from flags, variables and the file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nats_scheduler.message.stream_rules import UNRESTRICTED, Restrictions
from nats_scheduler.settings.load import SettingsError, load_settings

NOWHERE = {"XDG_CONFIG_HOME": "/nonexistent"}


def test_a_stream_that_is_named_has_its_own_and_others_what_stands_for_all() -> None:
    settings = load_settings(
        {"allowed_targets": "ORDERS=due.>,ORDERS=paid,*=any.>", "max_schedules": "ORDERS=10,ORDERS=7"},
        NOWHERE | {"NATS_SCHEDULER_ALLOWED_SOURCES": "*=sensors.*"},
        None,
    )
    assert settings.restrictions_on("ORDERS") == Restrictions(("due.>", "paid"), ("sensors.*",), 7, elsewhere=())
    assert settings.restrictions_on("OTHER") == Restrictions(("any.>",), ("sensors.*",), None, elsewhere=())


def test_nothing_is_restricted_unless_somebody_says_so(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"allowed_targets": ["ORDERS=due.>"]}))
    settings = load_settings({}, NOWHERE, file)
    assert settings.restrictions_on("OTHER") == replace(UNRESTRICTED, elsewhere=()), "but other streams are not reached"


def test_targets_in_other_streams_are_allowed_for_the_stream_of_the_schedules() -> None:
    settings = load_settings({"allowed_targets_elsewhere": "CRON=jobs.>,CRON=mail.out,*=log.*"}, NOWHERE, None)
    assert settings.restrictions_on("CRON").elsewhere == ("jobs.>", "mail.out")
    assert settings.restrictions_on("OTHER").elsewhere == ("log.*",)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("allowed_targets", "ORDERS"),
        ("allowed_targets", "=due.>"),
        ("allowed_targets", "ORDERS=due..x"),
        ("allowed_targets", "ORDERS=>.x"),
        ("allowed_sources", "OR.DERS=a"),
        ("allowed_targets_elsewhere", "jobs.>"),
        ("max_schedules", "ORDERS=many"),
        ("max_schedules", "ORDERS=-1"),
    ],
)
def test_an_entry_that_cannot_be_read_is_an_error(key: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({key: value}, NOWHERE, None)
    [problem] = caught.value.problems
    assert (problem.key, problem.value) == (key, f"[{value!r}]")
    assert "STREAM=" in problem.expected
