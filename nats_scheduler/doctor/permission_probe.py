"""Find out which permissions the user has, without doing anything.

Where the server lists the permissions of the user (`$SYS.REQ.USER.INFO`, which a restricted user may request only
if that is allowed), the list is judged. Otherwise each request of the sidecar is sent in a form that the server
cannot carry out, and the server denies it or not:

- what only reads is sent as it is;
- to create, update or delete is asked with a body that is not JSON, which every version refuses with 10025, or
  10038 if a stream is to be deleted;
- a purge never names a stream of the user: from 2.11 on a server takes a body that is not JSON for none, and purges
  the whole stream (`test_a_purge_with_an_unreadable_body_is_why_none_is_sent`). It is sent for a stream that does
  not exist, and if that is denied for a key of the sidecar's bucket that does not exist;
- a write to the bucket demands to be stored by a stream of another name;
- a subscription is made, and ended a moment later.

The rule: on the targets of schedules nothing is published, since their subscribers would receive it. Without the
list these stay unclear.
"""

import asyncio
from collections.abc import Sequence

from nats_scheduler.control.errors import ForbiddenError, SchedulerError
from nats_scheduler.doctor.facts import Need
from nats_scheduler.doctor.permissions import PermissionPlace
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.denials import Denial
from nats_scheduler.jetstream.own_permissions import OwnPermissions
from nats_scheduler.message.headers import with_headers
from nats_scheduler.message.user_permissions import PUBLISH, SUBSCRIBE, permits

NOT_JSON = b"{?"
"""A body that no server can read; it begins like an object, because some take anything else for no body."""

ABSENT_STREAM = "nats-scheduler-doctor"
"""A stream that does not exist."""

PROBE_DEADLINE_SECONDS = 2.0
"""Longest wait for one answer."""

UNREADABLE_REQUESTS = (
    "STREAM.CREATE.",
    "STREAM.UPDATE.",
    "STREAM.DELETE.",
    "STREAM.MSG.DELETE.",
    "CONSUMER.CREATE.",
)


async def read_permissions(
    connection: Connection, api: JetStreamApi, place: PermissionPlace, needs: Sequence[Need]
) -> tuple[list[Need], list[Need]]:
    """Return what is missing of the needs, and what stays unclear."""
    listed = await connection.one(OwnPermissions).listed()
    if listed is not None:
        return [need for need in needs if not permits(listed, need.act, need.subject)], []
    probe = _Probe(connection, api, place)
    denied = await probe.subscriptions([need.subject for need in needs if need.act == SUBSCRIBE])
    published = [need for need in needs if need.act == PUBLISH]
    answers = await asyncio.gather(*(probe.publish(need.subject) for need in published))
    missing = [need for need, answer in zip(published, answers, strict=True) if answer is False]
    unclear = [need for need, answer in zip(published, answers, strict=True) if answer is None]
    return [*missing, *(need for need in needs if need.act == SUBSCRIBE and need.subject in denied)], unclear


class _Probe:
    def __init__(self, connection: Connection, api: JetStreamApi, place: PermissionPlace) -> None:
        self._connection = connection
        self._api = api
        self._place = place

    async def subscriptions(self, subjects: Sequence[str]) -> set[str]:
        """Return the subjects that may not be subscribed to."""
        denied: set[str] = set()

        def note(denial: Denial) -> None:
            if not denial.publishes:
                denied.add(denial.subject)

        end = self._connection.when_denied(note)
        # The inbox is in use already: an answer on it shows that it is permitted.
        numbers = [
            self._connection.subscribe(subject, _ignore)
            for subject in subjects
            if not subject.startswith(f"{self._place.inbox}.")
        ]
        try:
            await self._api.info()  # the server answers in order, so all denials have arrived by then
        finally:
            end()
            for number in numbers:
                self._connection.unsubscribe(number)
        return denied

    async def publish(self, subject: str) -> bool | None:
        """Return whether a subject may be published to; None if that is not tried."""
        place = self._place
        if subject.startswith(f"{place.registry}."):
            # With this header no stream stores the message: the bucket has another name.
            block = with_headers(b"", [(b"Nats-Expected-Stream", ABSENT_STREAM.encode())])
            return await self._is_permitted(f"{place.registry}.doctor", b"", block)
        request = subject.removeprefix(f"{place.api_prefix}.")
        if request == subject:
            return None
        if request.startswith("STREAM.PURGE."):
            return await self._may_purge(request)
        if request.startswith(UNREADABLE_REQUESTS):
            return await self._is_permitted(subject, NOT_JSON)
        if request.startswith("STREAM.MSG.GET."):
            return await self._is_permitted(subject, b'{"last_by_subj": "nats_scheduler.doctor"}')
        return await self._is_permitted(subject)

    async def _may_purge(self, request: str) -> bool | None:
        """Return whether streams may be purged; None if that may depend on the name of the stream."""
        place = self._place
        if await self._is_permitted(f"{place.api_prefix}.STREAM.PURGE.{ABSENT_STREAM}"):
            return True
        of_bucket = f"STREAM.PURGE.KV_{place.bucket}"
        body = b'{"filter": "%b.doctor", "seq": 1}' % f"$KV.{place.bucket}".encode()
        is_permitted = await self._is_permitted(f"{place.api_prefix}.{of_bucket}", body)
        return is_permitted if request == of_bucket or not is_permitted else None

    async def _is_permitted(self, subject: str, body: bytes = b"", block: bytes = b"") -> bool | None:
        try:
            await self._connection.request(subject, body, block, PROBE_DEADLINE_SECONDS)
        except ForbiddenError:
            return False
        except SchedulerError:
            pass  # it was permitted: the server refused it, or nothing subscribes to the subject
        return True


def _ignore(_subject: bytes, _reply: bytes, _block: bytes, _body: bytes) -> None:
    """Ignore what arrives while a subscription is tried."""
