"""A stream is followed with bodies where only they show what is lost, and until they cost much."""

from typing import Any

import pytest

from nats_scheduler.jetstream.followed_bodies import MAX_BODIES_PER_SECOND, FollowedBodies

REPLACED = {"max_msgs_per_subject": 1}


def bodies_of(config: dict[str, Any], *, are_wanted: bool | None = None) -> FollowedBodies:
    return FollowedBodies(config, are_wanted=are_wanted)


@pytest.mark.parametrize(
    ("config", "are_wanted", "expected"),
    [
        ({}, None, False),
        (REPLACED, None, True),
        ({"allow_msg_schedules": True}, None, True),
        ({**REPLACED, "metadata": {"nats-scheduler.debounce": "true"}}, None, False),
        (REPLACED, False, False),
        ({}, True, True),
    ],
)
def test_bodies_come_where_a_replaced_message_is_gone(
    config: dict[str, Any], are_wanted: bool | None, expected: bool
) -> None:
    bodies = bodies_of(config, are_wanted=are_wanted)
    assert bodies.are_delivered is (are_wanted is True)
    assert bodies.begin() is (expected and are_wanted is None)
    assert bodies.are_delivered is expected
    assert not bodies.begin(), "it is not new a second time"


@pytest.mark.parametrize(("seconds", "ends"), [(0.9, True), (1.1, False)])
def test_they_end_if_very_many_come_within_a_second(seconds: float, ends: bool) -> None:
    bodies = bodies_of(REPLACED)
    bodies.begin()
    for _ in range(MAX_BODIES_PER_SECOND):
        assert not bodies.end_if_costly(b"", now=0.0), "the first ones have nothing before them"
    found = [bodies.end_if_costly(b"", now=seconds) for _ in range(MAX_BODIES_PER_SECOND)]
    assert found == [False] * (MAX_BODIES_PER_SECOND - 1) + [ends]
