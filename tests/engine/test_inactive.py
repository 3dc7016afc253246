"""A paused schedule is listed while it is stored, and until the end of its lifetime."""

from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.inputs import (
    ExpiryConcluded,
    SchedulesGone,
)
from nats_scheduler.engine.views.figures import State
from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, Desk
from tests.engine.paused_builders import listed, paused, shown


def test_the_end_of_its_lifetime_is_shown_and_it_is_not_listed_afterwards() -> None:
    desk = Desk(paused("@every 5s", Nats_TTL="12s"))
    one = shown(desk)
    assert one is not None
    assert (one.ends, one.ended_by) == (START + 12 * SECOND, Ending.EXPIRED)
    desk.at(12)
    assert (shown(desk), listed(desk), desk.engine.view().counts(desk.now).finish().total) == (None, [], 0)
    desk.step(SchedulesGone([(SCHEDULE, 1)]))
    assert desk.engine.inactive.paused == {}


def test_the_age_limit_of_its_stream_ends_it_too_unless_it_never_expires() -> None:
    desk = Desk(paused("@every 5s", 1), paused("@every 5s", 2, "s.two", Nats_TTL="never"), max_age=HOUR)
    assert [one.ended_by for one in desk.engine.view().page(desk.now).finish().schedules] == [Ending.MAX_AGE, None]
    desk.at(3_600)
    assert listed(desk) == [("s.two", State.PAUSED)]


def test_where_the_server_does_not_act_on_its_ttl_it_is_removed() -> None:
    message = paused("@every 5s", Nats_TTL="12s")
    desk = Desk(message, removes_expired=True)
    assert desk.at(12).removals == [1]
    desk.step(ExpiryConcluded(1, SCHEDULE))
    assert desk.engine.inactive.paused == {}
