"""Views of stored schedules that the server fires, alone and beside ours, and the findings of a graduation."""

from nats_scheduler.engine.events import FireConfirmed
from nats_scheduler.engine.handover import BLOCKING_KINDS, PURGED_KINDS, Cause, Handover
from nats_scheduler.engine.inputs import NOTHING_SETTLED, Checkpoint
from nats_scheduler.engine.stored_schedules import StoredSchedules
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.seen import done
from nats_scheduler.engine.views.view import EngineView, FiredBy, ListedSchedule, Query
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.dialect import ADR51, PORTABLE
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import SCHEDULE, TARGET, message_on, plain, schedule
from tests.engine.paused_builders import paused
from tests.engine.test_calendars import NO_DAY, TODAY
from tests.harness.blocks import block_with, with_identity

LEVEL_OF_2_12, LEVEL_OF_2_14 = 3, 4
LATER = f"@at {format_rfc3339(START + HOUR)}"
PAST = f"@at {format_rfc3339(START - HOUR)}"
NOW = START + 10 * SECOND
POLICIES = [
    *(("Limit", "3"), ("Missed", "all"), ("Missed", "skip"), ("Missed", "all 3"), ("Report", "true")),
    ("Overlap", "queue"),
]


def read(
    *messages: StoredMessage,
    level: int = LEVEL_OF_2_14,
    checkpoint: Checkpoint = NOTHING_SETTLED,
    expired_by_us: bool = False,
) -> Handover:
    """Read a stream with these messages."""
    rules = StreamRules("S", ("s.>", "t.>"), allow_msg_ttl=expired_by_us)
    handover = Handover(rules, Capabilities(api_level=level), checkpoint, expired_by_us=expired_by_us)
    handover.take(messages, NOW)
    return handover


def portable(pattern: str, sequence: int, subject: str = "", **more: str) -> StoredMessage:
    headers = {"X_Nats_Schedule": pattern, "X_Nats_Schedule_Target": "t.out", **more}
    return message_on(subject or f"s.{sequence}", sequence, **headers)


def fire_of(message: StoredMessage, fire_time: int, sequence: int) -> StoredMessage:
    """Make the message that a fire of a schedule stored."""
    block = block_with(Nats_Scheduler=message.subject, Nats_Schedule_Next="purge")
    block = with_identity(block, fire_identity(message.subject, message.sequence, fire_time))
    return StoredMessage(TARGET, sequence, fire_time, block, b"")


def kinds(handover: Handover) -> list[tuple[Cause, int | None]]:
    """Return what was found, and of which message; each says why."""
    findings = handover.findings(NOW)
    assert all(" " in finding.detail for finding in findings)
    return [(finding.kind, finding.sequence) for finding in findings]


def held(handover: Handover) -> list[int]:
    """Return the sequences of the schedules that the server will fire."""
    return [one.held.sequence for one in handover.handed_over(NOW)]


def test_a_schedule_that_both_read_alike_is_handed_over_without_a_word() -> None:
    handover = read(schedule(LATER), schedule("0 0 0 1 1 *", 2, "s.two"))
    assert (kinds(handover), held(handover)) == ([], [1, 2])


def test_a_schedule_under_a_later_message_would_be_revived() -> None:
    revived = (Cause.COVERED, 1)
    handover = read(schedule(LATER), plain(SCHEDULE, 2))
    assert (kinds(handover), held(handover)) == ([revived], [])
    assert kinds(read(schedule(LATER), portable(LATER, 2, SCHEDULE))) == [revived, (Cause.PORTABLE, 2)]
    assert kinds(read(schedule(LATER), schedule("never", 2))) == [revived, (Cause.UNUSABLE, 2)]
    buried = read(plain(SCHEDULE, 2))
    buried.take_buried([schedule(LATER), plain(SCHEDULE, 2)])
    assert kinds(buried) == [revived]
    unreadable = schedule("@daily", Nats_Schedule_Time_Zone="Mars/Olympus")
    assert kinds(read(unreadable, plain(SCHEDULE, 2))) == [], "the server cannot read it"


def test_an_invalid_schedule_with_a_pattern_would_be_adopted() -> None:
    for target in ("elsewhere", SCHEDULE, ""):
        assert kinds(read(schedule(LATER, Nats_Schedule_Target=target))) == [(Cause.INVALID, 1)], target


def test_what_is_done_or_replaced_and_still_there_is_removed() -> None:
    older = read(schedule(LATER), schedule(LATER, 2), schedule(LATER, 3))
    assert (kinds(older), held(older)) == ([(Cause.OLDER, 1), (Cause.OLDER, 2)], [3])
    done, cancel = schedule(PAST), message_on("s.cancel", 2, Nats_Scheduler=SCHEDULE, Nats_Schedule_Next="purge")
    for spent in (
        read(done, fire_of(done, START - HOUR, 2)),
        read(done, checkpoint=Checkpoint(START, 1)),  # its fire was consumed
        read(schedule(LATER), cancel),
        read(schedule(LATER, Nats_TTL="5s"), expired_by_us=True),
    ):
        assert kinds(spent) == [(Cause.SPENT, 1)]
    assert {Cause.SPENT, Cause.OLDER} == PURGED_KINDS - BLOCKING_KINDS, "all else only with consent"


def test_missed_fires_are_made_up_by_the_latest_and_once() -> None:
    one = schedule("@every 3s")
    handover = read(one)
    [make_up] = handover.make_ups(NOW)
    assert (make_up.fire_time, make_up.next_fire) == (START + 9 * SECOND, START + 12 * SECOND)
    assert (Cause.MISSED, 1) in kinds(handover)
    assert read(one, fire_of(one, START + 9 * SECOND, 2)).make_ups(NOW) == []
    over = message_on(SCHEDULE, 2, Nats_Scheduler="s.other", Nats_Schedule_Next="purge")
    [at_now] = read(schedule("@every 5s"), over).make_ups(NOW)
    assert (at_now.fire_time, at_now.next_fire, at_now.last) == (NOW, START + 15 * SECOND, 2)
    not_due = read(schedule("@every 1h"))
    assert (not_due.make_ups(NOW), kinds(not_due)) == ([], [])
    overdue = read(schedule(PAST))
    assert (kinds(overdue), held(overdue)) == ([(Cause.OVERDUE, 1)], [1]), "it is the server's to fire"


def test_an_interval_that_the_server_counts_anew_is_said_to_move() -> None:
    one = schedule("@every 1h", stored_at=START - 90 * 60 * SECOND)
    handover = read(one, fire_of(one, START - 30 * 60 * SECOND, 2))
    [(kind, detail, *_)] = handover.findings(NOW)
    assert kind is Cause.MOVED
    assert f"due at {format_rfc3339(START + HOUR // 2)}" in detail
    assert [one.next_fire for one in handover.handed_over(NOW)] == [NOW + HOUR]


def test_what_the_server_does_differently_blocks() -> None:
    for pattern, headers, kind in (
        ("@every 1.5s", {}, Cause.ROUNDED),
        ("@at 2300-01-01T00:00:00Z", {}, Cause.FAR),
        ("0 0 5 * * 4", {"Nats_Schedule_Time_Zone": "Africa/Cairo"}, Cause.GAP),
        (LATER, {"X_Nats_Schedule": LATER, "X_Nats_Schedule_Target": TARGET}, Cause.DOUBLED),
        *(("@every 1h", {f"Nats_Schedule_X_{name}": value}, Cause.POLICIES) for name, value in POLICIES),
    ):
        message = message_on(SCHEDULE, 1, Nats_Schedule=pattern, Nats_Schedule_Target=TARGET, **headers)
        assert kind in [found for found, _ in kinds(read(message))], (pattern, headers)
        assert kind in BLOCKING_KINDS
    for headers in ({"Nats_Schedule_Time_Zone": "Europe/Berlin"}, {"Nats_Schedule_X_Overlap": "allow"}):
        message = message_on(SCHEDULE, 1, Nats_Schedule="0 0 5 * * 4", Nats_Schedule_Target=TARGET, **headers)
        assert kinds(read(message)) == [], headers


def test_version_2_12_reads_no_repeating_schedule_and_no_source() -> None:
    handover = read(schedule("@every 1h"), schedule("0 0 0 1 1 *", 2, "s.two"), level=LEVEL_OF_2_12)
    assert (kinds(handover), held(handover)) == ([(Cause.UNREADABLE, 1), (Cause.UNREADABLE, 2)], [])
    uncovered = read(schedule(LATER), schedule("@every 1h", 2), level=LEVEL_OF_2_12)
    assert kinds(uncovered) == [(Cause.UNREADABLE, 2), (Cause.OLDER, 1)], "the delay under it"
    for header in ({"Nats_Schedule_Source": "s.source"}, {"Nats_Schedule_Rollup": "sub"}):
        message = message_on(SCHEDULE, 1, Nats_Schedule=LATER, Nats_Schedule_Target=TARGET, **header)
        assert kinds(read(message, level=LEVEL_OF_2_12)) == [(Cause.IGNORED, 1)], header


def test_a_paused_schedule_is_handed_over_without_versions_under_it() -> None:
    handover = read(paused(LATER))
    assert (kinds(handover), held(handover)) == ([(Cause.PAUSED, 1)], [])
    assert Cause.PAUSED not in BLOCKING_KINDS | PURGED_KINDS
    covers = read(schedule(LATER), paused(LATER, 2))
    assert (kinds(covers), held(covers)) == ([(Cause.OLDER, 1), (Cause.PAUSED, 2)], [])
    in_portable = message_on(SCHEDULE, 2, **{"X-Nats-Schedule-X-Paused": LATER, "X-Nats-Schedule-Target": TARGET})
    assert kinds(read(schedule(LATER), in_portable)) == [(Cause.COVERED, 1), (Cause.PORTABLE, 2)], "the server reads it"


def test_what_a_policy_holds_back_is_made_up_before_the_server_goes_on() -> None:
    for pattern, policies, kind, made_up in (
        ("@every 8s", {"Nats_Schedule_X_Jitter": "1h"}, Cause.MISSED, [8]),
        ("@at 2026-01-01T00:00:09Z", {"Nats_Schedule_X_Jitter": "1h"}, Cause.OVERDUE, []),
        ("@every 8s", {"Nats_Schedule_X_Overlap": "queue"}, Cause.MISSED, [8]),
    ):
        handover = read(schedule(pattern, 1, SCHEDULE, stored_at=START, body=b"", **policies))
        assert kinds(handover)[:1] == [(Cause.POLICIES, 1)]
        assert (kind, 1) in kinds(handover)
        assert [(one.fire_time - START) / SECOND for one in handover.make_ups(NOW)] == made_up, policies


def test_a_fire_to_be_skipped_is_not_made_up_before_the_server_goes_on() -> None:
    for missed, grace, made_up in (("skip", "1s", []), ("skip", "5s", [8]), ("all", "1s", [8]), ("once", "1s", [8])):
        handover = read(schedule("@every 8s", Nats_Schedule_X_Missed=missed, Nats_Schedule_X_Grace=grace))
        assert [(one.fire_time - START) // SECOND for one in handover.make_ups(NOW)] == made_up, (missed, grace)


def test_what_a_calendar_may_except_is_made_up_once_its_days_are_known() -> None:
    handover = read(schedule("@every 3s", Nats_Schedule_X_Except="calendar:work"))
    assert (handover.names_calendars, handover.make_ups(NOW)) == (True, [])
    handover.know(NO_DAY, NOW)
    assert [one.fire_time for one in handover.make_ups(NOW)] == [START + 9 * SECOND]
    handover.know(TODAY, NOW)
    assert handover.make_ups(NOW) == []
    assert not read(schedule("@every 3s")).names_calendars


TENTH = SECOND // 10


def fire_that_announces(of: str, sequence: int, following: int) -> StoredMessage:
    """Make a fire_that_announces as the server stores it, which announces the next one."""
    return message_on("t.out", sequence, Nats_Scheduler=of, Nats_Schedule_Next=format_rfc3339(following))


def listed(*messages: StoredMessage, now: int, fired_by: FiredBy = FiredBy.SERVER) -> ListedSchedule:
    """Return the only schedule that is stored."""
    stored = StoredSchedules(StreamRules("S", ("s.>", "t.>")), (ADR51,), fired_by)
    for message in messages:
        stored.take([message], now)
    (one,) = stored.view.page(now).answer().schedules
    return one


def test_the_next_fire_is_the_one_that_the_last_fire_announced() -> None:
    """A server that was down counts an interval from its start, which the pattern alone does not show."""
    every = schedule("@every 1h", 1)
    announced = START + 5 * HOUR + 17 * SECOND
    messages = [
        every,
        fire_that_announces(every.subject, 2, START + 4 * HOUR),
        fire_that_announces(every.subject, 3, announced),
    ]
    one = listed(*messages, now=START + 5 * HOUR)
    assert (one.next_fire, one.state) == (announced, State.WAITING)
    assert one.fire_after(announced) == announced + HOUR
    # Its own fires may be consumed, or replaced by a roll-up: the server continues all the same.
    assert listed(*messages, now=announced + 3 * HOUR).next_fire == announced + 4 * HOUR


def test_the_lateness_of_a_server_counts_from_the_time_it_announced() -> None:
    every, at = schedule("@every 10s", 1), schedule(f"@at {format_rfc3339(START + HOUR // 2)}", 2, subject="s.at")

    def fired(sequence: int, late: int, due: int, following: int | None, of: str = SCHEDULE) -> StoredMessage:
        announced = "purge" if following is None else format_rfc3339(START + following * SECOND)
        fire = message_on("t.out", sequence, Nats_Scheduler=of, Nats_Schedule_Next=announced)
        return fire._replace(stored_at=START + due * SECOND + late)

    messages = [
        every,
        at,
        fired(3, 2 * SECOND, 10, 20),
        fired(4, TENTH, 20, 35),  # from here on the interval is counted anew
        fired(5, 0, 35, 45),
        fired(6, -1, 45, 55),  # before its time: it was due at another one
        fired(7, 1, 85, 95),  # the fires before it were removed
        fired(8, 7 * SECOND, 1800, None, of="s.at"),
        fired(9, 1, 1800, None, of="s.gone"),
        fired(10, 1, 1800, None, of="t.out"),  # a message that ends a schedule of its own subject is no fire
    ]
    for fired_by, expected in (
        (FiredBy.SERVER, [(3, 2 * SECOND), (4, TENTH), (5, 0), (6, None), (7, None), (8, 7 * SECOND), (9, None)]),
        (FiredBy.NONE, []),
    ):
        found: list[FireConfirmed] = []
        stored = StoredSchedules(StreamRules("S", ("s.>", "t.>")), (ADR51,), fired_by, notify_fired=found.append)
        stored.take(messages, START + 2 * HOUR)
        late = [(one.stored_sequence, one.stored_at - one.send_time if one.is_time_known else None) for one in found]
        assert late == expected


def test_an_interval_with_a_fraction_is_rounded_as_the_server_does() -> None:
    """As the server does: it rounds each fire time to the second before it adds the interval."""
    for pattern, fires in (("@every 1.4s", [14, 24, 34, 44]), ("@every 1.5s", [15, 35, 55, 75])):
        one = listed(schedule(pattern, 1), now=START)
        found: list[int | None] = [one.next_fire]
        while len(found) < len(fires):
            found.append(one.fire_after(found[-1] or 0))
        assert found == [START + tenths * TENTH for tenths in fires]


def joined(*messages: StoredMessage) -> EngineView:
    """Read messages as a native server and the sidecar beside it do."""
    rules = StreamRules("S", ("s.>", "t.>"))
    own = StoredSchedules(rules, (PORTABLE,), FiredBy.SIDECAR)
    other = StoredSchedules(rules, (ADR51,), FiredBy.SERVER)
    for one in (own, other):
        one.take(messages, START)
    return own.view.joined(other.view)


def test_a_message_in_both_spellings_is_on_one_page_with_itself() -> None:
    both = {"Nats_Schedule": "@every 2h", "Nats_Schedule_Target": "t.out"}
    messages = [
        portable("@every 2h", 1, "s.both", **both),
        schedule("@every 3h", 2, "s.later"),
        portable("@every 1h", 3, "s.soon"),
    ]
    first = joined(*messages).page(START, limit=2).answer()
    second = joined(*messages).page(START, limit=2, after=first.following).answer()
    pages = [[(one.subject, one.fired_by) for one in page.schedules] for page in (first, second)]
    assert pages == [
        [("s.soon", FiredBy.SIDECAR), ("s.both", FiredBy.SIDECAR), ("s.both", FiredBy.SERVER)],
        [("s.later", FiredBy.SERVER)],
    ]


def test_what_is_rejected_is_listed_by_subject() -> None:
    wrong = [schedule("@never", 1, "s.b"), portable("@never", 2, "s.a"), schedule("@never", 3, "s.c")]
    view = joined(*wrong, message_on("s.near", 4, **{"Nats-Schedul": "@daily"}))
    first = done(view.rejected_page(Query(), 2, ""))
    second = done(view.rejected_page(Query(), 2, first.messages[-1].subject))
    assert [([one.subject for one in page.messages], page.is_last) for page in (first, second)] == [
        (["s.a", "s.b"], False),
        (["s.c"], True),
    ]
    assert (view.rejected_count, view.misnamed_count) == (3, 1)
    assert [one.subject for one in done(view.misnamed_page(Query(), 9, "")).messages] == ["s.near"]


def test_what_is_gone_is_held_no_more() -> None:
    stored = StoredSchedules(StreamRules("S", ("s.>", "t.>")), (ADR51,), FiredBy.SERVER)
    stored.take([schedule("@daily", 1, "s.1"), schedule("@never", 2, "s.2"), schedule("@daily", 5, "s.3")], START)
    assert (stored.count, stored.read_through) == (3, 5)
    stored.remove([("s.1", 1), ("s.2", 2), ("s.3", 4), ("s.none", 3)], START)
    assert [held.subject for held in stored.held] == ["s.3"], "another message than the one that is gone"
    assert stored.rejected == {}
    stored.take([schedule("@daily", 7, "s.1")], START)
    assert stored.count == 2
