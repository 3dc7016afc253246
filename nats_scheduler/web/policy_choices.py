"""The policies that a person chooses from, with what each does, and the line of a form that one is written as.

One rule: a value is read by the parser of policies before it is written, and what is wrong keeps the lines as they are.
Cost: a look-up for each line of the form, and the reading of one value.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from nats_scheduler.message.policies import policy_called, value_fault

_MAX_SHOWN_CHARS = 40


class PolicyChoice(NamedTuple):
    """What a person needs to know of a policy."""

    value: str
    """The values that it may have."""
    words: str
    """What it does, as a sentence."""
    example: str


POLICY_CHOICES: Mapping[str, PolicyChoice] = {
    "X-Start": PolicyChoice("a time", "Nothing fires before this time.", "2027-01-01T00:00:00Z"),
    "X-End": PolicyChoice(
        "a time", "Nothing fires at this time or later, and the schedule ends.", "2027-12-31T00:00:00+01:00"
    ),
    "X-Limit": PolicyChoice("1 to 1,000", "The schedule ends after this number of fire times.", "3"),
    "X-Anchor": PolicyChoice(
        "a time in whole seconds",
        "The interval of @every counts from this time, instead of from when the schedule is stored.",
        "2027-01-01T00:00:00Z",
    ),
    "X-Every": PolicyChoice(
        "a number of days or weeks, and a date from which they count",
        "A pattern of fields fires only on each so many days, or in each so many weeks.",
        "2w from 2027-01-04",
    ),
    "X-Except": PolicyChoice(
        "days, ranges of days and calendars, with commas between them",
        "Nothing fires on these days of the schedule's time zone.",
        "2026-12-25,2026-12-27..2027-01-01,calendar:de-by",
    ),
    "X-Excepted": PolicyChoice(
        "skip, next or previous",
        "Fires of days that X-Except names are left out, or move to the next or the previous other day.",
        "next",
    ),
    "X-Clock-Change": PolicyChoice(
        "skip or after, and both, first or last",
        "What is skipped when the clock goes forward fires right after the gap, or not at all; "
        "what comes twice when it goes back fires each time, or once.",
        "after,first",
    ),
    "X-Syntax": PolicyChoice(
        "crontab or quartz",
        "The pattern is written in this syntax, with L, W and #; with portable headers only.",
        "crontab",
    ),
    "X-Target": PolicyChoice(
        "a subject of another stream that the operator allows",
        "Fires are stored in that stream; in place of the target, and with portable headers only.",
        "jobs.report",
    ),
    "X-Jitter": PolicyChoice(
        "a duration of at most 24h",
        "Each fire is sent up to this much later, and before the next one, so that not all are sent at once.",
        "10m",
    ),
    "X-Spread": PolicyChoice(
        "a duration of 1s to 24h",
        "All fires come later by the same time, a part of this that follows from the subject of the schedule.",
        "10m",
    ),
    "X-Missed": PolicyChoice(
        "once, skip, all, or all with a number",
        "Of fires that could not be stored in time, the latest is made up, none, each, or so many of the latest.",
        "all 10",
    ),
    "X-Grace": PolicyChoice(
        "a duration of at least 1s", "A fire counts as missed if it is later than this; 10s without it.", "1m"
    ),
    "X-Report": PolicyChoice(
        "true", "Each fire says for which time it is, and how many were dropped since the fire before.", "true"
    ),
    "X-Overlap": PolicyChoice(
        "allow, skip or queue",
        "A fire that is due while the one before is unfinished is sent all the same, dropped, or waits.",
        "skip",
    ),
    "X-Consumer": PolicyChoice(
        "the name of a consumer",
        "The acknowledgement of this consumer finishes a fire; beside X-Overlap or X-Done-Within.",
        "worker",
    ),
    "X-Timeout": PolicyChoice(
        "a duration", "A fire that is unfinished for this time counts as finished; beside X-Overlap.", "2h"
    ),
    "X-Done-Within": PolicyChoice(
        "a duration of at least 1s", "A fire that is unfinished for this time after it was stored is reported.", "30m"
    ),
    "X-Debounce": PolicyChoice(
        "true", "The schedule is meant to be replaced before it fires, and that is not reported.", "true"
    ),
    "X-Note": PolicyChoice("a text", "It is shown with the schedule, and changes nothing.", "Closes the books"),
    "X-Owner": PolicyChoice(
        "a text", "It is shown with the schedule, which can be searched by it, and changes nothing.", "billing"
    ),
}
"""By their names, in the order of the documentation."""


class WrittenLines(NamedTuple):
    """The policies of a form after one was chosen."""

    lines: str
    """One policy a line."""
    wrong: Mapping[str, str] = MappingProxyType({})
    """What is wrong with the choice, by `policy` and `value`: then the lines are as they were."""


def write_policy(lines: str, name: str, value: str) -> WrittenLines:
    """Return the lines with a policy in place of the line that it has already, or behind the last one."""
    if name not in POLICY_CHOICES:
        shown = name[:_MAX_SHOWN_CHARS]
        return WrittenLines(lines, {"policy": f"a policy of '{shown}': expected one of {', '.join(POLICY_CHOICES)}"})
    if not value or "\n" in value or "\r" in value:
        shown = value[:_MAX_SHOWN_CHARS]
        expected = f"{POLICY_CHOICES[name].value}, in one line, such as {POLICY_CHOICES[name].example}"
        return WrittenLines(lines, {"value": f"a value of '{shown}': expected {expected}"})
    if (fault := value_fault(name, value)) is not None:
        return WrittenLines(lines, {"value": str(fault)})
    written, place = list[str](), None
    for line in filter(str.strip, lines.split("\n")):
        if policy_called(line.partition(":")[0]) != name:
            written.append(line)
        elif place is None:
            place = len(written)
    written.insert(len(written) if place is None else place, f"{name}: {value}")
    return WrittenLines("\n".join(written))
