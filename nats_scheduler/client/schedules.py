"""The schedules of one stream, for programs that have a nats-py connection.

The rule: each method is one operation of `nats_scheduler.control`, the same that the command line and the micro service
offer, so each change is made only if nothing else was stored meanwhile, and no edit of another client is lost.
How the stream is served is found out again for each operation, so a program need not be restarted when a server is
upgraded or a sidecar is started.

Every method raises these errors, beside those that it names:

- `StreamNotFoundError`, and `NotServedError` if nothing would fire a schedule on the stream.
- `NoAnswerError` if the server does not answer: nothing was changed. `UnknownOutcomeError` if nothing shows whether it
  was: doing it again is safe.
- `ForbiddenError` if the user lacks a permission, `RefusedError` with the server's code if it refuses.

Cost: two requests for each read of a schedule, four for each change, six for an edit.
"""

import warnings
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import datetime
from typing import Literal, Self, Unpack

from nats.aio.client import Client

from nats_scheduler.client.cancelling import Cancelled, publish_and_cancel
from nats_scheduler.client.client_wire import wire_of
from nats_scheduler.client.edit_spelling import Wish, edit_of
from nats_scheduler.client.files import Applied, Exported, apply_plan, export_text, planned
from nats_scheduler.client.jetstream_requests import JetStreamRequests
from nats_scheduler.client.policy_arguments import PolicyArguments
from nats_scheduler.client.schedule_block import Headers, Wanted, spelled
from nats_scheduler.client.serving import DEFAULT_BUCKET, Serving, Servings
from nats_scheduler.client.times import instant_of
from nats_scheduler.client.values import Change, Elsewhere, Fire, Schedule, change_of, fire_of, schedule_of
from nats_scheduler.client.when import When
from nats_scheduler.control.changes import Author, Kind
from nats_scheduler.control.edits import add, edit_latest, remove
from nats_scheduler.control.errors import AlreadyExistsError, NotServedError, ReplacesUnfiredWarning
from nats_scheduler.control.fire_requests import DEFAULT_BACKFILL, backfill, fire
from nats_scheduler.control.pausing import pause, resume
from nats_scheduler.control.plan import Plan
from nats_scheduler.control.requests import DEFAULT_PREFIX
from nats_scheduler.control.standing import opened
from nats_scheduler.control.store import ScheduleStore, stored_schedules
from nats_scheduler.message.schedule_form import FormArguments


class Schedules:
    """The schedules of one stream; make it with `await Schedules.on(nc, "ORDERS")`."""

    def __init__(self, store: ScheduleStore, servings: Servings, stream: str, author: str) -> None:
        """Use `on`."""
        self._store = store
        self._servings = servings
        self._stream = stream
        self._author = author

    @classmethod
    async def on(
        cls,
        connection: Client,
        stream: str,
        *,
        author: str = "",
        api_prefix: str = DEFAULT_PREFIX,
        bucket: str = DEFAULT_BUCKET,
    ) -> Self:
        """Return the schedules of a stream; raises `StreamNotFoundError`, or `NotServedError` if nothing fires there.

        `author` is recorded with each change, up to 256 characters. `api_prefix` is that of a JetStream domain, such as
        `$JS.hub.API`. `bucket` is the `registry_bucket` of the sidecars, if it is another one than theirs by default.
        """
        wire = wire_of(connection)
        requests = JetStreamRequests(wire, api_prefix)
        servings = Servings(wire, requests, bucket, api_prefix)
        schedules = cls(ScheduleStore(requests, servings), servings, stream, author)
        await schedules.serving()
        return schedules

    @property
    def stream(self) -> str:
        """The name of the stream."""
        return self._stream

    async def serving(self) -> Serving:
        """Return how the stream is served at the moment: by the server, by a sidecar, or by both."""
        return await self._servings.of(self._stream)

    # -- store ----------------------------------------------------------------------------------------------------

    async def create(
        self,
        subject: str,
        when: When,
        body: bytes = b"",
        *,
        target: str | Elsewhere,
        headers: Headers = (),
        reason: str = "",
        **given: Unpack[FormArguments],
    ) -> Change:
        """Store a schedule on a subject of the stream where there is none.

        Each fire is a message on `target`, with `body` and `headers`, or with those of the last message on `source`.
        `ttl` (a second or more, or `"never"`) is the TTL of each fire; with `rollup` a fire replaces the earlier ones
        (`FormArguments`).
        A schedule whose last fire is stored counts as absent, although a sidecar removes it a moment later: a worker
        that is given a fire may create the next schedule on the same subject.
        Raises `AlreadyExistsError` if the subject has a schedule, with its time if that is still to fire once;
        `RejectedError` or `InvalidScheduleError` for what would never fire, with the server's code.
        """
        wanted = Wanted(when, target, given, headers)
        change = await self._add(subject, wanted, body, reason, is_replacing=False)
        if change.kind is Kind.UNCHANGED:
            raise AlreadyExistsError(f"{subject}: the same schedule is stored there already", change.sequence)
        return change

    async def upsert(
        self,
        subject: str,
        when: When,
        body: bytes = b"",
        *,
        target: str | Elsewhere,
        headers: Headers = (),
        reason: str = "",
        **given: Unpack[FormArguments],
    ) -> Change:
        """Store a schedule on a subject, in place of what is there; the parameters are those of `create`.

        If the same schedule is there already, nothing is stored and the change is `UNCHANGED`, so an interval keeps its
        phase and any number of replicas may do this when they start. One with `after` is never the same.
        Raises `ConflictError` if another client stores something else at the same moment.
        If a schedule that fires once is there, has not fired and has another body, a `ReplacesUnfiredWarning` is given
        before it is replaced; where warnings are errors, nothing is stored.
        """
        wanted = Wanted(when, target, given, headers)
        return await self._add(subject, wanted, body, reason, is_replacing=True)

    # -- change ---------------------------------------------------------------------------------------------------

    async def edit(
        self,
        subject: str,
        *,
        when: When | None = None,
        body: bytes | None = None,
        target: str | Elsewhere | None = None,
        headers: Headers = (),
        policies: PolicyArguments | None = None,
        unset: Collection[str] = (),
        expected: int | None = None,
        dry_run: bool = False,
        reason: str = "",
        **given: Unpack[FormArguments],
    ) -> Change:
        """Change what is named of the schedule on a subject, paused or not; all else stays.

        `when` takes the place of the pattern, its time zone and its syntax; of the policies it changes those that it
        has. `policies` are those of `When.policies`, as a dict: None removes one. `headers` replaces or adds headers.
        `unset` removes `"source"`, `"ttl"`, `"tz"`, `"rollup"`, a policy such as `"X-Jitter"`, or a header of this
        name. The fire times stay unless the pattern is changed.
        If another client changes the schedule at the same time, the edit is made to what that client stored; with
        `expected`, its sequence, it raises `ConflictError`. The change is `UNCHANGED` if everything is like that.
        With `dry_run` nothing is stored, and the change is the one that would be made.
        Raises `NotFoundError`, `RejectedError` if it would never fire then, and `NotPossibleError` if the server fires
        it and would ignore what is set: its spelling is not changed. Then use `upsert`.
        """
        wish = Wish(when, body, target, given, headers, policies or {}, unset)
        wish.check()
        change = await edit_latest(
            self._store,
            self._stream,
            subject,
            lambda found: edit_of(wish, found, self._store.now()),
            author=self._by(reason),
            expected=expected,
            dry_run=dry_run,
        )
        return change_of(change)

    # -- read -----------------------------------------------------------------------------------------------------

    async def get(self, subject: str) -> Schedule:
        """Return the schedule on a subject, active or paused, valid or rejected; raises `NotFoundError`."""
        _served, found = await opened(self._store, self._stream, subject)
        return schedule_of(self._stream, found)

    async def list(self, subjects: str = ">") -> AsyncIterator[Schedule]:
        """Yield the schedules on subjects that match, in no order; `subjects` may contain wildcards.

        Cost: a request for each subject that matches and has messages, whatever these are: name the subjects of the
        schedules (`orders.schedules.>`) if the stream has many others.
        """
        served = await self._store.served(self._stream)
        async for found in stored_schedules(self._store, served, subjects):
            yield schedule_of(self._stream, found)

    async def history(self, subject: str, *, limit: int = 100) -> Sequence[Fire]:
        """Return the newest fires of the schedule on a subject that are stored, newest first, at most `limit`.

        The schedule itself may be gone; then all messages of the stream are read. Fires that were consumed or
        that expired are not found.
        Cost: a request for each message on the target that is read.
        """
        if limit < 1:
            raise ValueError(f"limit of {limit}: expected 1 or more fires")
        found = await self._store.newest_fires(self._stream, subject, limit)
        return [fire_of(one) for one in found]

    # -- end ------------------------------------------------------------------------------------------------------

    async def cancel(self, subject: str, *, expected: int | None = None, reason: str = "") -> Change:
        """Remove the schedule on a subject; `expected` is its sequence, if only that version is to be removed.

        Raises `NotFoundError`, also if its last fire is stored by then, and `ConflictError` for another version.
        """
        author = self._by(reason)
        return change_of(await remove(self._store, self._stream, subject, author=author, expected=expected))

    async def publish_and_cancel(
        self,
        schedule: str,
        subject: str,
        body: bytes = b"",
        *,
        headers: Headers = (),
        expected: int | None = None,
        reason: str = "",
    ) -> Cancelled:
        """Store a message on a subject of the stream and end a schedule with it: both happen, or neither.

        If the server fires the schedule, it purges it in the same step. Otherwise the sidecar ends it when it has read
        the message, which takes milliseconds, and a fire that is due in between may still be stored.
        Raises `NotFoundError` if there is no such schedule, and `ConflictError` if it fired or was changed meanwhile;
        on a server of 2.10, which cannot check that, the message is stored all the same.
        """
        author = self._by(reason)
        return await publish_and_cancel(
            self._store, self._stream, schedule, subject, body, headers, expected=expected, author=author
        )

    # -- switch and fire -----------------------------------------------------------------------------------------

    async def pause(self, subject: str, *, expected: int | None = None, reason: str = "") -> Change:
        """Pause the schedule on a subject: nothing fires it until it is resumed, and it survives everything.

        Raises `NotFoundError`, and `NotPossibleError` if it is paused already.
        """
        author = self._by(reason)
        return change_of(await pause(self._store, self._stream, subject, author=author, expected=expected))

    async def resume(
        self, subject: str, *, drop: bool = False, expected: int | None = None, reason: str = ""
    ) -> Change:
        """Resume the schedule on a subject; what was missed while it was paused is skipped.

        One that fires once, and whose time has passed, fires at once, or is removed with `drop`.
        Raises `NotFoundError`, and `NotPossibleError` if it is not paused.
        """
        author = self._by(reason)
        return change_of(await resume(self._store, self._stream, subject, drop=drop, author=author, expected=expected))

    async def fire(
        self, subject: str, *, at: datetime | None = None, expected: int | None = None, reason: str = ""
    ) -> Change:
        """Store one fire of the schedule now, paused or not, beside its own: its fire times stay as they are.

        Its fire time is the current time. A program that may repeat the call gives it as `at`, not in the future: then
        it is stored once, and the change is `UNCHANGED` the second time.
        Raises `NotFoundError`, and `RejectedError` for a schedule that never fires.
        """
        fire_time = None if at is None else instant_of(at, "at")
        author = self._by(reason)
        return change_of(await fire(self._store, self._stream, subject, at=fire_time, author=author, expected=expected))

    async def backfill(
        self,
        subject: str,
        since: datetime,
        until: datetime,
        *,
        limit: int = DEFAULT_BACKFILL,
        expected: int | None = None,
        dry_run: bool = False,
        reason: str = "",
    ) -> Change:
        """Store the past fires of the schedule from `since` to `until` that are missing, oldest first.

        The change names their fire times; it is `UNCHANGED` if none is missing. With `dry_run` nothing is stored.
        Raises `NotPossibleError` if more than `limit` (1 to 1,000) are missing, and `ValueError` for a time without a
        zone.
        """
        first, last = instant_of(since, "since"), instant_of(until, "until")
        author = self._by(reason)
        return change_of(
            await backfill(
                self._store,
                self._stream,
                subject,
                first,
                last,
                limit=limit,
                author=author,
                expected=expected,
                dry_run=dry_run,
            )
        )

    # -- files ----------------------------------------------------------------------------------------------------

    async def export(
        self, subjects: str = ">", *, owner: str | None = None, form: Literal["yaml", "json"] = "yaml"
    ) -> Exported:
        """Return the schedules on subjects that match as the text of a file; what no file can have is left out.

        With an `owner`, only those with this label. The same schedules give the same text, and applying it to an empty
        stream gives the same messages, but for the blanks before values of headers.
        """
        return await export_text(self._store, self._stream, subjects, owner, form)

    async def diff(self, text: str, *, owner: str | None = None, prune: bool = False, take_over: bool = False) -> Plan:
        """Return what `apply` would do with the text of a file, with the same parameters."""
        _served, diff = await planned(self._store, self._stream, text, owner, prune=prune, takes_over=take_over)
        return diff

    async def apply(
        self,
        text: str,
        *,
        owner: str | None = None,
        prune: bool = False,
        take_over: bool = False,
        dry_run: bool = False,
        reason: str = "",
    ) -> Applied:
        """Make the schedules of the stream those of the text of a file; nothing is done the second time.

        `owner` is the label of all schedules in the text. With `prune`, those with this label that are not in the text
        are removed; with `take_over`, those with the label of another owner are changed too.
        With `dry_run` nothing is changed.
        Raises `InvalidFileError`, with all problems, before anything is changed; `PartlyAppliedError` if some schedules
        could not be changed, after the others were; `ValueError` for `prune` without an owner.
        """
        served, diff = await planned(self._store, self._stream, text, owner, prune=prune, takes_over=take_over)
        if dry_run:
            return Applied(diff, ())
        return await apply_plan(self._store, served, diff, self._by(reason))

    # -- how it is done -------------------------------------------------------------------------------------------

    async def _add(self, subject: str, wanted: Wanted, body: bytes, reason: str, *, is_replacing: bool) -> Change:
        block = await self._spelled(wanted)
        author = self._by(reason)
        change = await add(
            self._store, self._stream, subject, block, body, replace=is_replacing, author=author, warn=_warn
        )
        return change_of(change)

    async def _spelled(self, wanted: Wanted) -> bytes:
        try:
            return spelled(wanted, await self.serving(), self._store.now())
        except NotServedError:  # a sidecar may have been started since it was asked
            serving = await self._servings.of(self._stream, is_anew=True)
            return spelled(wanted, serving, self._store.now())

    def _by(self, reason: str) -> Author:
        return Author(self._author, reason)


def _warn(loss: str) -> None:
    """Warn of a loss where the program called `upsert`, which is four calls from here."""
    warnings.warn(ReplacesUnfiredWarning(loss), stacklevel=5)
