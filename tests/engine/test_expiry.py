"""Messages whose TTL has run out are removed where the server does not do it, and expired schedules do not fire."""

import itertools

import pytest

from nats_scheduler.engine.actions import RemoveExpired
from nats_scheduler.engine.events import Ending, ExpiryFailed, FireRefused, MessagesExpired, ScheduleEnded
from nats_scheduler.engine.expiry import MAX_REMOVALS_IN_FLIGHT, ExpiryAgenda
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContactLost,
    DrainRequested,
    ExpiryConcluded,
    HistoryRead,
    MessagesRead,
    PublishConcluded,
    Refused,
    RemovalRequested,
    Stored,
    Unknown,
)
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import START
from nats_scheduler.testing.network import Fate, Perfect
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import TARGET, Desk, schedule
from tests.harness.blocks import block_with

AT_5S = "@at 2026-01-01T00:00:05Z"
FULL = Refused(503, 10077, "maximum messages exceeded")


def generated(sequence: int, ttl: str, *, stored_at: int = START) -> StoredMessage:
    """Make a message that a schedule generated, which is gone."""
    identity = f"nats-scheduler:1:{START}:s.gone"
    block = block_with(Nats_Scheduler="s.gone", Nats_Schedule_Next="purge", Nats_TTL=ttl, Nats_Msg_Id=identity)
    return StoredMessage(TARGET, sequence, stored_at, block, None)


def desk(*messages: StoredMessage, **more: bool) -> Desk:
    return Desk(*messages, guard=False, removes_expired=True, **more)


def world(**config: object) -> ScheduleWorld:
    return ScheduleWorld(guard=False, config=config)


def stored(world: ScheduleWorld, matching: str = ">") -> list[int]:
    return [message.sequence for message in world.stream.messages(matching)]


def headers(pattern: str, **more: str) -> dict[str, str]:
    return {"Nats-Schedule": pattern, "Nats-Schedule-Target": TARGET, **more}


@pytest.mark.clause("ttl-generated")
class TestGeneratedMessages:
    def test_each_is_removed_when_its_own_ttl_has_run_out(self) -> None:
        one = desk(generated(1, "5s"), generated(2, "60"), generated(3, "never"), generated(4, "00"), generated(5, "5"))
        assert one.at(4.9).removals == []
        assert one.wake == 5
        assert sorted(one.at(5).removals) == [1, 5]
        assert one.wake == 60
        assert one.at(60).removals == [2]
        assert one.at(10**9).removals == []

    def test_it_is_never_removed_early_and_at_most_a_second_late(self) -> None:
        one = desk(generated(1, "5s", stored_at=START + 1))
        assert one.at(5.9).removals == []
        assert one.at(6).removals == [1]

    def test_a_fire_of_ours_is_followed_from_storing_to_removal(self) -> None:
        one = world()
        one.publish("s.one", headers("@every 10s", **{"Nats-Schedule-TTL": "15s"}))
        one.advance("34s")
        assert len(one.generated) == 3
        assert len(stored(one, TARGET)) == 2
        one.advance("2s")
        assert len(stored(one, TARGET)) == 1
        assert sum(event.count for event in one.events if isinstance(event, MessagesExpired)) == 2

    def test_messages_of_others_keep_what_they_have(self) -> None:
        one = world()
        one.publish("t.out", {"Nats-TTL": "1s"})
        one.publish("t.out", {"Nats-TTL": "1s", "Nats-Scheduler": "s.one", "Nats-Schedule-Next": "purge"})
        one.advance("1h")
        assert stored(one) == [1, 2]

    def test_a_rolled_up_message_costs_nothing_but_a_look(self) -> None:
        one = world()
        one.publish("s.one", headers("@every 10s", **{"Nats-Schedule-TTL": "15s", "Nats-Schedule-Rollup": "sub"}))
        one.advance("31s")
        one.purge("s.one")
        one.advance("1h")
        assert stored(one) == []
        assert sum(event.count for event in one.events if isinstance(event, MessagesExpired)) == 1

    def test_where_the_server_acts_on_ttls_nothing_is_done(self) -> None:
        assert Desk(generated(1, "5s")).at(60).removals == []

    def test_where_the_stream_does_not_ask_for_ttls_nothing_is_done(self) -> None:
        one = world(allow_msg_ttl=False)
        one.publish("s.one", headers("@every 1h", **{"Nats-TTL": "1s"}))
        one.advance("90m")
        rejection = one.rejection("s.one")
        assert rejection is not None
        assert rejection.code == 10166
        assert stored(one, "s.one") == [1]


@pytest.mark.clause("ttl-schedule")
class TestSchedules:
    @pytest.mark.parametrize("pattern", [AT_5S, "@every 5s", "*/5 * * * * *"])
    def test_one_whose_ttl_runs_out_before_its_due_time_never_fires(self, pattern: str) -> None:
        one = world()
        one.publish("s.one", headers(pattern, **{"Nats-TTL": "3s"}))
        one.advance("1m")
        assert (one.generated, stored(one)) == ([], [])
        endings = [event.ending for event in one.events if isinstance(event, ScheduleEnded)]
        assert endings == [Ending.EXPIRED]

    def test_at_the_instant_of_its_expiry_it_has_expired(self) -> None:
        one = world()
        one.publish("s.one", headers(AT_5S, **{"Nats-TTL": "5s"}))
        one.publish("s.two", headers(AT_5S, **{"Nats-TTL": "6s"}))
        one.advance("1m")
        assert [message.schedule for message in one.generated] == ["s.two"]

    def test_it_ends_at_once_although_it_is_removed_at_the_full_second(self) -> None:
        one = desk(schedule("@every 1h", stored_at=START + 1, Nats_TTL="3s"))
        one.at(3.5)
        assert (one.is_held(), one.removals) == (False, [])
        assert one.at(4).removals == [1]

    def test_it_fires_until_then(self) -> None:
        one = world()
        one.publish("s.one", headers("@every 5s", **{"Nats-TTL": "12s"}))
        one.advance("1m")
        assert [(message.fire_time - START) // SECOND for message in one.generated] == [5, 10]
        assert stored(one, "s.one") == []

    def test_a_replacement_without_ttl_lives_on(self) -> None:
        one = world()
        one.publish("s.one", headers("@every 5s", **{"Nats-TTL": "3s"}))
        one.publish("s.one", headers("@every 5s"))
        one.advance("11s")
        assert (len(one.generated), stored(one, "s.one")) == (2, [2])

    def test_one_under_an_ordinary_message_and_one_that_is_invalid_are_removed_too(self) -> None:
        one = world()
        one.publish("s.one", headers("@every 1h", **{"Nats-TTL": "3s"}))
        one.publish("s.one")
        one.publish("s.two", headers("@every nonsense", **{"Nats-TTL": "3s"}))
        assert one.rejection("s.two") is not None
        one.advance("4s")
        assert (stored(one), one.rejection("s.two")) == ([2], None)

    def test_a_fire_of_unknown_outcome_is_settled_before_the_schedule_goes(self) -> None:
        message = schedule(AT_5S, Nats_TTL="6s")
        one = desk(message)
        fire = one.in_flight(message, 5)
        one.concluded(fire, Unknown("no answer"))
        one.at(7)
        assert (one.removals, one.reads) == ([], [("s.one", 1)])
        one.found(message)
        assert one.fires == [fire]
        one.concluded(fire, Stored(2))
        assert one.purges == [("s.one", 1)]

    def test_a_fire_that_is_refused_is_given_up_when_the_schedule_has_expired(self) -> None:
        message = schedule(AT_5S, Nats_TTL="6s")
        one = desk(message)
        one.concluded(one.in_flight(message, 5), FULL)
        assert one.told(FireRefused)
        one.at(6)
        assert [event.ending for event in one.told(ScheduleEnded)] == [Ending.EXPIRED]
        assert one.removals == [1]

    def test_a_herd_is_not_held_up_by_removals(self) -> None:
        schedules = [schedule("@every 5s", number, f"s.{number}") for number in range(1, 101)]
        one = desk(*schedules, generated(200, "6s"))
        one.at(5)
        fires = []
        for message in schedules:
            one.found(message)
            fires += one.fires
        assert one.at(6).removals == []
        one.step(*(PublishConcluded(fire, Stored(300)) for fire in fires))
        assert one.removals == [200]


@pytest.mark.clause("ttl-restart")
class TestRestarts:
    def test_what_expired_meanwhile_is_removed_and_what_has_not_stays(self) -> None:
        one = world()
        one.publish("s.one", headers("@every 10s", **{"Nats-Schedule-TTL": "1m"}))
        one.advance("35s")
        one.purge("s.one")
        one.restart("40s")
        one.advance("1s")
        assert stored(one) == [3, 4], "the first of three fires has expired"

    def test_a_schedule_that_expired_before_its_due_time_does_not_fire_at_start(self) -> None:
        one = world()
        one.publish("s.one", headers(AT_5S, **{"Nats-TTL": "3s"}))
        one.restart("1m")
        one.advance("2s")
        assert (one.generated, stored(one)) == ([], [])

    @pytest.mark.parametrize("pattern", [AT_5S, "@every 5s", "*/5 * * * * *"])
    def test_a_fire_that_came_due_before_the_expiry_is_made_up_and_then_the_schedule_goes(self, pattern: str) -> None:
        one = world()
        one.publish("s.one", headers(pattern, **{"Nats-TTL": "8s"}))
        one.restart("1m")
        one.advance("3s")
        assert [(message.fire_time - START) // SECOND for message in one.generated] == [5]
        assert stored(one, "s.one") == []

    def test_the_make_up_fire_is_the_latest_that_came_due_before_the_expiry(self) -> None:
        one = world()
        one.publish("s.one", headers("@every 5s", **{"Nats-TTL": "18s"}))
        one.restart("1m")
        one.advance("3s")
        assert [(message.fire_time - START) // SECOND for message in one.generated] == [15]

    def test_nothing_is_removed_without_contact_nor_while_draining(self) -> None:
        one = desk(generated(1, "5s"), live=False)
        assert one.at(10).removals == []
        one.step(CaughtUp())
        assert one.removals == [1]
        two = desk(generated(1, "5s"))
        two.step(DrainRequested())
        assert two.at(10).removals == []

    def test_what_lies_under_the_last_message_of_its_subject_is_told_apart_and_removed_too(self) -> None:
        one = desk(reads_all=False)
        buried = schedule("@every 1s", 7, Nats_TTL="9s")
        one.step(HistoryRead([generated(3, "5s"), buried], 9))
        assert not one.is_held(), "what is buried is no schedule any more"
        assert (one.at(5).removals, one.engine.history_through) == ([3], 9)
        assert one.at(9).removals == [7]

    def test_a_fire_is_remembered_from_its_acknowledgement_where_it_may_never_be_read(self) -> None:
        message = schedule("@every 5s", Nats_Schedule_TTL="2s")
        one = desk(message, reads_all=False)
        one.concluded(one.in_flight(message, 5), Stored(8))
        assert one.at(7).removals == [8]


@pytest.mark.clause("ttl-restart")
class TestRemovals:
    def test_only_so_many_are_under_way_and_the_rest_follow(self) -> None:
        count = MAX_REMOVALS_IN_FLIGHT + 10
        one = desk(*(generated(number, "5s") for number in range(1, count + 1)))
        first = one.at(5).removals
        assert len(first) == MAX_REMOVALS_IN_FLIGHT
        assert not one.engine.is_idle
        one.step(*(ExpiryConcluded(sequence, TARGET) for sequence in first))
        assert sorted(first + one.removals) == list(range(1, count + 1))
        assert one.told(MessagesExpired) == [MessagesExpired(MAX_REMOVALS_IN_FLIGHT)]
        one.step(*(ExpiryConcluded(sequence) for sequence in one.removals))
        assert one.told(MessagesExpired) == [], "others had removed them"
        assert one.engine.is_idle

    def test_a_failure_is_told_and_tried_again_after_a_while_that_grows(self) -> None:
        one = desk(generated(1, "5s"), generated(2, "5s"))
        one.at(5)
        pauses = []
        for _ in range(4):
            one.step(ExpiryConcluded(1, failure="no answer"), ExpiryConcluded(2, failure="no answer"))
            assert one.told(ExpiryFailed) == [ExpiryFailed(1, "no answer", refused=False)]
            assert one.removals == []
            pauses.append(one.wake)
            assert sorted(one.at(one.wake).removals) == [1, 2]
        assert pauses == sorted(pauses)
        one.step(ExpiryConcluded(1, TARGET), ExpiryConcluded(2, TARGET))
        assert one.told(MessagesExpired) == [MessagesExpired(2)]

    def test_a_pause_is_not_prolonged_by_a_clock_that_is_set_back(self) -> None:
        one = desk(generated(1, "5s"), generated(2, "5s"))
        assert sorted(one.at(5).removals) == [1, 2]
        one.step(ExpiryConcluded(1, TARGET), ExpiryConcluded(2, failure="no answer"))
        one.read(generated(3, "5s", stored_at=START - 7200 * SECOND))
        one.at(-3600)
        assert one.at(-3599).removals == [3]

    def test_what_the_server_refuses_for_good_is_told_once_and_never_tried_again(self) -> None:
        one = desk(generated(1, "5s"), generated(2, "5s"), generated(3, "1h"))
        one.at(5)
        refused = [ExpiryConcluded(number, failure="message delete not permitted", refused=True) for number in (1, 2)]
        one.step(*refused)
        assert [event.refused for event in one.told(ExpiryFailed)] == [True]
        one.read(generated(4, "10s"))
        assert one.at(10**6).removals == []
        one.read(schedule("@every 5s", 9, stored_at=one.now, Nats_TTL="3s"))
        one.at(10**6 + 3)
        assert not one.is_held(), "an expired schedule does not fire all the same"

    def test_a_message_that_the_server_holds_to_be_younger_waits(self) -> None:
        one = desk(generated(1, "5s"))
        one.at(5)
        one.step(ExpiryConcluded(1, expires=START + 8 * SECOND))
        assert one.at(7.9).removals == []
        assert one.at(8).removals == [1]

    def test_one_of_which_nobody_knows_whether_it_is_gone_is_asked_for_again_after_contact(self) -> None:
        one = desk(generated(1, "5s"))
        one.at(5)
        one.step(ExpiryConcluded(1, failure="the connection was cut"), ContactLost("the connection was cut"))
        assert one.at(6).removals == []
        one.step(CaughtUp())
        assert one.removals == [1]

    def test_the_removals_of_another_sidecar_lead_to_no_look(self) -> None:
        one = desk(schedule("@every 5s", 1), generated(2, "5s"))
        one.at(4.96)
        one.step(RemovalRequested(sequence=2))
        assert one.reads == []

    def test_a_deny_delete_stream_keeps_them_and_says_so_once(self) -> None:
        one = world(deny_delete=True)
        one.publish("s.one", headers("@every 10s", **{"Nats-Schedule-TTL": "5s"}))
        one.advance("1m")
        assert len(stored(one, TARGET)) == 6
        assert [event.refused for event in one.events if isinstance(event, ExpiryFailed)] == [True]


class LostRemovals(Perfect):
    """A network on which every second removal, and every third answer to one, gets lost."""

    def __init__(self) -> None:
        self._count = itertools.count(1)

    def remove(self, request: RemoveExpired) -> Fate:
        number = next(self._count)
        return Fate(arrives=number % 2 == 0, answered=number % 3 != 0)


@pytest.mark.clause("ttl-restart")
def test_on_a_network_that_loses_removals_everything_is_removed_in_the_end() -> None:
    one = ScheduleWorld(guard=False, network=LostRemovals())
    one.publish("s.one", headers("@every 1s", **{"Nats-Schedule-TTL": "5s", "Nats-TTL": "40s"}))
    one.advance("10m")
    assert (len(one.generated), stored(one)) == (39, [])


def test_an_agenda_gives_back_what_it_was_given_second_by_second() -> None:
    agenda = ExpiryAgenda()
    agenda.add(3 * SECOND, 30)
    agenda.add(2 * SECOND + 1, 31)
    agenda.add(SECOND, 10)
    assert agenda.next_due() == SECOND
    assert (agenda.pop_due(SECOND), agenda.pop_due(3 * SECOND - 1)) == (10, None)
    assert {agenda.pop_due(3 * SECOND), agenda.pop_due(3 * SECOND)} == {30, 31}
    assert (agenda.pop_due(3 * SECOND), agenda.next_due()) == (None, None)


def test_reading_a_message_again_is_harmless() -> None:
    one = desk(generated(1, "5s"))
    one.step(MessagesRead([generated(1, "5s")]))
    one.at(5)
    one.step(ExpiryConcluded(1, TARGET), ExpiryConcluded(1))
    assert one.engine.is_idle
