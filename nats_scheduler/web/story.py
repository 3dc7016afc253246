"""One schedule: its next fires with what the clock does to them, and what the sidecars say about it."""

from collections.abc import Sequence
from dataclasses import dataclass

from nats_scheduler.observe.explanations import MarkedFireDocument, SkippedDocument
from nats_scheduler.schedule.explain import interval_words
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.service.pattern_schemas import ExplainAnswer, NextAnswer

_EFFECTS = {"moved": "moved", "first_of_two": "first of two", "second_of_two": "second of two"}


@dataclass(frozen=True, slots=True)
class NextRow:
    """One of the next fires, or times that the clock skips."""

    instant: int | None
    """When it fires (ns); None for what is skipped."""
    local: str
    """The time in the zone of the schedule, with its offset; "" without a zone."""
    remark: str
    """What a change of the clock does to it."""


def next_rows(following: NextAnswer | None, explained: ExplainAnswer | None) -> list[NextRow]:
    """Return the next fires of a schedule in their order, with the times that are skipped between them.

    The fires are those of the schedule; the remarks are those of its pattern, which fires at the same times.
    """
    if following is None:
        return []
    marks: dict[int, MarkedFireDocument] = {}
    skipped: Sequence[SkippedDocument] = ()
    if explained is not None and explained["kind"] == "cron":
        marks = {fire["nanoseconds"]: fire for fire in explained["fires"]}
        skipped = explained["skipped"]
    zone = following["time_zone"]
    rows = [
        (
            fire["local"],
            NextRow(fire["nanoseconds"], fire["local"] if zone else "", _remark(marks.get(fire["nanoseconds"]))),
        )
        for fire in following["fires"]
    ]
    last = rows[-1][0] if rows else ""
    rows += [(one["first"], _skipped_row(one)) for one in skipped if one["first"] < last]
    return [row for _, row in sorted(rows, key=lambda one: one[0][:19])]


def _remark(fire: MarkedFireDocument | None) -> str:
    if fire is None or fire["clock_change"] is None:
        return ""
    shift = fire["clock_shift_seconds"] or 0
    words = interval_words(abs(shift) * SECOND)
    direction = "forward" if shift > 0 else "back"
    amount = words if words[0].isdigit() else f"1 {words}"
    return f"{_EFFECTS.get(fire['clock_change'], fire['clock_change'])}: the clock goes {direction} {amount}"


def _skipped_row(skipped: SkippedDocument) -> NextRow:
    times = skipped["first"] if skipped["first"] == skipped["last"] else f"{skipped['first']} to {skipped['last']}"
    remark = f"skipped: the clock goes from {skipped['clock_from']} to {skipped['clock_to']}"
    return NextRow(None, times, remark.replace("T", " "))
