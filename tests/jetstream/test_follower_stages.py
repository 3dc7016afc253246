"""The table of a follower's stages is enforced whatever happens, leads back to reading, and is what the page shows."""

import re
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest

from nats_scheduler.jetstream.follower_stages import (
    FOLLOWER_TABLE,
    FollowerEvent,
    FollowerStage,
    FollowerStages,
)

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "followers.md"


def check_move(stages: FollowerStages, event: FollowerEvent) -> None:
    """Let an event happen, and compare what follows with the table."""
    before, following = stages.now, FOLLOWER_TABLE[stages.now].get(event)
    if following is None:
        with pytest.raises(AssertionError, match=f"{event.name} happened in {before.name}: expected one"):
            stages.move(event)
    else:
        assert stages.move(event) is following
    assert stages.now is (following or before)


def test_what_the_table_does_not_have_raises_and_changes_nothing() -> None:
    for stage, event in product(FollowerStage, FollowerEvent):
        stages = FollowerStages()
        stages.now = stage
        check_move(stages, event)


def reached(begin: FollowerStage, events: Iterable[FollowerEvent] = FollowerEvent) -> set[FollowerStage]:
    """Return the stages that these events can lead to."""
    found, allowed = {begin}, set(events)
    while new := {to for stage in found for event, to in FOLLOWER_TABLE[stage].items() if event in allowed} - found:
        found |= new
    return found


def test_each_stage_is_reached_and_leads_back_to_reading() -> None:
    assert reached(FollowerStage.IDLE) == set(FollowerStage)
    goes_on = set(FollowerEvent) - {FollowerEvent.ENDED, FollowerEvent.LIMITED}
    for stage in set(FollowerStage) - {FollowerStage.LOOKED_UP}:
        assert FollowerStage.LIVE in reached(stage, goes_on), stage


def test_the_page_shows_the_table() -> None:
    section = PAGE.read_text().split("## The stages of a follower\n", 1)[1].split("\n## ", 1)[0]
    shown = {}
    for name, _meaning, cell in re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", section, re.MULTILINE):
        shown[name] = {
            (event, following)
            for names, following in re.findall(r"((?:`\w+`(?:, )?)+) → `(\w+)`", cell)
            for event in re.findall(r"\w+", names)
        }
    expected = {
        stage.name: {
            (event.name, to.name)
            for event, to in events.items()
            if to is not stage and event is not FollowerEvent.ENDED
        }
        for stage, events in FOLLOWER_TABLE.items()
    }
    assert shown == expected
