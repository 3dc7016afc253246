"""All cases that were recorded from the reference grammar, by kind; a failure lists every case that differs.

If a case has `v_wall_clock`, that is the correct answer; the server's own answer is then an oddity that the package
does not follow.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.schedule.durations import parse_duration, parse_ttl
from nats_scheduler.schedule.instants import DAY, SECOND, days_from_civil
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.patterns import Cron, parse_pattern
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339
from nats_scheduler.schedule.tzif import OffsetTable
from nats_scheduler.schedule.zones import Zone, load_zone

FOLDER = Path(__file__).parent.parent / "vectors"
VECTORS = FOLDER / "schedule-language.jsonl"
ZONES = FOLDER / "zones-2025b.json"

CASES_FROM = days_from_civil(2024, 1, 1) * DAY
CASES_UNTIL = days_from_civil(2040, 1, 1) * DAY

Case = dict[str, Any]


@cache
def _cases() -> tuple[Case, ...]:
    with VECTORS.open(encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)


@cache
def _recorded_zones() -> dict[str, Zone]:
    """Read the zones as they were when the cases were recorded."""
    tables = json.loads(ZONES.read_text(encoding="utf-8"))
    return {
        name: Zone(name, OffsetTable(first, tuple((second, offset) for second, offset in changes), footer))
        for name, (first, changes, footer) in tables.items()
    }


def _changes(zone: Zone) -> list[tuple[int, int]]:
    """List the first offset, and the changes of offset in the years in which most cases are."""
    segment = zone.segment_at(CASES_FROM)
    changes = [(CASES_FROM, segment.offset)]
    while segment.end is not None and segment.end < CASES_UNTIL:
        segment = zone.segment_at(segment.end)
        if segment.start is not None and segment.offset != changes[-1][1]:
            changes.append((segment.start, segment.offset))
    return changes


@cache
def _zone_for(name: str) -> Zone:
    """Load a zone as users do; replace it if a government has changed it since the cases were recorded."""
    today, recorded = load_zone(name), _recorded_zones()[name]
    assert not isinstance(today, Invalid)
    return today if _changes(today) == _changes(recorded) else recorded


def _answer_cron(case: Case) -> object:
    pattern = parse_pattern(case["s"], case.get("tz"))
    if not isinstance(pattern, Cron):
        return None
    if pattern.zone is not None:
        pattern = replace(pattern, zone=_zone_for(pattern.zone.name))
    fires: list[int] = []
    after: int | None = case["after"]
    while after is not None and len(fires) < len(case.get("v", [0])):
        after = pattern.next_fire(after, case["after"])
        fires += [] if after is None else [after]
    return fires or None


def _answer_time(case: Case) -> object:
    instant = parse_rfc3339(case["s"])
    return None if isinstance(instant, Invalid) else list(divmod(instant, SECOND))


def _answer_duration(case: Case) -> object:
    duration = parse_duration(case["s"])
    return None if isinstance(duration, Invalid) else [duration]


def _answer_ttl(case: Case) -> object:
    ttl = parse_ttl(case["s"])
    return None if isinstance(ttl, Invalid) else [ttl]


def _answer_zone(case: Case) -> object:
    return None if isinstance(load_zone(case["s"]), Invalid) else "loaded"


def _answer_format(case: Case) -> object:
    zone = load_zone(case.get("tz", "UTC"))
    assert not isinstance(zone, Invalid)
    return format_rfc3339(case["after"], zone.offset_at(case["after"]))


def _recorded(case: Case) -> object:
    """Return the answer of the reference; None if it rejects the text."""
    if not case["ok"]:
        return None
    return case.get("v_wall_clock") or case.get("v") or case.get("z") or "loaded"


ANSWERS: dict[str, tuple[int, Callable[[Case], object]]] = {
    "cron": (4833, _answer_cron),
    "rfc3339": (480, _answer_time),
    "duration": (339, _answer_duration),
    "ttl": (176, _answer_ttl),
    "zone": (86, _answer_zone),
    "format": (86, _answer_format),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_every_recorded_case_gets_the_recorded_answer(kind: str) -> None:
    count, answer = ANSWERS[kind]
    cases = [case for case in _cases() if case["k"] == kind]
    answered = [(case, answer(case)) for case in cases]
    different = [f"{case}: got {got}" for case, got in answered if got != _recorded(case)]
    assert not different, "\n".join([f"{len(different)} of {count} cases differ:", *different])
    assert len(cases) == count


def test_no_recorded_case_is_of_a_kind_that_is_not_tested() -> None:
    assert {case["k"] for case in _cases()} == set(ANSWERS)
    assert len(_cases()) == sum(count for count, _ in ANSWERS.values()) == 6_000


def test_recorded_zones_are_needed_only_where_the_data_changed() -> None:
    """Most zones have not changed since 2025; with a wrong loader all of them would be "changed"."""
    changed = [name for name in _recorded_zones() if _zone_for(name) is _recorded_zones()[name]]
    assert len(changed) < 20, changed
    assert "Europe/Amsterdam" not in changed
