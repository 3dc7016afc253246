"""Repeated updates: those of another client that one of ours may have undone."""

from nats_scheduler.jetstream.request_watch import ConfigRequested
from nats_scheduler.runtime.last_requests import MAX_REQUEST_OVERLAP_SECONDS, LastRequests


class Watch:
    """Time as a test sets it, in seconds."""

    def __init__(self) -> None:
        self.now = 100.0
        self.requests = LastRequests(lambda: self.now)

    def seen(self, stream: str = "ORDERS", **config: object) -> ConfigRequested:
        """See a request of another client."""
        request = ConfigRequested(stream, {"name": stream, **config}, creates=False)
        self.requests.seen(request)
        return request


def test_the_last_request_during_our_update_is_repeated_once() -> None:
    watch = Watch()
    first, last, other = watch.seen(), watch.seen(), watch.seen("EVENTS")
    watch.requests.written("ORDERS")
    assert [watch.requests.may_be_undone(request) for request in (first, other, last, last)] == [
        False,
        False,
        True,
        False,
    ]


def test_a_request_that_arrives_late_may_be_undone_too() -> None:
    for late, is_undone in ((MAX_REQUEST_OVERLAP_SECONDS / 2, True), (2 * MAX_REQUEST_OVERLAP_SECONDS, False)):
        watch = Watch()
        watch.requests.written("ORDERS")
        watch.now += late
        assert watch.requests.may_be_undone(watch.seen()) is is_undone


def test_a_flag_that_is_awaited_is_carried_over_to_the_next_request() -> None:
    watch = Watch()
    watch.seen(allow_msg_schedules=True, allow_msg_ttl=True, description="first")
    second = watch.seen(allow_msg_schedules=False, description="second")
    carried = {"name": "ORDERS", "description": "second", "allow_msg_schedules": True, "allow_msg_ttl": True}
    assert watch.requests.with_flag(second) == carried


def test_a_flag_is_not_carried_over_back_or_once_it_is_settled() -> None:
    watch = Watch()
    first = watch.seen(discard="new")
    second = watch.seen(allow_msg_schedules=True)
    assert [watch.requests.with_flag(request) for request in (first, second)] == [first.config, second.config]
    watch.requests.settled(second)
    third = watch.seen()
    assert watch.requests.with_flag(third) == third.config
    watch.seen(allow_msg_schedules=True)
    watch.requests.discard("ORDERS")
    fourth = watch.seen()
    assert watch.requests.with_flag(fourth) == fourth.config
