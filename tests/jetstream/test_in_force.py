"""A requested configuration is compared with the server's: only if it is in force may the sidecar update the stream."""

from typing import Any

import pytest

from nats_scheduler.jetstream.streams import METADATA_FLAG, is_in_force
from nats_scheduler.message.stream_rules import FLAG

KEPT: dict[str, Any] = {
    "name": "ORDERS",
    "subjects": ["orders.>"],
    "retention": "limits",
    "storage": "file",
    "discard": "old",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_age": 0,
    "num_replicas": 1,
    "duplicate_window": 120_000_000_000,
    "allow_direct": True,
    "allow_rollup_hdrs": True,
    "deny_delete": True,
    "deny_purge": False,
    "consumer_limits": {},
    "metadata": {"_nats.ver": "2.11.11", METADATA_FLAG: "true", "team": "shop"},
}
"""The configuration that a server of 2.11 returns for a stream that the sidecar adopted."""

ASKED: dict[str, Any] = {
    "name": "ORDERS",
    "subjects": ["orders.>"],
    "deny_delete": True,
    "metadata": {"team": "shop"},
    FLAG: True,
}
"""The shortest request that results in it."""


@pytest.mark.parametrize("closely", [True, False])
@pytest.mark.parametrize("asked", [ASKED, {**KEPT, FLAG: True}, {**ASKED, "allow_rollup_hdrs": False, "max_msgs": 0}])
def test_what_the_server_filled_in_and_what_we_added_does_not_count(asked: dict[str, Any], closely: bool) -> None:
    assert is_in_force(asked, KEPT, closely=closely, echoed=False)


@pytest.mark.parametrize("closely", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        {"subjects": ["orders.>", "more.>"]},
        {"description": "new"},
        {"storage": "memory"},
        {"retention": "interest"},
        {"max_age": 1},
        {"max_consumers": 3},
        {"deny_delete": False},
        {"mirror": {"name": "other"}},
        {"sources": [{"name": "other"}]},
        {"republish": {"src": ">", "dest": "again.>"}},
        {"metadata": {"team": "other"}},
        {"metadata": {}},
    ],
)
def test_a_difference_that_no_server_makes_by_itself_is_one(change: dict[str, Any], closely: bool) -> None:
    assert not is_in_force({**ASKED, **change}, KEPT, closely=closely, echoed=False)


def test_a_flag_of_a_newer_server_is_awaited_closely_and_then_taken_for_unknown() -> None:
    asked = {**ASKED, "allow_msg_ttl": True}
    assert not is_in_force(asked, KEPT, closely=True, echoed=False)
    assert is_in_force(asked, KEPT, closely=False, echoed=False)


def test_what_is_switched_off_is_awaited_closely_only_because_a_server_may_keep_it_on() -> None:
    asked = {**ASKED, "allow_direct": False}
    assert not is_in_force(asked, KEPT, closely=True, echoed=False)
    assert is_in_force(asked, KEPT, closely=False, echoed=False)


def test_where_the_server_keeps_the_flag_it_has_to_show() -> None:
    kept = {**KEPT, FLAG: False}
    assert not is_in_force(ASKED, kept, closely=False, echoed=True)
    assert is_in_force(ASKED, {**KEPT, FLAG: True}, closely=False, echoed=True)


def test_a_purge_that_is_denied_can_not_have_been_allowed_again() -> None:
    assert not is_in_force(ASKED, {**KEPT, "deny_purge": True}, closely=False, echoed=False)
    assert is_in_force({**ASKED, "deny_purge": True}, KEPT, closely=False, echoed=False), "servers imply false"
