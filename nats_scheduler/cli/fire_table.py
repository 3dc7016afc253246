"""The next fires of a schedule as a table or a document: when, in UTC and in its zone, and when they are sent.

Rule: `next`, `explain` and `info` print the same table, with what a change of the clock does to a fire; `next` prints
the time until each fire too, of a pattern and of a stored schedule. A column without a value is left out.
Cost: some microseconds for each fire. Limit: a skipped time has no time in UTC, since it does not exist.
"""

from collections.abc import Sequence
from datetime import date
from operator import itemgetter

import click

from nats_scheduler.cli.output import print_table
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.observe.documents import marked_fire_documents, skipped_documents
from nats_scheduler.observe.texts import clock_change_text
from nats_scheduler.observe.times import moment_text, shortened, span_text, wall_text
from nats_scheduler.schedule.clock_changes import NextFire, SkippedTimes
from nats_scheduler.schedule.rfc3339 import format_rfc3339

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def print_fires(
    timetable: Timetable,
    entries: Sequence[NextFire | SkippedTimes],
    after: int | None = None,
    excepted: Sequence[tuple[int, int]] = (),
    *,
    wide: bool = False,
) -> None:
    """Print fires and skipped times, one row each, with what a change of the clock does to them.

    What is `excepted`, from a first to a last fire time, has a row as well. With `after` (ns) each fire has the time
    from then until it is sent.
    """
    rows = [_excepted_row(timetable, row, wide=wide) for row in excepted]
    for entry in entries:
        if isinstance(entry, NextFire):
            row = [*_times(timetable, entry.fire_time, wide=wide), clock_change_text(entry.change, entry.shift)]
            rows.append((entry.fire_time, [*row, _wait_text(timetable, entry.fire_time, after)]))
        else:
            rows.append((entry.changed_at, _skipped_row(entry)))
    _print(timetable, [row for _instant, row in sorted(rows, key=itemgetter(0))], wide=wide)
    if after is not None:
        click.echo(f"{sum(isinstance(one, NextFire) for one in entries)} fires, counted from {moment_text(after)}")


def _excepted_row(timetable: Timetable, excepted: tuple[int, int], *, wide: bool) -> tuple[int, list[str]]:
    first, last = excepted
    day, utc, local, _sent = _times(timetable, first, wide=wide)
    until = "" if first == last else f", until {format_rfc3339(shortened(last))}"
    return first, [day, utc, local, "", "", f"excepted{until}"]


def _wait_text(timetable: Timetable, fire_time: int, after: int | None) -> str:
    """Return the time from an instant (ns) until a fire is sent."""
    if after is None:
        return ""
    wait = timetable.send_time_of(fire_time) - after
    return "at once" if wait <= 0 else span_text(wait)


def _print(timetable: Timetable, rows: Sequence[Sequence[str]], *, wide: bool) -> None:
    """Print rows without the columns that have no value."""
    columns = ["day", "UTC", timetable.pattern.time_zone or "", "sent (UTC)", "clock change", "in"]
    kept = [n for n, name in enumerate(columns) if name and any(row[n] for row in rows)]
    print_table([columns[n] for n in kept], [[row[n] for n in kept] for row in rows], optional=["day"], wide=wide)


def ending_text(timetable: Timetable) -> str:
    """Return why nothing fires after the fires of a timetable."""
    if not timetable.repeats:
        return "it fires once"
    if not timetable.ends_by_itself:
        return "no further fire within five years"
    is_bounded = timetable.pattern.base is not timetable.pattern
    return "its policies leave no further fire" if is_bounded else "its years are over"


def next_document(
    timetable: Timetable, zone: str | None, after: int, entries: Sequence[NextFire | SkippedTimes], *, ends: bool
) -> dict[str, object]:
    """Return the document: what fires and is skipped after an instant (ns), and whether nothing fires after that."""
    return {
        "pattern": timetable.pattern.text,
        "time_zone": zone,
        "after": format_rfc3339(after),
        "fires": marked_fire_documents(timetable, entries),
        "skipped": skipped_documents(entries),
        "ends": ends,
    }


def weekday_of_text(time: str) -> str:
    """Return the day of the week of an RFC 3339 time; "" for years that Python's calendar does not know."""
    try:
        return WEEKDAYS[date.fromisoformat(time[:10]).weekday()]
    except ValueError:
        return ""


def _times(timetable: Timetable, fire_time: int, *, wide: bool) -> tuple[str, str, str, str]:
    """Return day, UTC and local time of a fire, and when it is sent if a jitter delays it."""
    shown = fire_time if wide else shortened(fire_time)
    local, sent = timetable.pattern.format(shown), timetable.delayed_to(fire_time)
    sent_text = "" if sent is None else format_rfc3339(sent if wide else shortened(sent))
    return weekday_of_text(local), format_rfc3339(shown), local, sent_text


def _skipped_row(skipped: SkippedTimes) -> list[str]:
    first, last = wall_text(skipped.first), wall_text(skipped.last)
    start, end = wall_text(skipped.gap_start), wall_text(skipped.gap_end)
    times = first if first == last else f"{first} to {_after(first, last)}"
    is_one_day = start[:10] == end[:10]
    clock = f"from {start[11:16]} to {end[11:16]}" if is_one_day else f"from {start} to {end}"
    return [weekday_of_text(first), "-", times, "", f"skipped: the clock goes {clock}", ""]


def _after(first: str, last: str) -> str:
    """Return the later of two local times, without its date if that is the same."""
    return last[11:] if first[:10] == last[:10] else last
