"""Have the engine of a stream continue from its rows at its first contact, if they are true of the stream.

The rules:

- Nothing is believed that does not fit: the stream has to have everything that the rows say, and the last message that
  was read has to be what it was, or the stream may have gone back. If that message is gone, nothing can show it.
- What is wrong with the rows, or cannot be found out within `STEP_LIMIT_SECONDS`, means that the stream is read from
  its beginning, as without them.
- After a start it is looked up once which schedules are not stored any more.

Cost: two requests, and one for each message that is to be read again.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.engine.inputs import MessagesRead
from nats_scheduler.engine.restart import RestartDocument
from nats_scheduler.jetstream.task_group import in_turn
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.continuity import reaches
from nats_scheduler.runtime.driver import StreamDriver
from nats_scheduler.runtime.schedule_file import StreamRows
from nats_scheduler.runtime.server_port import StreamContents

STEP_LIMIT_SECONDS = 1.0
"""Longest wait for one answer: *Live* leaves 3 s."""

MAX_REQUESTS_AT_ONCE = 64
"""Messages that are requested at a time."""

T = TypeVar("T")


class RestartReports(Protocol):
    """Reports how the engine of a stream begins; `observe.reporter`."""

    def stream_continued(self, stream: str, schedules: int, through: int) -> None:
        """Report that a stream is read from the sequence `through` on."""
        ...

    def stream_read_anew(self, stream: str, reason: str) -> None:
        """Report why the rows of a stream are not used."""
        ...


async def continue_from(
    rows: StreamRows, driver: StreamDriver, api: StreamContents, stream: str, reports: RestartReports | None
) -> bool:
    """Have the engine of a driver begin with its rows, if it has read nothing; returns whether it does."""
    engine, document = driver.engine, rows.document
    if engine.last_read:
        return False
    reason, rows.ignored = rows.ignored, ""
    if document is not None and not reason:
        rows.document = None
        try:
            fitting = await _fitting(rows, document, api, stream)
        except (SchedulerError, TimeoutError) as error:
            fitting = str(error) or "the stream does not answer"
        if isinstance(fitting, str):
            reason = fitting
        else:
            witness, messages = fitting
            engine.restart.begin_with(document, rows.kinds)
            driver.receive(MessagesRead(messages))
            driver.witness = witness
            driver.step_if_due()
            if reports is not None:
                reports.stream_continued(stream, len(engine.held), document.through)
            return True
        rows.give_up("")
    if reason and reports is not None:
        reports.stream_read_anew(stream, reason)
    return False


async def _fitting(
    rows: StreamRows, document: RestartDocument, api: StreamContents, stream: str
) -> tuple[StoredMessage, Sequence[StoredMessage]] | str:
    """Return the last message that was read, and those to be read again; or why the rows are not true of the stream."""
    state = await _soon(reaches(api, stream, rows.ends))
    if state is None or state.last_sequence < rows.ends:
        return f"the stream ends before sequence {rows.ends}"
    last = document.last
    witness = await _soon(api.message(stream, seq=last.sequence))
    if witness is None:
        return "the last message that was read is not stored any more: the stream may have gone back"
    if (witness.subject, witness.stored_at) != (last.subject, last.stored_at):
        return f"another message than before has sequence {last.sequence}: the stream went back"

    async def read(sequence: int) -> StoredMessage | None:
        return await _soon(api.message(stream, seq=sequence))

    found = await in_turn([partial(read, sequence) for sequence in document.to_read], MAX_REQUESTS_AT_ONCE)
    return witness, [message._replace(body=None) for message in found if message is not None]


async def _soon(answer: Awaitable[T]) -> T:
    async with asyncio.timeout(STEP_LIMIT_SECONDS):
        return await answer
