"""Find schedules in streams without the flag: nothing fires them, and their publishers do not notice.

A server up to 2.11 drops `allow_msg_schedules`. So a stream that was created before a sidecar listened has no flag, and
its schedules wait for ever.

The rules:

- A stream is looked at when it is first listed, and again when something was stored, at most every
  `LOOK_INTERVAL_SECONDS`. Only its newest messages are read, and only their headers.
- A stream that cannot be read is passed over without a word: the sidecar does not need it.
- What was found is looked up at each list, and is not reported any more once it is gone or fired.

Cost: nothing for a stream in which nothing is stored; about 10 ms for each look at one with many messages.
Limit: a schedule that lies below the newest `MAX_LOOKED_AT` messages is found by `nats-scheduler doctor` only.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.jetstream.api import JetStreamApi, reads_all
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.jetstream.stretches import CHUNK_MESSAGES, StretchReader
from nats_scheduler.message.dialect import DIALECTS, Dialect
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_findings import schedules_unserved
from nats_scheduler.message.stream_rules import FLAG, check_update
from nats_scheduler.message.subjects import subject_matches
from nats_scheduler.observe.reporter import Reporter

MAX_LOOKED_AT = 2_000
"""Newest messages of a stream that are read in one look."""

LOOK_INTERVAL_SECONDS = 300.0
"""The time from a look at a stream in which something is stored to the next look at it."""

LOOK_DEADLINE_SECONDS = 10.0
"""Longest time for one look: a stream without a leader does not answer, and others wait."""


class Look(NamedTuple):
    """The result of the last look at a stream."""

    created: str
    through: int
    """The last sequence of the stream at that time."""
    at: float
    """The time of that look, by the event loop's clock."""
    subject: str | None
    """The subject of a schedule that nothing fires; None if none was found."""
    command: str
    """What to type so that it is fired."""


class UnservedStreams:
    """The streams of one account that hold schedules and are not served, over all connections."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._looks: dict[str, Look] = {}
        self._looked_at = ""

    @property
    def subjects(self) -> Mapping[str, str]:
        """The subject of one schedule in each of these streams, by the name of the stream."""
        return {name: look.subject for name, look in self._looks.items() if look.subject is not None}

    def notes(self) -> list[str]:
        """Return a sentence for each of these streams, with what to type: that of the finding."""
        found = (schedules_unserved(name, one, self._looks[name].command) for name, one in self.subjects.items())
        return [finding.sentence for finding in found]

    def is_looking_at(self, subject: str) -> bool:
        """Return whether a request on a subject belongs to a look, which may be denied without harm."""
        return bool(self._looked_at) and self._looked_at in subject.split(".")

    async def look(self, connection: Connection, api: JetStreamApi, states: Sequence[StreamState]) -> None:
        """Look at those streams of an account that are not served, as far as something may have changed there."""
        listed = {state.name: state for state in states}
        for name in self._looks.keys() - listed.keys():
            self._note(name, None)
        for name, state in listed.items():
            self._looked_at = name
            try:
                async with asyncio.timeout(LOOK_DEADLINE_SECONDS):
                    await self._look_at(connection, api, state)
            except (SchedulerError, TimeoutError):
                if connection.is_lost:
                    return
                self._note(name, self._seen(state, None))
            finally:
                self._looked_at = ""

    async def _look_at(self, connection: Connection, api: JetStreamApi, state: StreamState) -> None:
        known = self._looks.get(state.name)
        if known is not None and known.created != state.created:
            known = None
        after = 0
        if known is not None and known.subject is not None:
            last = await api.message(state.name, last_by_subj=known.subject)
            if last is not None and is_schedule(last.block, DIALECTS):
                return
        elif known is not None:
            is_early = asyncio.get_running_loop().time() - known.at < LOOK_INTERVAL_SECONDS
            if known.through >= state.last_sequence or is_early:
                return
            after = known.through
        found = await self._found(connection, api, state, max(after, state.last_sequence - MAX_LOOKED_AT))
        self._note(state.name, self._seen(state, found))

    async def _found(self, connection: Connection, api: JetStreamApi, state: StreamState, after: int) -> str | None:
        """Return the subject of the first schedule above a sequence."""
        if not reads_all(state.config):  # no consumer may be attached, and all messages are looked up one by one
            if state.last_sequence - state.first_sequence >= MAX_LOOKED_AT:
                return None
            after = 0
        searched = SearchedHeaders(DIALECTS)
        if state.last_sequence > after:
            reader = StretchReader(connection, api, state.config)
            await reader.read_all(searched.take, after, chunk=CHUNK_MESSAGES)
        return next(iter(searched.subjects), None)

    def _seen(self, state: StreamState, subject: str | None) -> Look:
        return Look(state.created, state.last_sequence, asyncio.get_running_loop().time(), subject, command_for(state))

    def _note(self, name: str, look: Look | None) -> None:
        before = self._looks.pop(name, None)
        if look is not None:
            self._looks[name] = look
        was, now = before and before.subject, look and look.subject
        if look is not None and now is not None and was is None:
            self._reporter.schedules_unserved(name, now, look.command)
        if was != now:
            self._reporter.streams_unserved(len(self.subjects))


class SearchedHeaders:
    """The subjects whose last message is a schedule that nothing fires, in the order in which they were stored."""

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        """Search headers of these dialects."""
        self._dialects = dialects
        self._found: dict[str, None] = {}

    @property
    def subjects(self) -> list[str]:
        """The subjects."""
        return list(self._found)

    def take(self, messages: Iterable[StoredMessage]) -> None:
        """Take the next messages of a stream, in order."""
        for message in messages:
            if is_schedule(message.block, self._dialects):
                self._found[message.subject] = None
            else:
                self._found.pop(message.subject, None)


def is_schedule(block: bytes, dialects: Sequence[Dialect]) -> bool:
    """Return whether a message has the header of a schedule in one of some dialects."""
    return bool(block) and any(block.find(one.schedule) >= 0 and header_value(block, one.schedule) for one in dialects)


def command_for(state: StreamState) -> str:
    """Return what to type so that the schedules of a stream without the flag are fired.

    Where the server's rules exclude the flag, only portable headers are left, and they need nothing of the stream but
    that what has fired can be removed.
    """
    name, config = state.name, {**state.config, FLAG: False}
    refusal = check_update(config, {**config, FLAG: True})
    if refusal is None:
        return f"nats-scheduler stream add FILE, where FILE is {name} with {FLAG}: true"
    if refusal.header == "discard":
        how = "with its schedules published again as X-Nats-Schedule"
        return f"nats-scheduler run --portable-streams {name}, {how}: {refusal}"
    return f"store its schedules in another stream: {refusal}"


def is_named(state: StreamState, patterns: Sequence[str]) -> bool:
    """Return whether the setting `adopt_streams` names a stream."""
    subjects = [str(one) for one in state.config.get("subjects") or ()] if patterns else []
    if any(one.startswith("$") for one in subjects):
        return state.name in patterns
    return any(
        fnmatchcase(state.name, pattern) or any(subject_matches(one, pattern) for one in subjects)
        for pattern in patterns
    )
