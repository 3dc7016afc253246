"""The schedules of an account on a connection: the `ScheduleStore` of the command line and of the micro service.

The rule: each method builds the requests, calls and translates; what follows from an outcome is decided in `control`.
How a stream is served is found by the same code as in a sidecar (`runtime.modes`), each time it is asked for.

Cost: one request for each method; `served` needs two where the flag is in the registry. `schedules` and `fires` read
the messages on their subjects from the newest to the oldest.
Limit: as `jetstream.schedule_messages`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from nats_scheduler.control.changes import Change, change_advisory
from nats_scheduler.control.current import read_current
from nats_scheduler.control.errors import (
    ConflictError,
    ForbiddenError,
    NoAnswerError,
    NotFoundError,
    NotServedError,
    RefusedError,
    StreamNotFoundError,
    UnknownOutcomeError,
)
from nats_scheduler.control.port import Kept, Published, Served, StoredFires, known_from, stored_fires
from nats_scheduler.engine.inputs import NOT_PERMITTED, Refused, Stored, Unknown
from nats_scheduler.jetstream.api import STREAM_NOT_FOUND, JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.errors import ApiError, JetStreamError, NotPermittedError, UnsendableError
from nats_scheduler.jetstream.foreign_json import integer, is_expressible, server_time
from nats_scheduler.jetstream.lookups import last_on
from nats_scheduler.jetstream.schedule_messages import Changed, Deleted, Missing, ScheduleMessages
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.jetstream.stretches import StretchReader
from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE
from nats_scheduler.message.generated import NOT_AVAILABLE
from nats_scheduler.message.genuine import MAX_CLOCK_DIFFERENCE_NS
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.reading import has_schedule_header, paused_name
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import Restrictions
from nats_scheduler.message.subjects import subject_matches
from nats_scheduler.runtime.modes import CarryingStreams, Mode
from nats_scheduler.runtime.server_clock import ServerClock
from nats_scheduler.service.history import MAX_MESSAGES_READ, FireQuery, find_fires

MAX_PAYLOAD_EXCEEDED = 10054
"""The server's code for a message that is too large."""

BODIES_IN_FLIGHT = 32
"""Messages that are read at once for a list."""


class ConnectionStore:
    """The schedules of an account."""

    def __init__(
        self,
        connection: Connection,
        carrying: CarryingStreams,
        clock: ServerClock,
        restrictions_on: Callable[[str], Restrictions],
    ) -> None:
        """Find streams by `carrying`; `restrictions_on` returns the operator's restrictions on a stream."""
        self._connection = connection
        self._carrying = carrying
        self._api: JetStreamApi = carrying.api
        self._clock = clock
        self._restrictions_on = restrictions_on

    async def served(self, stream: str) -> Served:
        """Return how a stream is served."""
        with _translated():
            state = await self._state(stream)
            state, mode = await self._carrying.with_mode(state)
        if mode is None:
            raise NotServedError(f"stream {stream} does not carry schedules: nothing fires them there")
        rules = replace(state.rules, restrictions=self._restrictions_on(stream))
        dialects = (ADR51, PORTABLE) if mode in (Mode.EMULATED, Mode.NATIVE) else (PORTABLE,)
        server = self._carrying.server
        return Served(rules, dialects, mode is Mode.NATIVE, server)

    async def last(self, stream: str, subject: str) -> StoredMessage | None:
        """Return the last message on a subject with its body, as the leader of the stream has it."""
        if not is_expressible(subject):
            return None
        with _translated():
            found = await last_on(self._api, stream, subject)
        return None if found is None else found._replace(body=found.body or b"")

    async def schedules(self, stream: str, subjects: str) -> AsyncIterator[StoredMessage]:
        """Yield the last message on each subject that matches, with its body, if it has headers of a schedule."""
        with _translated():
            state = await self._state(stream)
            found = await self._last_schedules(state, subjects)
            for start in range(0, len(found), BODIES_IN_FLIGHT):
                part = found[start : start + BODIES_IN_FLIGHT]
                read = await asyncio.gather(*(self._api.message(stream, seq=sequence) for sequence, _subject in part))
                for (_sequence, subject), message in zip(part, read, strict=True):
                    if message is not None:  # an answer in JSON does not have the bytes of each subject
                        yield message._replace(subject=subject, body=message.body or b"")

    async def publish(self, stream: str, subject: str, block: bytes, body: bytes, *, expected: int | None) -> Published:
        """Store a message in place of the one with the sequence `expected`: 0 for none, None for any."""
        messages = ScheduleMessages(self._connection, self._api, {"name": stream})
        with _translated():
            if expected is None:
                outcome = await messages.publish_as_it_is(subject, block, body)
            else:
                outcome = await messages.publish(subject, block, body, expected=expected)
        if isinstance(outcome, Stored):
            return Published(outcome.sequence, outcome.duplicate)
        if isinstance(outcome, Changed):
            raise ConflictError(f"{subject}: another client changed it at the same time", outcome.sequence)
        raise _failure(subject, outcome)

    async def delete(self, stream: str, message: StoredMessage) -> None:
        """Delete a message and the older ones on its subject, if it is still the last one there."""
        subject, sequence, stored_at = message.subject, message.sequence, message.stored_at
        with _translated():
            state = await self._state(stream)
            messages = ScheduleMessages(self._connection, self._api, state.config)
            outcome = await messages.delete(subject, sequence, stored_at)
        if isinstance(outcome, Deleted):
            return
        if isinstance(outcome, Missing):
            raise NotFoundError(f"{subject}: sequence {sequence} is not stored any more")
        if isinstance(outcome, Changed):
            raise ConflictError(f"{subject}: another client changed it at the same time", outcome.sequence)
        raise _failure(subject, outcome)

    async def fires(self, stream: str, schedule: StoredMessage, since: int, until: int) -> StoredFires:
        """Return which fires of a schedule are stored whose fire times (ns) are in a range, both ends included."""
        served = await self.served(stream)
        schedule_now = read_current(schedule, served)
        definition = None if schedule_now is None else schedule_now.definition
        if definition is None:
            return StoredFires(frozenset(), None, None)
        terms, is_moved = definition.terms, served.rules.moves_subjects
        target = None if is_moved and terms.policies.target_elsewhere is None else terms.target
        query = FireQuery(schedule.subject, MAX_MESSAGES_READ, since - MAX_CLOCK_DIFFERENCE_NS, target)
        with _translated():
            state = await self._state(stream)
            found = await find_fires(self._connection, self._api, state, query, served.rules_for(terms.dialect))
            if found.stream != state.name:
                state = await self._state(found.stream)
            kept = await self._kept(state, found.searched)
        shown = known_from(state.config, terms, kept, self.now())
        if shown is not None and not found.is_complete:
            shown = max(shown, found.oldest_read or self.now())
        return stored_fires(found.fires, schedule.sequence, since, until, shown)

    async def stream_of(self, subject: str) -> str:
        """Return the name of the account's stream that has a subject."""
        with _translated():
            info = await self._api.stream_with(subject)
        if info is None:
            raise StreamNotFoundError(f"no stream has the subject {subject}")
        return StreamState.from_info(info).name

    async def record(self, changes: Sequence[Change]) -> None:
        """Publish what was done as advisories; a user who may not publish there records nothing."""
        for change in changes:
            self._connection.publish(*change_advisory(change))

    def now(self) -> int:
        """Return the time by the server's clock (ns), as well as it is known."""
        return self._clock.now()

    async def _state(self, stream: str) -> StreamState:
        requested_at = self._clock.monotonic()
        info = await self._api.stream(stream)
        if info is None:
            raise StreamNotFoundError(f"stream {stream} does not exist")
        reported = server_time(info)
        if reported is not None:
            self._clock.received(reported, requested_at)
        return StreamState.from_info(info)

    async def _kept(self, state: StreamState, target: str) -> Kept:
        """Return what a stream still holds, of all its messages and of those on a target."""
        first = max(state.first_sequence, 1)
        message = await self._api.message(state.name, seq=first) if first <= state.last_sequence else None
        kept = Kept(first, self.now() if message is None else message.stored_at)
        if not integer(state.config.get("max_msgs_per_subject")) > 0:
            return kept
        oldest = await self._api.message(state.name, seq=1, next_by_subj=target)
        counts = [number async for _subject, number in self._api.subject_counts(state.name, target)]
        return (
            kept
            if oldest is None
            else kept._replace(on_target=max(counts, default=0), first_on_target_at=oldest.stored_at)
        )

    async def _last_schedules(self, state: StreamState, subjects: str) -> list[tuple[int, str]]:
        """Return the sequences and subjects of the last messages on their subjects that have headers of a schedule."""
        seen: set[str] = set()
        found = []
        reader = StretchReader(self._connection, self._api, state.config, subjects)
        async for chunk in reader.backwards(max(state.first_sequence, 1), state.last_sequence):
            for message in chunk:
                if message.subject not in seen and subject_matches(message.subject, subjects):
                    seen.add(message.subject)
                    if _has_headers(message.block):
                        found.append((message.sequence, message.subject))
        return found


@contextmanager
def _translated() -> Iterator[None]:
    """Raise the errors of this room as those of `control`."""
    try:
        yield
    except NotPermittedError as error:
        raise ForbiddenError(str(error)) from None
    except UnsendableError as error:
        raise RefusedError(str(error), MAX_PAYLOAD_EXCEEDED) from None
    except ApiError as error:
        if error.code == STREAM_NOT_FOUND:
            raise StreamNotFoundError(str(error)) from None
        if error.code in NOT_AVAILABLE:
            raise NoAnswerError(str(error)) from None
        raise RefusedError(str(error), error.code) from None
    except JetStreamError as error:
        raise NoAnswerError(str(error)) from None


def _failure(subject: str, outcome: Refused | Unknown) -> Exception:
    if isinstance(outcome, Unknown):
        reason = f"{subject}: {outcome.reason}"
        return UnknownOutcomeError(reason) if outcome.may_be_stored else NoAnswerError(reason)
    if outcome.code == NOT_PERMITTED:
        return ForbiddenError(outcome.description)
    return RefusedError(f"{subject}: {outcome.description} (server code {outcome.code})", outcome.code)


def _has_headers(block: bytes) -> bool:
    return has_schedule_header(block, DIALECTS) or any(header_value(block, paused_name(one)) for one in DIALECTS)
