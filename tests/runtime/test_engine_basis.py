"""A stream needs a new engine if and only if something changes that an engine cannot be notified of."""

from typing import Any

import pytest

from nats_scheduler.jetstream.capabilities import Capabilities
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.runtime.continuity import EngineBasis, basis_of
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.schedule.native import GUARD_LEVEL

CONFIG: dict[str, Any] = {"name": "ORDERS", "subjects": ["orders.>"], "retention": "limits", "num_replicas": 1}
CREATED = "2026-01-01T00:00:00Z"
V2_10, V2_11 = Capabilities("2.10.26", 0, 1 << 20), Capabilities("2.11.11", GUARD_LEVEL, 1 << 20)


def basis(
    mode: Mode = Mode.EMULATED, server: Capabilities = V2_11, created: str = CREATED, **config: Any
) -> EngineBasis:
    """Return what an engine is built for on a stream with this configuration."""
    return basis_of(StreamState.from_info({"config": {**CONFIG, **config}, "created": created}), mode, server)


@pytest.mark.parametrize("changed", [{"description": "new"}, {"max_age": 10**18}, {"max_msgs": 7}, {"max_bytes": 7}])
def test_what_an_engine_can_be_notified_of_needs_no_new_engine(changed: dict[str, Any]) -> None:
    assert basis(**changed) == basis()


@pytest.mark.parametrize(
    "changed",
    [
        {"retention": "workqueue"},
        {"retention": "interest"},
        {"num_replicas": 3},
        {"max_consumers": 1},
        {"subjects": ["orders.>", "bills.>"]},
        {"allow_msg_ttl": True},
        {"no_ack": True, "retention": "workqueue"},
    ],
)
def test_what_an_engine_is_built_for_needs_a_new_engine(changed: dict[str, Any]) -> None:
    assert basis(**changed) != basis()


def test_another_mode_server_or_creation_needs_a_new_engine() -> None:
    assert basis(Mode.PORTABLE) != basis()
    assert basis(server=V2_10) != basis()
    assert basis(created="2026-01-02T00:00:00Z") != basis()


def test_a_stream_that_acknowledges_nothing_is_silent_only_if_its_fires_cannot_be_read_back() -> None:
    assert not basis(no_ack=True).is_silent
    assert basis(no_ack=True, retention="workqueue").is_silent
    assert not basis(retention="workqueue").is_silent


def test_expired_messages_are_removed_by_us_only_where_the_server_does_not() -> None:
    assert [basis(server=server, allow_msg_ttl=True).removes_expired for server in (V2_10, V2_11)] == [True, False]
    assert not basis(server=V2_10).removes_expired
    assert basis(server=V2_10, allow_msg_ttl=True, retention="workqueue").has_buried
    assert not basis(server=V2_10, allow_msg_ttl=True).has_buried
