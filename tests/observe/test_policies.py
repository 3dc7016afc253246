"""Policies beside the schedules that have them: where they have an effect, and where a server ignores them."""

from collections.abc import Mapping

import pytest

from nats_scheduler.engine.views.stored import StoredSchedules
from nats_scheduler.engine.views.view import FiredBy, ListedSchedule
from nats_scheduler.message.dialect import ADR51, PORTABLE
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.timetable import delay_of
from nats_scheduler.observe.documents import schedule_document
from nats_scheduler.observe.explanations import marked_fire_documents
from nats_scheduler.observe.texts import has_ignored_policies, policies_text, schedule_words
from nats_scheduler.schedule.clock_changes import NextFire
from nats_scheduler.schedule.instants import HOUR, MINUTE
from nats_scheduler.schedule.patterns import Syntax
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.read_back import read_schedule
from nats_scheduler.testing.clock import START
from tests.engine.direct import message_on

RULES = StreamRules("S", ("s.>", "t.>"))


def listed(policies: Mapping[str, str], fired_by: FiredBy, after: int = 0) -> ListedSchedule:
    """Read a schedule with policies, as it is listed `after` ns after it was stored."""
    read = StoredSchedules(RULES, (ADR51,), fired_by)
    headers = {f"Nats-Schedule-{name}": value for name, value in policies.items()}
    message = message_on("s.2", 2, Nats_Schedule="@every 1h", Nats_Schedule_Target="t.out", **headers)
    read.take([message], START)
    assert read.rejected == {}
    (found,) = read.view.page(START + after).finish().schedules
    return found


def test_policies_are_part_of_the_document_of_a_schedule_and_are_read_again() -> None:
    policies = {"X-Limit": "3", "X-Anchor": "2026-01-01T00:30:00Z", "X-Owner": "billing", "X-Note": "ä"}
    one = listed(policies, FiredBy.SIDECAR)
    assert one.next_fire == START + 30 * MINUTE
    document = schedule_document("S", "emulated", one)
    assert document["policies"] == policies
    assert read_schedule(document) == one
    assert policies_text(one.terms.policies) == "X-Anchor 2026-01-01T00:30:00Z, X-Limit 3"
    assert not has_ignored_policies(one)


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        ({"X-Missed": "once", "X-Report": "true"}, ""),
        ({"X-Missed": "skip"}, "; what is more than 10s late is skipped"),
        ({"X-Missed": "skip", "X-Grace": "5m"}, "; what is more than 5m0s late is skipped"),
        ({"X-Missed": "all"}, "; each missed fire is made up"),
        ({"X-Missed": "all 7"}, "; of missed fires the latest 7 are made up"),
        ({"X-Missed": "all 1"}, ""),
    ],
)
def test_the_words_of_a_schedule_say_what_happens_to_missed_fires(policies: dict[str, str], words: str) -> None:
    one = listed(policies, FiredBy.SIDECAR)
    said = schedule_words(one.pattern, one.terms.policies, START)
    assert said == f"every hour, counted from 2026-01-01T00:00:00Z{words}"
    assert read_schedule(schedule_document("S", "emulated", one)) == one


def test_a_jittered_schedule_shows_when_its_next_fire_is_sent() -> None:
    one = listed({"X-Jitter": "30m"}, FiredBy.SIDECAR)
    sent = START + HOUR + delay_of("s.2", 2, START + HOUR, HOUR // 2)
    assert (one.next_fire, one.sent) == (START + HOUR, sent)
    document = schedule_document("S", "emulated", one)
    assert document["next_fire"] is not None
    assert document["next_fire"]["sent"] == format_rfc3339(sent)
    assert read_schedule(document) == one
    words = schedule_words(one.pattern, one.terms.policies, START)
    assert words == "every hour, counted from 2026-01-01T00:00:00Z, each sent up to 30m0s later, before the next"
    entries = [NextFire(START + HOUR, None, 0)]
    (marked,) = marked_fire_documents(one.timetable, entries)
    assert marked["sent"] == format_rfc3339(sent)


def test_a_jitter_delays_nothing_where_no_sidecar_fires() -> None:
    one = listed({"X-Jitter": "30m"}, FiredBy.SERVER)
    assert (one.next_fire, one.sent, one.timetable.jitters) == (START + HOUR, None, False)
    assert schedule_words(one.pattern, one.terms.policies, START) == "every hour, counted from 2026-01-01T00:00:00Z"
    assert has_ignored_policies(one)


@pytest.mark.parametrize("policies", [{"X-Limit": "1"}, {"X-Limit": "none"}, {"X-Unknown": "1"}])
@pytest.mark.parametrize("fired_by", [FiredBy.SERVER, FiredBy.NONE])
def test_policies_have_no_effect_where_no_sidecar_fires(fired_by: FiredBy, policies: dict[str, str]) -> None:
    one = listed(policies, fired_by, after=3 * HOUR)
    assert one.next_fire == START + 4 * HOUR
    assert has_ignored_policies(one)
    document = schedule_document("S", "native", one)
    assert document["policies"] == policies
    assert read_schedule(document) == one


@pytest.mark.parametrize("fired_by", [FiredBy.SIDECAR, FiredBy.NONE])
def test_the_document_of_a_pattern_in_another_syntax_is_read_again(fired_by: FiredBy) -> None:
    read = StoredSchedules(RULES, (PORTABLE,), fired_by)
    headers = {
        "X_Nats_Schedule": "0 0 9 ? * L5 2026-2027",
        "X_Nats_Schedule_Target": "t.out",
        "X_Nats_Schedule_X_Syntax": "quartz",
    }
    read.take([message_on("s.2", 2, **headers)], START)
    (one,) = read.view.page(START).finish().schedules
    document = schedule_document("S", "portable", one)
    assert document["policies"] == {"X-Syntax": "quartz"}
    assert document["next_fire"] is not None
    assert document["next_fire"]["utc"] == "2026-01-30T09:00:00Z"
    assert read_schedule(document) == one
    assert policies_text(one.terms.policies) == "X-Syntax quartz"
    assert one.terms.policies.syntax is Syntax.QUARTZ


def test_notes_and_owners_are_for_people_wherever_the_schedule_fires() -> None:
    one = listed({"X-Note": "a", "X-Owner": "b"}, FiredBy.SERVER)
    assert (one.terms.policies.note, one.terms.policies.owner) == ("a", "b")
    assert not has_ignored_policies(one)


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        ({"X-Overlap": "skip"}, "; a fire is skipped while the one before is unfinished"),
        (
            {"X-Overlap": "queue", "X-Timeout": "2h"},
            "; a fire waits while the one before is unfinished, for 2h0m0s at most",
        ),
        ({"X-Overlap": "allow", "X-Timeout": "2h"}, ""),
    ],
)
def test_the_words_say_what_happens_while_the_fire_before_is_unfinished(policies: dict[str, str], words: str) -> None:
    one = listed(policies, FiredBy.SIDECAR)
    usual = "every hour, counted from 2026-01-01T00:00:00Z"
    assert schedule_words(one.pattern, one.terms.policies, START) == usual + words
    assert read_schedule(schedule_document("S", "emulated", one)) == one
