"""A client that may publish to the stream can forge a fire: a forgery prevents no fire and delays no schedule.

Nor does a fire that was requested or made up by a client: no sidecar takes it for a forgery or a fault.
What counts as one is judged in `engine/holding/claimed_fires.py`.
"""

from typing import Any

import pytest

from nats_scheduler.engine.events import (
    Event,
    FireConfirmed,
    FireForged,
    FireRefused,
    HeadersMisnamed,
    ScheduleEnded,
    ScheduleRejected,
)
from nats_scheduler.engine.fire import FetchDuplicate, Fire
from nats_scheduler.engine.firing.building import IDENTITY_HIDDEN
from nats_scheduler.engine.inputs import ContactLost, DuplicateFetched, Stored, Unanswered
from nats_scheduler.message.generated import BY
from nats_scheduler.message.headers import with_header
from nats_scheduler.message.identity import beside_identity, fire_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET, Desk, schedule, stored_fire, world_holding
from tests.harness.blocks import block_to_send, block_with

YEAR_9000 = 221_845_392_000 * SECOND
EVERY_5S = {"Nats-Schedule": "@every 5s", "Nats-Schedule-Target": TARGET}
EVERY_10S = {"Nats-Schedule": "@every 10s", "Nats-Schedule-Target": TARGET}
GENUINE = b"genuine"
FAULTS = (FireForged, ScheduleRejected, HeadersMisnamed, ScheduleEnded)
GUARDS = pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])


def forged(fire_time: int, *, following: str = "", taken: int = 0) -> dict[str, str]:
    """Return the headers of a message that claims to be a fire."""
    headers = {"Nats-Scheduler": SCHEDULE, "Nats-Msg-Id": fire_identity(SCHEDULE, 1, fire_time, taken)}
    return {**headers, "Nats-Schedule-Next": following} if following else headers


def forged_message(fire_time: int, following: str, *, at: int | None = None, subject: str = TARGET) -> StoredMessage:
    """Return such a message as the stream holds it, stored at its fire time or at another instant."""
    stored_at = fire_time if at is None else at
    return StoredMessage(subject, 2, stored_at, block_to_send(forged(fire_time, following=following)), None)


def second(number: float) -> int:
    return START + int(number * SECOND)


def genuine(world: ScheduleWorld) -> list[float]:
    """Return the fire times of the fires that the sidecar stored, in seconds after the start."""
    return [(message.fire_time - START) / SECOND for message in world.generated if message.body == GENUINE]


def events(world: ScheduleWorld, *kinds: type[Event]) -> list[Any]:
    return [event for event in world.events if isinstance(event, kinds)]


# -- a forged fire of the year 9000 -----------------------------------------------------------------------------------


def test_a_repeating_schedule_fires_on_across_restarts() -> None:
    faults = {TARGET: "it was stored before its fire time", "elsewhere": "it is not on the schedule's target"}
    for subject, fault in faults.items():
        world = world_holding(EVERY_5S, GENUINE)
        world.advance("7s")
        world.publish(subject, forged(YEAR_9000, following="9999-01-01T00:00:00Z"))
        world.advance("5s")
        world.restart(with_checkpoint=False)
        world.advance("5s")
        assert genuine(world) == [5, 10, 15]
        (forgery,) = (one.sequence for one in world.stream.messages(subject) if one.body != GENUINE)
        assert {*events(world, FireForged)} == {FireForged(SCHEDULE, 1, YEAR_9000, subject, forgery, fault)}


# -- an identity that is taken beforehand -----------------------------------------------------------------------------


@GUARDS
def test_the_fire_is_stored_all_the_same_and_once(guard: bool) -> None:
    at_20s = "2026-01-01T00:00:20Z"
    for subject, following in (("elsewhere", ""), (TARGET, ""), (TARGET, at_20s), (f"{SCHEDULE}.x", at_20s)):
        world = world_holding(EVERY_10S, GENUINE, guard=guard)
        world.publish(subject, forged(second(10), following=following))
        world.advance("11s")
        world.restart(with_checkpoint=False)
        world.restart(with_checkpoint=False)
        world.advance("10s")
        assert genuine(world) == [10, 20], (subject, following)
        assert events(world, FireForged)


def test_a_forger_who_foresees_the_second_one_as_well_gains_nothing() -> None:
    world = world_holding(EVERY_10S, GENUINE)
    for taken in (0, 2, 3, 4):
        world.publish("elsewhere", forged(second(10), taken=taken))
    world.advance("11s")
    assert genuine(world) == [10]


def test_no_identity_of_a_publishers_own_takes_the_place_of_ours() -> None:
    """A header that is hidden from the server's search is kept, whatever its value."""
    world = ScheduleWorld()
    own = f"Nats-Msg-Id: {fire_identity(SCHEDULE, 1, second(10))}\r\n"
    lines = "".join(f"{name}: {value}\r\n" for name, value in EVERY_10S.items())
    world.publish(SCHEDULE, f"NATS/1.0\r\nA: Nats-Msg-IdNats-Msg-Id\r\n{own}{lines}\r\n".encode(), GENUINE)
    world.publish("elsewhere", forged(second(10)))
    world.advance("11s")
    assert genuine(world) == [10]
    assert [message.block.count(own.encode()) for message in world.stream.messages(TARGET)] == [1]


def test_two_instances_store_one() -> None:
    """Both instances read the same message under the identity, and so choose the same second identity."""
    world = world_holding(EVERY_10S, GENUINE)
    world.publish("elsewhere", forged(second(10)))
    message = schedule("@every 10s", body=GENUINE)
    desk = Desk(message)
    first = desk.in_flight(message, 10)
    desk.concluded(first, Stored(2, duplicate=True))
    desk.step(DuplicateFetched(first, 2, world.stream.message(2), START))
    assert desk.fire is not first
    assert (desk.fire.schedule_stored_at, desk.fire.last) == (START, 1), "it knows when its schedule was stored"
    world.advance("11s")
    assert genuine(world) == [10]
    again = desk.fire
    assert world.stream.publish(again.target, again.block, again.body) == Stored(3, duplicate=True)


# -- a duplicate: the server answers that it has the fire already, and under which sequence ---------------------------


def duplicate(source: str = "") -> tuple[Desk, StoredMessage, Fire]:
    """Bring a fire of 5 s into flight, and answer that it is a duplicate of the message with the sequence 9."""
    message = schedule("@every 5s", body=GENUINE, Nats_Schedule_Source=source)
    desk = Desk(message)
    fire = desk.in_flight(message, 5)
    desk.concluded(fire, Stored(9, duplicate=True))
    return desk, message, fire


def counts_as_stored(message: StoredMessage | None, stored_at: int | None, source: str = "") -> bool:
    desk, _message, fire = duplicate(source)
    desk.step(DuplicateFetched(fire, 9, message, stored_at))
    return not desk.fires


def test_a_duplicate_is_the_fire_unless_it_differs_or_is_too_old() -> None:
    stored = forged_message(second(5), "2026-01-01T00:00:10Z")._replace(sequence=9, body=GENUINE)
    for stored_at, counts in ((second(5), True), (second(0.1), True), (second(-0.1), False)):
        found = counts_as_stored(stored._replace(stored_at=stored_at), stored_at)
        assert found is counts, f"the clocks of nodes may differ, and it was stored at {stored_at}"
    for different in (
        stored._replace(subject="elsewhere"),
        stored._replace(body=b"forged"),
        stored._replace(block=block_with(Nats_Msg_Id=fire_identity(SCHEDULE, 1, second(5)))),
        stored._replace(block=b""),
    ):
        assert not counts_as_stored(different, second(5)), different
    assert counts_as_stored(stored._replace(body=b"later"), second(5), source="some.source"), "a sample may be another"
    for gone_since, counts in ((None, True), (second(60), True), (second(-1), False)):
        assert counts_as_stored(None, gone_since) is counts, f"it is gone, and was stored at {gone_since}"


def test_where_the_account_maps_the_target_the_very_same_message_is_it() -> None:
    desk, _message, fire = duplicate()
    desk.step(DuplicateFetched(fire, 9, stored_fire(fire, 9, desk.now)._replace(subject="mapped"), desk.now))
    assert desk.fires == []


def test_what_cannot_be_looked_at_is_sent_again_as_it_was() -> None:
    desk, _message, fire = duplicate()
    desk.step(Unanswered(FetchDuplicate(fire, 1), "no answer"))
    assert desk.at(6).fires == [fire]
    cut, _message, fire = duplicate()
    cut.step(ContactLost("cut"), Unanswered(FetchDuplicate(fire, 1), "cut"))
    assert cut.engine.is_idle, "it is asked again behind the contact"


def counts_as_fired(pattern: str, message: StoredMessage, *, moves_subjects: bool = False) -> bool:
    desk = Desk(schedule(pattern), live=False, moves_subjects=moves_subjects)
    due = desk.held().fire_time
    desk.read(message)
    return desk.held().fire_time > due


def test_a_fire_is_on_the_grid_on_the_target_and_in_time() -> None:
    pattern = "@every 5s"
    for number in (5, 10, 5_000):
        due, following = second(number), format_rfc3339(second(number + 5))
        assert counts_as_fired(pattern, forged_message(due, following))
        for message in (
            forged_message(due + 1, following),
            forged_message(second(number + 1), following),
            forged_message(due, following, subject="elsewhere"),
            forged_message(due, following, at=second(number - 6)),
            *(forged_message(due, wrong) for wrong in ("soon", "", format_rfc3339(due))),
        ):
            assert not counts_as_fired(pattern, message), message


def test_a_sample_says_nothing_of_lateness_that_cannot_be() -> None:
    desk = Desk(schedule("@every 5s"))
    block = block_with(Nats_Scheduler="s.unknown", Nats_Msg_Id=fire_identity("s.unknown", 7, YEAR_9000))
    desk.read(StoredMessage("elsewhere", 2, START, block, None))
    assert desk.reported(FireConfirmed) == []


def test_a_forgery_that_says_purge_is_a_cancel_and_is_told() -> None:
    desk = Desk(schedule("@every 5s"))
    desk.read(forged_message(YEAR_9000, "purge", at=START, subject="elsewhere"))
    assert len(desk.reported(FireForged)) == 1
    assert desk.purges == [(SCHEDULE, 1)]


def test_what_the_server_would_not_know_again_is_refused_and_told() -> None:
    hidden = (IDENTITY_HIDDEN.code, IDENTITY_HIDDEN.description)
    for subject, headers, refusals in (
        ("s.Nats-Msg-Id.Nats-Expected-Last-Subject-Sequence-Subject", b"", [hidden]),
        (SCHEDULE, b"Nats-Trace-Dest: t\r\nNats-Trace-Only: True\r\n", []),
    ):
        message = schedule("@every 5s", subject=subject)
        message = message._replace(block=b"NATS/1.0\r\n" + headers + with_header(message.block, b"A", b"b")[10:])
        desk = Desk(message).at(5)
        desk.found(message)
        assert [(event.code, event.description) for event in desk.reported(FireRefused)] == refusals
        assert bool(desk.fires) is not bool(refusals)


# -- a fire that was requested, or stored later for a past time -------------------------------------------------------


def requested(number: int, *, of: str = SCHEDULE, x: str = "", following: int | None = None) -> dict[str, str]:
    """Return the headers of a fire that was requested, for a time in seconds after the start."""
    headers = {f"{x}Nats-Scheduler": of}
    if following is not None:
        headers[f"{x}Nats-Schedule-Next"] = format_rfc3339(second(following))
    return {**headers, BY.decode(): "fire", "Nats-Msg-Id": beside_identity(of, 1, second(number))}


@pytest.mark.parametrize(("x", "following"), [("", 10), ("X-", None)])
def test_a_requested_fire_neither_advances_nor_disturbs_its_schedule(x: str, following: int | None) -> None:
    world = world_holding(EVERY_5S, GENUINE)
    world.advance("7s")
    world.publish(TARGET, requested(7, x=x, following=following))
    world.publish(TARGET, requested(60, x=x, following=following))
    world.advance("14s")
    assert genuine(world) == [5, 10, 15, 20]
    assert events(world, *FAULTS) == []


def test_a_requested_fire_ends_only_its_own_schedule() -> None:
    world = world_holding(EVERY_5S, GENUINE)
    world.publish("s.other", {**EVERY_5S, "Nats-Schedule": "@every 1h"})
    world.advance("7s")
    world.publish(SCHEDULE, requested(7, of="s.other", following=3_600))
    world.advance("9s")
    assert genuine(world) == [5, 10, 15]
    assert events(world, *FAULTS) == []
    world.publish(SCHEDULE, requested(16))
    world.advance("9s")
    assert genuine(world) == [5, 10, 15]


def test_a_past_fire_that_is_stored_later_disturbs_nothing() -> None:
    world = world_holding(EVERY_5S | {"Nats-Schedule-X-Report": "true"}, GENUINE)
    world.advance("7s")
    world.restart(after="12s")
    world.advance("2s")  # the fire of 10 s was collapsed into the one of 15 s
    world.publish(TARGET, forged(second(10), following=format_rfc3339(second(15))) | {BY.decode(): "backfill"})
    world.advance("8s")
    assert [(one.fire_time - START) / SECOND for one in world.generated] == [5, 15, 20, 10, 25]
    assert events(world, *FAULTS) == []
    assert [one.overdue for one in events(world, FireConfirmed) if one.fire_time == second(10)] == [True]
