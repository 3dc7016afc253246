"""The micro service `nats-scheduler` on one connection.

The rule: reading only. What changes something will have subjects of its own, so that permissions can tell them apart.
"""

from collections.abc import Callable

from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.service.endpoint import Asked
from nats_scheduler.service.endpoints import ENDPOINTS
from nats_scheduler.service.micro import Identity, MicroService, Places, Served
from nats_scheduler.service.port import Deployment
from nats_scheduler.service.turns import Turns
from nats_scheduler.version import VERSION

SERVICE_NAME = "nats-scheduler"

MAX_REQUESTS = 32
"""Requests in work at once."""

DESCRIPTION = "message schedules (ADR-51) for streams of this account"


async def serve(
    connection: Connection,
    api: JetStreamApi,
    deployment: Deployment,
    turns: Turns,
    defect: Callable[[Exception], None],
) -> None:
    """Answer requests on a connection until cancelled; `defect` takes errors of the service itself."""
    asked = Asked(deployment, connection, api, turns)
    identity = Identity(SERVICE_NAME, deployment.instance, VERSION, DESCRIPTION)
    places = Places(MAX_REQUESTS)
    served = [
        Served(
            one.name.replace(".", "-"),
            one.subject,
            places,
            one.answering(asked, one.handle),
            None if one.handle_alone is None else one.answering(asked, one.handle_alone),
        )
        for one in ENDPOINTS
    ]
    await MicroService(connection, identity, served, deployment.now, defect).serve()
