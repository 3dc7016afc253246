"""The plan that makes the schedules of one stream those that a file declares.

The rules:

- A schedule that says the same as the file already (`control.words`) is not touched, so it keeps its stored time, and
  with it the grid of `@every`. An `X-Anchor` that only the stored one has does not count: operations add it to keep the
  grid. One that is replaced with the same interval keeps its grid in the same way.
- Whether a schedule is paused is the file's only if the file says it. So a pause that an operator has made stays.
- A schedule with the label of another owner is left as it is, and reported.
- An `@at` whose time has passed, or a schedule whose `X-End` has, is not added: it has fired, and would fire again.
- Everything that would be rejected is found before anything is done.

Pure: what is stored is given. Each step names the sequence that it replaces, so that the edit of another client
between the plan and the step (`control.carrying_out`) is not lost.
Limit: a schedule that has ended by its `X-Limit` leaves no trace, and is added again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, NamedTuple

from nats_scheduler.control.anchor import anchor_name, counted_anew, has_grid, with_phase
from nats_scheduler.control.current import Current, is_marker, read_current
from nats_scheduler.control.declared import (
    OWNER,
    Declared,
    dialect_of,
    owner_of,
    written,
)
from nats_scheduler.control.edits import found_about
from nats_scheduler.control.errors import RejectedError, SchedulerError
from nats_scheduler.control.pausing import has_passed
from nats_scheduler.control.store_port import Served
from nats_scheduler.control.storing import check_schedule, check_written, losses
from nats_scheduler.control.words import is_same, is_same_pattern, words_of
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.findings import Finding
from nats_scheduler.message.headers import MSG_ROLLUP, decoded, header_value, with_headers
from nats_scheduler.message.paused import paused_block
from nats_scheduler.message.policies import policy_header
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.rfc3339 import parse_rfc3339

BODY, PAUSED = "body", "paused"
"""The names of differences that are not those of a header."""


class Action(StrEnum):
    """The effect of one step."""

    ADD = "add"
    REPLACE = "replace"
    PAUSE = "pause"
    RESUME = "resume"
    REMOVE = "remove"


class Difference(NamedTuple):
    """One change that a step makes: the values of one header before and after, or the body, or whether it is paused."""

    name: str
    old: tuple[bytes, ...]
    """The values of the header in their order; empty if there is none."""
    new: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One change of one schedule."""

    action: Action
    subject: str
    expected: int
    """The sequence of the message that it replaces or deletes; 0 for none."""
    block: bytes = b""
    """The header block that is stored; for a schedule that is removed, the one that was."""
    body: bytes = b""
    before: Current | None = None
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes for the operator; one sentence each."""
    findings: tuple[Finding, ...] = ()
    """What is found about the schedule after it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One schedule of a file that the stream would not accept, or that is another owner's."""

    subject: str
    header: str
    """The header that is wrong; empty if it is none."""
    text: str
    """The fault as one sentence, with the value and what was expected."""
    code: int | None = None
    """The server's code, if it has one for this."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is to be done in one stream."""

    stream: str
    steps: tuple[Step, ...] = ()
    """By subject."""
    faults: tuple[Fault, ...] = ()
    """In the order of the file."""
    unchanged: int = 0
    ended: tuple[str, ...] = ()
    """The subjects of schedules that are not added because their time has passed."""
    unlisted: int = 0
    """Schedules with the label of the owner that are not in the file, and stay because nothing is pruned."""


def planning(
    declared: Sequence[Declared],
    stored: Mapping[str, StoredMessage],
    served: Served,
    *,
    now: int,
    owner: str | None = None,
    prune: bool = False,
    takes_over: bool = False,
    kept: frozenset[str] = frozenset(),
    fired: frozenset[str] = frozenset(),
) -> Plan:
    """Compare what is declared with what is stored, by subject.

    `stored` has the last message on each subject that is declared; with an owner, those of all schedules.
    `kept` are subjects that another file declares; `fired` are those of schedules that have ended
    (`control.standing`) and count as absent. `now` is the server's time (ns).
    """
    steps, faults, ended, unchanged = list[Step](), list[Fault](), list[str](), 0
    for one in declared:
        has_fired = one.subject in fired
        found = _planned(one, stored.get(one.subject), served, owner, now, has_fired=has_fired, takes_over=takes_over)
        if isinstance(found, Step):
            steps.append(found)
        elif isinstance(found, Fault):
            faults.append(found)
        elif found == "ended":
            ended.append(one.subject)
        else:
            unchanged += 1
    unlisted = _unlisted(stored, served, owner, kept.union(fired, (one.subject for one in declared)))
    if prune:
        steps += [
            Step(Action.REMOVE, one.subject, one.sequence, one.message.block, one.message.body or b"", one)
            for one in unlisted
        ]
    steps.sort(key=lambda step: step.subject)
    left = 0 if prune else len(unlisted)
    return Plan(served.name, tuple(steps), tuple(faults), unchanged, tuple(sorted(ended)), left)


def _planned(
    one: Declared,
    message: StoredMessage | None,
    served: Served,
    owner: str | None,
    now: int,
    *,
    has_fired: bool,
    takes_over: bool,
) -> Step | Fault | Literal["unchanged", "ended"]:
    """Decide what to do for one schedule: nothing if it is unchanged, or if its time has passed."""
    block, dialect = written(one.content, owner), dialect_of(one.content)
    current = None if message is None or has_fired else read_current(message, served)
    if current is None and message is not None and not has_fired and not is_marker(message.block):
        text = f"a message that is no schedule is stored there (sequence {message.sequence}): remove it first"
        return Fault(one.subject, "", text)
    if fault := _owner_fault(one, owner, current, takes_over=takes_over):
        return fault
    if current is not None and _is_there(current, one, block, dialect):
        return "unchanged"
    if current is None and _end_has_passed(block, served, dialect, now):
        return "ended"
    read = _read(one, block, served, now)
    if isinstance(read, Fault):
        return read
    expected, findings = 0 if message is None else message.sequence, found_about(served, read, now)
    if current is not None:
        notes = () if one.paused else losses(served, current, block, one.body, now)
        return replace(_changed(one, block, current, notes), findings=findings)
    if has_passed(read, now) and not one.paused:
        return "ended"
    to_store = paused_block(block, dialect) if one.paused else block
    return Step(Action.ADD, one.subject, expected, to_store, one.body, findings=findings)


def _changed(one: Declared, block: bytes, current: Current, notes: tuple[str, ...]) -> Step:
    """Return the step that makes a stored schedule the one that is declared."""
    dialect, expected = dialect_of(one.content), current.sequence
    is_paused = current.is_paused if one.paused is None else one.paused
    if current.is_paused is is_paused or not _says_the_same(current, block, one.body, dialect):
        differences = tuple(_differences(current, block, one.body, is_paused=is_paused))
        block, phase_notes = _with_grid(current, block, dialect)
        to_store = paused_block(block, dialect) if is_paused else block
        step = Step(Action.REPLACE, one.subject, expected, to_store, one.body, current, differences)
        return replace(step, notes=notes + phase_notes + (() if is_paused else counted_anew(current)))
    action = Action.PAUSE if is_paused else Action.RESUME
    differences = (_pause_difference(current, is_paused=is_paused),)
    return Step(action, one.subject, expected, current.message.block, one.body, current, differences, notes)


def _is_there(current: Current, one: Declared, block: bytes, dialect: Dialect) -> bool:
    """Return whether a stored schedule is the one that is declared, and was valid when it was stored."""
    if current.definition is None or one.paused not in (None, current.is_paused):
        return False
    return _says_the_same(current, block, one.body, dialect)


def _says_the_same(current: Current, block: bytes, body: bytes, dialect: Dialect) -> bool:
    active = current.message._replace(block=current.active_block)
    return current.dialect is dialect and is_same(active, block, body, but_for=(anchor_name(current),))


def _owner_fault(one: Declared, owner: str | None, current: Current | None, *, takes_over: bool) -> Fault | None:
    own, header = owner_of(one.content), policy_header(OWNER, dialect_of(one.content)).decode()
    if owner is not None and own not in (None, owner):
        text = f"{header} of {own!r} is not the owner that is given for all: expected {owner!r}, or no owner here"
        return Fault(one.subject, header, text)
    theirs = None if current is None else current.owner
    if theirs is not None and theirs != (own or owner) and not takes_over:
        text = f"it belongs to the owner {theirs!r}: expected this owner here, or --take-over (take_over)"
        return Fault(one.subject, "", text)
    return None


def _read(one: Declared, block: bytes, served: Served, now: int) -> Current | Fault:
    """Read what would be stored, as whatever fires it will."""
    subject = one.subject
    try:
        found = check_schedule(served, subject, block, one.body, now)
        if one.paused:
            check_written(paused_block(block, dialect_of(one.content)))
    except RejectedError as error:
        return Fault(subject, error.rejection.header, str(error), error.code or None)
    except SchedulerError as error:
        return Fault(subject, "", str(error), error.code)
    if found.definition is None or found.is_paused:
        return Fault(subject, "", "its headers are those of a paused schedule: expected them with paused: true")
    return found


def _end_has_passed(block: bytes, served: Served, dialect: Dialect, now: int) -> bool:
    """Return whether the `X-End` of a schedule is past; such a one would be rejected, since it has no fire."""
    if not served.rules_for(dialect).has_policies:
        return False
    value = header_value(block, policy_header("X-End", dialect))
    end = None if value is None else parse_rfc3339(decoded(value))
    return isinstance(end, int) and end <= now


def _with_grid(current: Current, block: bytes, dialect: Dialect) -> tuple[bytes, tuple[str, ...]]:
    """Return the block with the grid that the stored schedule has, if the pattern is the same, and what to say."""
    name = anchor_name(current)
    if current.dialect is not dialect or header_value(block, name) is not None:
        return block, ()
    new, old = (header_value(one, dialect.schedule) or b"" for one in (block, current.active_block))
    if not is_same_pattern(new, old):
        return block, ()
    if current.definition is None or not has_grid(current.definition.pattern):
        return block, ()
    if (anchor := header_value(current.message.block, name)) is not None:
        return with_headers(block, [(name, anchor)]), ()
    return (block, ()) if current.is_paused else with_phase(current, block)


def _differences(current: Current, block: bytes, body: bytes, *, is_paused: bool) -> Iterator[Difference]:
    """Yield what differs, header by header, in the order of the new block; not what operations or a server add."""
    old, new = words_of(current.active_block), words_of(block)
    for name in (*new, *(name for name in old if name not in new)):
        is_added = name not in new and (name == anchor_name(current) or (name == MSG_ROLLUP and old[name] == [b"sub"]))
        if old.get(name) != new.get(name) and not is_added:
            yield Difference(decoded(name), tuple(old.get(name, ())), tuple(new.get(name, ())))
    if (current.message.body or b"") != body:
        yield Difference(BODY, (current.message.body or b"",), (body,))
    if current.is_paused is not is_paused:
        yield _pause_difference(current, is_paused=is_paused)


def _pause_difference(current: Current, *, is_paused: bool) -> Difference:
    old, new = (b"true" if one else b"false" for one in (current.is_paused, is_paused))
    return Difference(PAUSED, (old,), (new,))


def _unlisted(
    stored: Mapping[str, StoredMessage], served: Served, owner: str | None, listed: frozenset[str]
) -> list[Current]:
    """Return the schedules with the label of the owner that no file declares."""
    unlisted: list[Current] = []
    if owner is None:
        return unlisted
    for subject, message in stored.items():
        found = None if subject in listed else read_current(message, served)
        if found is not None and found.owner == owner:
            unlisted.append(found)
    return unlisted
