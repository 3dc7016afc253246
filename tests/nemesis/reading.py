"""The messages that were ever stored, read from the streams at the end.

Its rule: instants and sequences are the server's own, of the message itself or, for schedules, of the copy that the
server made for the log when it stored them.
"""

from collections.abc import Iterator
from dataclasses import replace

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.message.headers import header_items
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.harness.account import Account
from tests.harness.waiting import eventually
from tests.judge.history import History, ScheduleSeen, Verb
from tests.judge.reading import fire_seen
from tests.nemesis.ground import ELSEWHERE, LOG, OTHER, STREAM
from tests.nemesis.workers import Workers, finished_through

OTHER_SEQUENCES = 1_000_000
"""The number added to the sequences of the other stream in the record, so that they are none of the first one."""


async def read_into(history: History, account: Account, workers: Workers) -> None:
    """Complete a history that has ended."""
    stored = {message.sequence: message for message in await _stored(account, STREAM, "t.>")}
    received = workers.taken if history.terms.consumed else {}
    fires = [fire_seen(message) for _sequence, message in sorted({**received, **stored}.items())]
    fires += [
        replace(fire_seen(message), sequence=OTHER_SEQUENCES + message.sequence, elsewhere=True)
        for message in await _stored(account, OTHER, f"{ELSEWHERE}>")
    ]
    history.fires = [fire for fire in fires if fire.stored_at <= history.end]
    history.finished = finished_through(history.fires, workers.confirmed)
    remaining = await _stored(account, STREAM, "s.>")
    history.remaining = {message.sequence for message in remaining}
    seen = [_logged(message) for message in await _stored(account, LOG, "log.s.>")]
    seen += [ScheduleSeen(m.subject, m.sequence, m.stored_at, m.body or b"") for m in remaining]
    known = {one.sequence: one for one in seen}
    for one in _inferred(history):
        known.setdefault(one.sequence, one)
    history.schedules = [known[sequence] for sequence in sorted(known) if known[sequence].body]


async def _stored(account: Account, stream: str, subject: str) -> list[StoredMessage]:
    """Read all messages on a subject; a cluster on a busy machine may have no leader for a moment."""

    async def read() -> tuple[list[StoredMessage]] | None:
        try:
            return (await account.messages(stream, subject),)
        except SchedulerError:
            return None

    (found,) = await eventually(read, describe=f"{subject} of {stream} is read")
    return found


def _inferred(history: History) -> Iterator[ScheduleSeen]:
    """List schedules that must have been stored: by their acknowledgement, or by the body of a fire of theirs.

    The copy of a leader that dies may be lost, and the millisecond at which it stored the schedule is unknown. If
    its first fire shows that it waited for a quorum, its time is that of the request, else that of the answer.
    """
    bodies = {(fire.schedule, fire.body): fire.schedule_sequence for fire in history.fires if fire.schedule_sequence}
    firsts: dict[int, int] = {}
    for fire in history.fires:
        if fire.schedule_sequence and fire.fire_time:
            firsts.setdefault(fire.schedule_sequence, fire.fire_time)
    for one in history.operations:
        if one.verb is Verb.STORE and one.sequence is not None and one.completed_at is not None:
            first = firsts.get(one.sequence)
            waited = first is not None and one.pattern and first not in one.pattern.dues(one.completed_at, first)
            yield ScheduleSeen(one.schedule, one.sequence, one.invoked_at if waited else one.completed_at, one.body)
        elif one.verb is Verb.STORE and (sequence := bodies.get((one.schedule, one.body))) is not None:
            yield ScheduleSeen(one.schedule, sequence, one.invoked_at, one.body)


def _logged(message: StoredMessage) -> ScheduleSeen:
    """Read the copy of a schedule; an ordinary message on its subject has no body, and is not one."""
    headers = {name.decode(): value.decode() for name, value in header_items(message.block)}
    stored_at = parse_rfc3339(headers["Nats-Time-Stamp"])
    assert isinstance(stored_at, int), headers
    body = message.body or b""
    return ScheduleSeen(headers["Nats-Subject"], int(headers["Nats-Sequence"]), stored_at, body)
