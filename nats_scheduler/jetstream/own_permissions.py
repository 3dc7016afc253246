"""The permissions of the user of a connection, as its server lists them, so that it is known before what is refused.

Rule: what is not known is nothing: a restricted user may ask only if it may publish to `$SYS.REQ.USER.INFO`.
Cost: one request for all who ask within `KEPT_SECONDS`, or `NOT_LISTED_SECONDS` if the server does not answer it.
Limit: beside a leaf node or with an imported API, what another server or account forbids is not in the list.
"""

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.single_flight import SingleFlight
from nats_scheduler.jetstream.system_requests import own_answer
from nats_scheduler.message.foreign_json import Object, inner

USER_INFO = "$SYS.REQ.USER.INFO"

KEPT_SECONDS = 1.0
"""The time for which a list is used again: servers change permissions while a connection stays."""

NOT_LISTED_SECONDS = 60.0
"""The time after which it is asked again whether the user may ask; each time the server writes a line into its log."""


class OwnPermissions:
    """The permissions of the user of one connection (`Connection.one`)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._asked = SingleFlight[Object | None]()

    async def listed(self) -> Object | None:
        """Return the permissions as the server lists them, empty for a user without restrictions; None if it does not.

        Beside a leaf node the other server answers too, with what the leaf node's user may.
        """
        return await self._asked.get(self._ask)

    async def _ask(self) -> tuple[Object | None, float]:
        try:
            data = await own_answer(self._connection, USER_INFO)
        except SchedulerError:
            return None, NOT_LISTED_SECONDS
        return (inner(data.get("permissions")), KEPT_SECONDS) if data else (None, NOT_LISTED_SECONDS)
