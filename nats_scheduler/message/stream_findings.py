"""What is found about a stream by more than the doctor, and what sidecars announce: the words and what helps, once.

`ls`, `info`, `stream ls`, `add` and the doctor say that no sidecar fires; the verdict of the page and of `top`, and the
doctor, that a stream is dormant; `/readyz`, the log and the doctor, that one with schedules has no flag. What sidecars
notice over time they publish as advisories with the names of the findings (`ANNOUNCED`), whose keys give the values.
"""

import shlex
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from nats_scheduler.message.dialect import ADR51, PORTABLE
from nats_scheduler.message.findings import Code, Finding


def no_sidecar(stream: str, sidecars: int, portable: int | None = None) -> Finding:
    """Return that none of the `sidecars` that run serves a stream.

    `portable` is the number of its schedules that only a sidecar fires, 0 if it is not known; None if all are.
    """
    which = f"the schedules of {stream}"
    if portable is not None:
        which += f" with {PORTABLE.schedule.decode()}{f' ({portable})' if portable else ''}"
    running = "that is running serves the stream" if sidecars else "is running"
    command = "nats-scheduler instances" if sidecars else "nats-scheduler run"
    return Finding(Code.NO_SIDECAR, f"no sidecar {running}: nothing fires {which}", command, stream)


def dormant(stream: str) -> Finding:
    """Return that nothing fires a stream, because its flag is not switched on in a server with a scheduler."""
    what = f"stream {stream} is dormant: nothing fires its {ADR51.schedule.decode()} until it is graduated"
    command = f"nats-scheduler graduate {stream}, after a look at what it would do with --dry-run"
    return Finding(Code.DORMANT, what, command, stream)


def schedules_unserved(stream: str, subject: str, command: str, mode: str | None = None) -> Finding:
    """Return that nothing fires the headers of a schedule on a stream, which has no flag, or has this mode."""
    flagged = "carries no flag" if mode is None else f"is {mode}"
    what = f"{subject} has schedule headers that are not fired: {stream} {flagged}"
    return Finding(Code.SCHEDULES_UNSERVED, what, command, stream, subject)


def announced(code: Code, stream: str, subject: str, advisory: Mapping[str, Any]) -> Finding:
    """Return what a sidecar has announced, by its advisory."""
    what, command = ANNOUNCED[code]
    names = defaultdict(str, advisory, subject=subject, stream=stream)
    typed = {**names, "subject": shlex.quote(subject)}
    return Finding(code, what.format_map(names), command.format_map(typed), stream, subject)


ANNOUNCED = {
    Code.SCHEDULE_REPLACED_UNFIRED: (
        "{subject} (sequence {seq}, published {published}) was to fire at {due}: sequence {replaced_by}, published "
        "{replaced}, replaced it before that",
        "use a subject for each schedule, or X-Debounce if replacement is meant",
    ),
    Code.TARGET_UNCONSUMED: (
        "nobody has consumed the target {target} of {subject} since {since}: {reason}",
        "nats consumer ls {stream}",
    ),
    Code.TARGET_MAPPED: (
        "{target} is the target of {subject} (sequence {seq}), and is mapped: {reason}",
        "nats-scheduler edit {stream} {subject}, with a target that no mapping of the account names",
    ),
    Code.SCHEDULE_SILENT: (
        "no fire of {subject} (sequence {seq}) is stored from {since} on ({cause}): {reason}",
        "nats-scheduler info {stream} {subject}",
    ),
    Code.SCHEDULE_ONLY_DROPPED: (
        "{policy} dropped all fires of {subject} (sequence {seq}) from {since} on, {dropped} in number",
        "nats-scheduler edit {stream} {subject}, with another policy or a longer period",
    ),
}
"""What each announcement says, and the change to make; the names in braces are keys of its advisory."""
