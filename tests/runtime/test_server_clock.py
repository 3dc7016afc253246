"""The server's clock as it is known from its answers."""

from nats_scheduler.runtime.server_clock import MAX_CLOCK_DRIFT_NS, ServerClock
from nats_scheduler.schedule.instants import HOUR, MILLISECOND, SECOND
from nats_scheduler.testing.manual_clock import START, ManualClock


class Server:
    """A server whose clock is some way ahead of ours."""

    def __init__(self, ahead: int = 0) -> None:
        self.machine = ManualClock()
        self.clock = ServerClock(self.machine)
        self.ahead = ahead

    @property
    def time(self) -> int:
        """The time by its clock."""
        return START + self.machine.monotonic() + self.ahead

    def asked(self, back: int = MILLISECOND) -> None:
        """Ask it for its time; the request takes a millisecond, and the answer `back` ns."""
        requested_at = self.machine.monotonic()
        self.machine.advance(MILLISECOND)
        reported = self.time
        self.machine.advance(back)
        self.clock.received(reported, requested_at)

    @property
    def late(self) -> int:
        """The time (ns) by which our idea of its time is behind."""
        return self.time - self.clock.now()


def test_until_the_server_was_heard_it_is_our_own_clock() -> None:
    assert Server(HOUR).clock.now() == START


def test_it_is_the_servers_time_less_the_way_of_the_fastest_answer() -> None:
    server = Server()
    for back in (30, 2, 50):
        server.asked(back * MILLISECOND)
    assert 2 * MILLISECOND <= server.late < 3 * MILLISECOND


def test_a_server_whose_clock_is_set_is_followed_at_the_next_answer() -> None:
    server = Server()
    for ahead in (HOUR, 0, -HOUR):
        server.ahead = ahead
        server.asked()
        assert server.late == MILLISECOND


def test_a_step_of_our_own_clock_changes_nothing() -> None:
    server = Server()
    server.asked()
    for step in (HOUR, -HOUR):
        server.machine.set(START + step)
        assert server.late == MILLISECOND


def test_it_is_never_ahead_of_the_server_though_our_clock_runs_fast() -> None:
    server = Server()
    for _ in range(100):
        server.asked()
        server.machine.advance(SECOND)
        server.ahead -= SECOND // 5_000
        assert server.late >= 0


def test_without_answers_it_goes_on_and_falls_back_by_little() -> None:
    server = Server()
    server.asked()
    server.machine.advance(24 * HOUR)
    assert server.late == MILLISECOND + MAX_CLOCK_DRIFT_NS
