"""The next fires of a schedule as a table or a document: when, in UTC and in its zone, and when they are sent.

Rule: `explain` and `info` print the same table, with what a change of the clock does to a fire; `next` prints one with
the time until each fire, of a pattern and of a stored schedule. A column without a value is left out.
Cost: some microseconds for each fire. Limit: a skipped time has no time in UTC, since it does not exist.
"""

from collections.abc import Sequence
from datetime import date

import click

from nats_scheduler.cli.output import print_table
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.observe.documents import fire_document
from nats_scheduler.observe.explanations import local_text
from nats_scheduler.observe.texts import moment_text, shortened, span_text
from nats_scheduler.schedule.clock_changes import ClockChange, NextFire, SkippedTimes
from nats_scheduler.schedule.explain import interval_words
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

_EFFECTS = {
    ClockChange.MOVED: "moved",
    ClockChange.FIRST_OF_TWO: "first of two",
    ClockChange.SECOND_OF_TWO: "second of two",
}


def print_next_fires(timetable: Timetable, entries: Sequence[NextFire | SkippedTimes], *, wide: bool = False) -> None:
    """Print fires and skipped times, one row each."""
    rows = [
        _fire_row(timetable, entry, wide=wide) if isinstance(entry, NextFire) else _skipped_row(entry)
        for entry in entries
    ]
    columns = ["day", "UTC", timetable.pattern.time_zone or "", "sent (UTC)", "clock change"]
    kept = [n for n, name in enumerate(columns) if name and any(row[n] for row in rows)]
    print_table([columns[n] for n in kept], [[row[n] for n in kept] for row in rows], optional=["day"], wide=wide)


def print_fire_times(
    timetable: Timetable,
    zone: str | None,
    after: int,
    fires: Sequence[int],
    excepted: Sequence[tuple[int, int]] = (),
    *,
    wide: bool,
) -> None:
    """Print fires, one row each, with the time from an instant (ns) until each of them is sent.

    What is `excepted`, from a first to a last fire time, has a row as well.
    """
    pattern = timetable.pattern
    local = [] if zone is None else [zone]
    delayed = ["sent (UTC)"] if timetable.jitters else []
    rows = []
    for fire, last in sorted([*((fire, None) for fire in fires), *excepted]):
        shown = fire if wide else shortened(fire)
        times = [format_rfc3339(shown)] + ([pattern.format(shown)] if local else [])
        sent = timetable.send_time_of(fire)
        sent_text = format_rfc3339(sent if wide else shortened(sent)) if last is None else ""
        times += [sent_text] if delayed else []
        waits = _wait(sent - after) if last is None else _excepted_text(fire, last)
        rows.append([weekday_of_text(pattern.format(fire)), *times, waits])
    print_table(["day", "UTC", *local, *delayed, "in"], rows, optional=["day"], wide=wide)
    click.echo(f"{len(fires)} fires, counted from {moment_text(after)}")


def ending_text(timetable: Timetable) -> str:
    """Return why nothing fires after the fires of a timetable."""
    if not timetable.repeats:
        return "it fires once"
    if not timetable.ends_by_itself:
        return "no further fire within five years"
    is_bounded = timetable.pattern.base is not timetable.pattern
    return "its policies leave no further fire" if is_bounded else "its years are over"


def next_document(
    timetable: Timetable, zone: str | None, after: int, fires: Sequence[int], *, ends: bool
) -> dict[str, object]:
    """Return the document: the fires after an instant (ns), and whether nothing fires after those."""
    pattern = timetable.pattern
    shown = [fire_document(pattern, fire, timetable.delayed_to(fire)) for fire in fires]
    return {
        "pattern": pattern.text,
        "time_zone": zone,
        "after": format_rfc3339(after),
        "fires": shown,
        "ends": ends,
    }


def weekday_of_text(time: str) -> str:
    """Return the day of the week of an RFC 3339 time; "" for years that Python's calendar does not know."""
    try:
        return WEEKDAYS[date.fromisoformat(time[:10]).weekday()]
    except ValueError:
        return ""


def _fire_row(timetable: Timetable, fire: NextFire, *, wide: bool) -> list[str]:
    shown = fire.fire_time if wide else shortened(fire.fire_time)
    local = timetable.pattern.format(shown)
    sent = timetable.delayed_to(fire.fire_time)
    sent_text = "" if sent is None else format_rfc3339(sent if wide else shortened(sent))
    return [weekday_of_text(local), format_rfc3339(shown), local, sent_text, _change_text(fire)]


def _change_text(fire: NextFire) -> str:
    """Return what a change of the clock does to a fire: `moved: the clock goes forward 1 hour`."""
    if fire.change is None:
        return ""
    direction = "forward" if fire.shift > 0 else "back"
    words = interval_words(abs(fire.shift) * SECOND)
    return f"{_EFFECTS[fire.change]}: the clock goes {direction} {words if words[0].isdigit() else f'1 {words}'}"


def _skipped_row(skipped: SkippedTimes) -> list[str]:
    first, last = local_text(skipped.first), local_text(skipped.last)
    start, end = local_text(skipped.gap_start), local_text(skipped.gap_end)
    times = first if first == last else f"{first} to {_after(first, last)}"
    is_one_day = start[:10] == end[:10]
    clock = f"from {start[11:16]} to {end[11:16]}" if is_one_day else f"from {start} to {end}"
    return [weekday_of_text(first), "-", times, "", f"skipped: the clock goes {clock}"]


def _after(first: str, last: str) -> str:
    """Return the later of two local times, without its date if that is the same."""
    return last[11:] if first[:10] == last[:10] else last


def _excepted_text(first: int, last: int) -> str:
    return "excepted" if first == last else f"excepted, until {format_rfc3339(shortened(last))}"


def _wait(nanoseconds: int) -> str:
    """Return how long it takes from the stored time to the fire."""
    return "at once" if nanoseconds <= 0 else span_text(nanoseconds)
