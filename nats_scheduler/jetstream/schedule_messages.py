"""Publish, replace and delete the schedule messages of one stream, only if nothing else changed them meanwhile.

Rule: the server decides. A publish names the sequence that it replaces, and the server stores it only if that is still
the last message on the subject. A delete names a sequence too, and no version that was stored later is touched. So an
edit of another client is never lost; it is reported as `Changed`.
What follows from an outcome is decided by the caller. An outcome that nobody knows is `Unknown`, and no exception.

The servers differ in what is left behind: up to 2.11 the older versions of a schedule stay stored under it, and one of
them would be the schedule again if only the newest was deleted. So a delete is a purge of the subject up to the
sequence; where the stream denies purges, each version is deleted, the oldest first.

Cost: a publish is one request; a delete three, and two more for each version where purges are denied.
Limit: on a stream with `no_ack` no publish is answered, so each is `Unknown`. If a stream is created anew between the
look and the delete, a message with the same sequence would be deleted.
"""

import asyncio
from dataclasses import dataclass

from nats_scheduler.engine.inputs import NOT_PERMITTED, Refused, Stored, Unknown
from nats_scheduler.jetstream.api import Config, JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.errors import (
    ApiError,
    ConnectionLostError,
    LeaderBehindError,
    NoAnswerError,
    NoJetStreamError,
    NotPermittedError,
    UnreadableAnswerError,
)
from nats_scheduler.jetstream.foreign_json import is_expressible
from nats_scheduler.jetstream.publish import outcome_of
from nats_scheduler.message.generated import EXPECTED_SEQUENCE, NOT_AVAILABLE, UNDECIDED, WRONG_LAST_SEQUENCE
from nats_scheduler.message.headers import with_effective_headers, without_headers
from nats_scheduler.message.subjects import is_literal_subject

EXPECTED_STREAM = b"Nats-Expected-Stream"
EXPECTED_PREFIX = b"Nats-Expected-"

CONDITION_HIDDEN = Refused(
    400, 400, "header names in the values of the message would hide its conditions from the server"
)

UNDECIDED_WAITS_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Waits while the server cannot say what the last message on the subject is."""

_UNANSWERED = (NoAnswerError, ConnectionLostError, UnreadableAnswerError, LeaderBehindError)


@dataclass(frozen=True, slots=True)
class Changed:
    """Something else was stored or deleted on the subject meanwhile: nothing was done."""

    sequence: int | None = None
    """The last message there now, 0 if there is none, None if that was not looked up."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """The schedule is not stored any more, and no other message is the last one in its place."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Nothing is stored on the subject: another client deleted the schedule, or it has ended."""


Published = Stored | Changed | Refused | Unknown
Removed = Deleted | Changed | Missing | Refused | Unknown


class ScheduleMessages:
    """The schedule messages of one stream, as the edits of one client see them."""

    def __init__(self, connection: Connection, api: JetStreamApi, config: Config) -> None:
        """Edit the stream with this configuration."""
        self._connection = connection
        self._api = api
        self._stream = str(config["name"])
        self._denies_purge = config.get("deny_purge") is True
        self._denies_delete = config.get("deny_delete") is True

    async def publish(self, subject: str, block: bytes, body: bytes, *, expected: int | None) -> Published:
        """Store a schedule in place of the message with the sequence `expected`: 0 for none, None for any.

        Conditions of an earlier publish are removed from the block.
        `Stored` with `duplicate` means that the server knows the `Nats-Msg-Id` of the block and has stored nothing.
        Raises `UnsendableError` if the message is too large.
        """
        conditions = [(EXPECTED_STREAM, self._stream.encode("utf-8", "surrogateescape"))]
        if expected is not None:
            conditions.append((EXPECTED_SEQUENCE, b"%d" % expected))
        bare = without_headers(block, prefixes=(EXPECTED_PREFIX,))
        conditioned = with_effective_headers(bare, conditions)
        return CONDITION_HIDDEN if conditioned is None else await self.publish_as_it_is(subject, conditioned, body)

    async def publish_as_it_is(self, subject: str, block: bytes, body: bytes) -> Published:
        """Store a message with the conditions that its block contains, such as the guard of a fire."""
        for wait in (*UNDECIDED_WAITS_SECONDS, 0):
            try:
                reply = await self._connection.request(subject, body, block)
            except NotPermittedError as error:
                return Refused(NOT_PERMITTED, NOT_PERMITTED, str(error))
            except NoJetStreamError as error:
                return Unknown(str(error), may_be_stored=False)
            except _UNANSWERED as error:
                return Unknown(str(error))
            outcome = outcome_of(self._stream, reply.block, reply.body)
            if not isinstance(outcome, Refused) or outcome.code not in UNDECIDED:
                break
            await asyncio.sleep(wait)
        if isinstance(outcome, Refused) and outcome.code in UNDECIDED | NOT_AVAILABLE:
            reason = f"{outcome.description} (server code {outcome.code})"
            return Unknown(reason, may_be_stored=outcome.code in NOT_AVAILABLE)
        if isinstance(outcome, Refused) and outcome.code in WRONG_LAST_SEQUENCE:
            return Changed()
        return outcome or Unknown(f"{subject}: the answer is not one of stream {self._stream}")

    async def delete(self, subject: str, sequence: int, stored_at: int, *, last: int | None = None) -> Removed:
        """Delete the schedule with a sequence, stored at an instant (ns), and its older versions.

        `last` is the sequence of the last message on the subject where something landed on the schedule and leaves it
        alive; that message stays.
        Raises `JetStreamError` if the server cannot be asked.
        """
        assert is_literal_subject(subject), f"{subject!r}: a purge would delete all subjects that it matches"
        try:
            message = await self._api.message(self._stream, seq=sequence)
            if message is None:
                await self._expect_leader_at(sequence)
            is_there = message is not None and (message.subject, message.stored_at) == (subject, stored_at)
            if is_there:
                await self.delete_versions(subject, sequence)
            now_last = await self._last_on(subject)
        except NotPermittedError as error:
            return Refused(NOT_PERMITTED, NOT_PERMITTED, str(error))
        except ApiError as error:
            if error.code in NOT_AVAILABLE:  # what was asked for before it may be done
                return Unknown(str(error))
            return Refused(error.status, error.code, error.description)
        except _UNANSWERED as error:
            return Unknown(str(error))
        if now_last > max(sequence, last or 0) or (now_last and not is_there):
            return Changed(now_last)
        return Deleted() if is_there else Missing()

    async def delete_versions(self, subject: str, through: int) -> None:
        """Delete what is stored on a subject up to a sequence; raises `JetStreamError` if the server refuses."""
        if not is_expressible(subject):  # JSON cannot name it, so one message is deleted by its sequence
            await self._api.delete_message(self._stream, through)
        elif not self._denies_purge:
            await purge_through(self._api, self._stream, subject, through)
        else:
            await self._delete_each(subject, through)

    async def delete_one(self, subject: str, sequence: int) -> None:
        """Delete one message; where that is denied, with what lies under it on its subject.

        Raises `JetStreamError` if the server refuses.
        """
        if self._denies_delete:
            await purge_through(self._api, self._stream, subject, sequence)
        else:
            await self._api.delete_message(self._stream, sequence)

    async def _delete_each(self, subject: str, through: int) -> None:
        """Delete each version up to a sequence, the oldest first, so that none becomes the schedule again."""
        sequence = 0
        while True:
            message = await self._api.message(self._stream, seq=sequence + 1, next_by_subj=subject)
            if message is None or message.sequence > through:
                return
            sequence = message.sequence
            await self._api.delete_message(self._stream, sequence)

    async def _last_on(self, subject: str) -> int:
        """Return the sequence of the last message on a subject, 0 if there is none or it cannot be asked for."""
        if not is_expressible(subject):
            return 0
        message = await self._api.message(self._stream, last_by_subj=subject)
        return 0 if message is None else message.sequence

    async def _expect_leader_at(self, sequence: int) -> None:
        """Raise `LeaderBehindError` if the leader may not have applied a sequence yet: then "none" proves nothing."""
        info = await self._api.stream(self._stream)
        last = 0 if info is None else int(info["state"]["last_seq"])
        if last < sequence:
            raise LeaderBehindError(f"the leader of stream {self._stream} is at {last}, before sequence {sequence}")


async def purge_through(api: JetStreamApi, stream: str, subject: str, through: int) -> None:
    """Purge a subject up to a sequence; the server purges the messages below `seq`."""
    await api.call(f"STREAM.PURGE.{stream}", {"filter": subject, "seq": through + 1})
