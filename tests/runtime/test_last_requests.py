"""Repeated updates: those of another client that one of ours may have undone."""

from nats_scheduler.jetstream.watch import ConfigRequested
from nats_scheduler.runtime.discovery import MAX_REQUEST_OVERLAP_SECONDS, LastRequests


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


def test_a_request_during_an_update_of_ours_may_be_undone_and_is_repeated_once() -> None:
    watch = Watch()
    request = watch.seen()
    watch.requests.written("ORDERS")
    assert [watch.requests.may_be_undone(request) for _ in range(2)] == [True, False]


def test_a_request_that_reaches_us_late_may_be_undone_too() -> None:
    watch = Watch()
    watch.requests.written("ORDERS")
    watch.now += MAX_REQUEST_OVERLAP_SECONDS / 2
    assert watch.requests.may_be_undone(watch.seen())


def test_a_request_long_after_an_update_of_ours_was_not_undone_by_it() -> None:
    watch = Watch()
    watch.requests.written("ORDERS")
    watch.now += 2 * MAX_REQUEST_OVERLAP_SECONDS
    assert not watch.requests.may_be_undone(watch.seen())


def test_only_the_last_request_is_repeated() -> None:
    watch = Watch()
    first = watch.seen()
    second = watch.seen()
    watch.requests.written("ORDERS")
    assert [watch.requests.may_be_undone(request) for request in (first, second)] == [False, True]


def test_an_update_of_another_stream_undoes_nothing() -> None:
    watch = Watch()
    request = watch.seen()
    watch.requests.written("EVENTS")
    assert not watch.requests.may_be_undone(request)


def test_a_flag_that_is_waited_for_is_carried_over_to_the_next_request() -> None:
    watch = Watch()
    watch.seen(allow_msg_schedules=True, allow_msg_ttl=True, description="first")
    second = watch.seen(allow_msg_schedules=False, description="second")
    carried = {"name": "ORDERS", "description": "second", "allow_msg_schedules": True, "allow_msg_ttl": True}
    assert watch.requests.with_flag(second) == carried


def test_a_flag_that_was_asked_for_later_is_not_carried_back() -> None:
    watch = Watch()
    first = watch.seen(discard="new")
    second = watch.seen(allow_msg_schedules=True)
    assert watch.requests.with_flag(first) == first.config
    assert watch.requests.with_flag(second) == second.config


def test_a_flag_is_carried_over_neither_once_settled_nor_to_another_stream_of_the_name() -> None:
    watch = Watch()
    watch.requests.settled(watch.seen(allow_msg_schedules=True))
    second = watch.seen()
    assert watch.requests.with_flag(second) == second.config
    watch.seen(allow_msg_schedules=True)
    watch.requests.discard("ORDERS")
    third = watch.seen()
    assert watch.requests.with_flag(third) == third.config
