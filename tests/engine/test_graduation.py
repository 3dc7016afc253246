"""The findings of a graduation: each case in which the server's view of the stored messages is not ours."""

from typing import Any

import pytest

from nats_scheduler.engine.inputs import CheckpointLoaded
from nats_scheduler.engine.views.stored import BLOCKING_KINDS, PURGED_KINDS, Cause, Finding, Handover, blocked_by
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.reading import paused_block
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, TARGET, message_on, plain, schedule
from tests.engine.missed_builders import policies, stored_in
from tests.harness.blocks import block_with, with_identity

LEVEL_OF_2_12, LEVEL_OF_2_14 = 3, 4
RULES = StreamRules("S", ("s.>", "t.>"))
LATER = f"@at {format_rfc3339(START + HOUR)}"
PAST = f"@at {format_rfc3339(START - HOUR)}"
NOW = START + 10 * SECOND


def read(
    *messages: StoredMessage,
    level: int = LEVEL_OF_2_14,
    checkpoint: CheckpointLoaded | None = None,
    expired_by_us: bool = False,
) -> Handover:
    """Read a stream with these messages."""
    rules = StreamRules("S", ("s.>", "t.>"), allow_msg_ttl=expired_by_us)
    checkpoints = [checkpoint] if checkpoint is not None else []
    handover = Handover(rules, Capabilities(api_level=level), checkpoints, expired_by_us=expired_by_us)
    handover.take(messages, NOW)
    return handover


def fire_of(message: StoredMessage, fire_time: int, sequence: int) -> StoredMessage:
    """Make the message that a fire of a schedule stored."""
    block = block_with(Nats_Scheduler=message.subject, Nats_Schedule_Next="purge")
    block = with_identity(block, fire_identity(message.subject, message.sequence, fire_time))
    return StoredMessage(TARGET, sequence, fire_time, block, b"")


def kinds(handover: Handover) -> list[tuple[Cause, int | None]]:
    """Return what was found, and of which message."""
    return [(finding.kind, finding.sequence) for finding in handover.findings(NOW)]


def held(handover: Handover) -> list[int]:
    """Return the sequences of the schedules that the server will fire."""
    return [one.held.sequence for one in handover.handed_over(NOW)]


def test_a_schedule_that_both_read_alike_is_handed_over_without_a_word() -> None:
    handover = read(schedule(LATER), schedule("0 0 0 1 1 *", 2, "s.two"))
    assert (kinds(handover), held(handover)) == ([], [1, 2])


def test_a_schedule_under_a_later_message_would_be_revived() -> None:
    handover = read(schedule(LATER), plain(SCHEDULE, 2))
    assert (kinds(handover), held(handover)) == ([(Cause.COVERED, 1)], [])


def test_a_schedule_under_one_with_portable_headers_would_be_revived() -> None:
    portable = message_on(SCHEDULE, 2, **{"X-Nats-Schedule": LATER, "X-Nats-Schedule-Target": TARGET})
    assert kinds(read(schedule(LATER), portable)) == [(Cause.COVERED, 1), (Cause.PORTABLE, 2)]


def test_a_schedule_under_an_unreadable_one_would_be_revived() -> None:
    assert kinds(read(schedule(LATER), schedule("never", 2))) == [(Cause.COVERED, 1), (Cause.UNUSABLE, 2)]


def test_what_lies_buried_counts_for_the_server_alone() -> None:
    handover = read(plain(SCHEDULE, 2))
    handover.take_buried([schedule(LATER), plain(SCHEDULE, 2)])
    assert kinds(handover) == [(Cause.COVERED, 1)]


@pytest.mark.parametrize("target", ["elsewhere", SCHEDULE, ""])
def test_an_invalid_schedule_with_a_pattern_would_be_adopted_without_validation(target: str) -> None:
    assert kinds(read(schedule(LATER, Nats_Schedule_Target=target))) == [(Cause.INVALID, 1)]


def test_an_older_version_is_removed_and_the_newest_handed_over() -> None:
    handover = read(schedule(LATER), schedule(LATER, 2), schedule(LATER, 3))
    assert (kinds(handover), held(handover)) == ([(Cause.OLDER, 1), (Cause.OLDER, 2)], [3])


def test_a_schedule_that_fired_and_is_still_there_is_removed() -> None:
    done = schedule(PAST)
    assert kinds(read(done, fire_of(done, START - HOUR, 2))) == [(Cause.SPENT, 1)]


def test_a_checkpoint_tells_of_a_fire_that_was_consumed_away() -> None:
    assert kinds(read(schedule(PAST), checkpoint=CheckpointLoaded(START, 1))) == [(Cause.SPENT, 1)]


def test_a_cancelled_schedule_that_is_still_there_is_removed() -> None:
    cancel = message_on("s.cancel", 2, Nats_Scheduler=SCHEDULE, Nats_Schedule_Next="purge")
    assert kinds(read(schedule(LATER), cancel)) == [(Cause.SPENT, 1)]


def test_a_schedule_whose_ttl_ran_out_while_nobody_looked_is_removed() -> None:
    assert kinds(read(schedule(LATER, Nats_TTL="5s"), expired_by_us=True)) == [(Cause.SPENT, 1)]


def test_an_overdue_delay_is_the_servers_to_fire() -> None:
    handover = read(schedule(PAST))
    assert (kinds(handover), held(handover)) == ([(Cause.OVERDUE, 1)], [1])


def test_missed_fires_are_made_up_by_the_latest() -> None:
    handover = read(schedule("@every 3s"))
    [make_up] = handover.make_ups(NOW)
    assert (make_up.fire_time, make_up.next_fire) == (START + 9 * SECOND, START + 12 * SECOND)
    assert (Cause.MISSED, 1) in kinds(handover)


def test_what_was_made_up_is_not_made_up_again() -> None:
    one = schedule("@every 3s")
    assert read(one, fire_of(one, START + 9 * SECOND, 2)).make_ups(NOW) == []


def test_nothing_is_made_up_for_a_schedule_that_is_not_due() -> None:
    handover = read(schedule("@every 1h"))
    assert (handover.make_ups(NOW), kinds(handover)) == ([], [])


def test_an_interval_that_the_server_counts_anew_is_said_to_move() -> None:
    one = schedule("@every 1h", stored_at=START - 90 * 60 * SECOND)
    handover = read(one, fire_of(one, START - 30 * 60 * SECOND, 2))
    [(kind, detail, *_)] = handover.findings(NOW)
    assert kind is Cause.MOVED
    assert f"due at {format_rfc3339(START + HOUR // 2)}" in detail
    assert [one.next_fire for one in handover.handed_over(NOW)] == [NOW + HOUR]


@pytest.mark.parametrize(
    ("pattern", "headers", "kind"),
    [
        ("@every 1.5s", {}, Cause.ROUNDED),
        ("@at 2300-01-01T00:00:00Z", {}, Cause.FAR),
        ("@every 2562047h", {}, Cause.FAR),
        ("0 0 5 * * 4", {"Nats_Schedule_Time_Zone": "Africa/Cairo"}, Cause.GAP),
        ("0 0 5 * * 4", {"Nats_Schedule_Time_Zone": "Australia/Lord_Howe"}, Cause.GAP),
        (LATER, {"X_Nats_Schedule": LATER, "X_Nats_Schedule_Target": TARGET}, Cause.DOUBLED),
        ("@every 1h", {"Nats_Schedule_X_Limit": "3"}, Cause.POLICIES),
    ],
)
def test_what_the_server_does_differently_blocks(pattern: str, headers: dict[str, str], kind: Cause) -> None:
    message = message_on(SCHEDULE, 1, Nats_Schedule=pattern, Nats_Schedule_Target=TARGET, **headers)
    assert kind in [found for found, _ in kinds(read(message))]
    assert kind in BLOCKING_KINDS


def test_a_zone_whose_clock_skips_no_midnight_does_not_block() -> None:
    assert kinds(read(schedule("0 0 5 * * 4", Nats_Schedule_Time_Zone="Europe/Berlin"))) == []


def test_what_the_server_cannot_read_is_not_revived() -> None:
    unreadable = schedule("@daily", Nats_Schedule_Time_Zone="Mars/Olympus")
    assert kinds(read(unreadable, plain(SCHEDULE, 2))) == []


def utc(instant: int) -> str:
    return format_rfc3339(instant)


DONE = schedule(PAST)
CANCEL = message_on("s.cancel", 2, Nats_Scheduler=SCHEDULE, Nats_Schedule_Next="purge")


@pytest.mark.parametrize(
    ("messages", "options", "finding"),
    [
        (
            [schedule(LATER), plain(SCHEDULE, 2)],
            {},
            Finding(
                Cause.COVERED, "a later message on its subject ended it, and the server revives it", SCHEDULE, 1, LATER
            ),
        ),
        (
            [schedule(LATER), schedule("@every 9s", 2)],
            {},
            Finding(Cause.OLDER, "an older version, which lies under a newer one", SCHEDULE, 1, LATER),
        ),
        (
            [DONE, fire_of(DONE, START - HOUR, 2)],
            {},
            Finding(Cause.SPENT, "fired and not removed yet", SCHEDULE, 1, PAST),
        ),
        ([schedule(LATER), CANCEL], {}, Finding(Cause.SPENT, "cancelled and not removed yet", SCHEDULE, 1, LATER)),
        (
            [schedule(LATER, Nats_TTL="5s")],
            {"expired_by_us": True},
            Finding(Cause.SPENT, "its TTL has run out", SCHEDULE, 1, LATER),
        ),
        (
            [schedule(LATER, Nats_Schedule_Target="")],
            {},
            Finding(
                Cause.INVALID,
                "Nats-Schedule-Target of '' is missing or empty: expected a subject such as 'orders.due' "
                "(server code 10190)",
                SCHEDULE,
                1,
                LATER,
            ),
        ),
        (
            [schedule("never")],
            {},
            Finding(
                Cause.UNUSABLE,
                "stays stored and never fires: Nats-Schedule of 'never' is not a valid pattern: expected a pattern "
                "such as '@every 5m', '@at 2026-11-20T15:04:05Z', '@daily' or '0 30 9 * * mon-fri' (server code 10189)",
                SCHEDULE,
                1,
            ),
        ),
        (
            [schedule("@every 3s")],
            {},
            Finding(
                Cause.MISSED,
                f"due at {utc(START + 9 * SECOND)} while nobody fired: made up before the server takes over",
                SCHEDULE,
                1,
                "@every 3s",
            ),
        ),
        (
            [schedule("@every 3s")],
            {},
            Finding(
                Cause.MOVED,
                f"would be due at {utc(START + 12 * SECOND)}, and the server counts anew: {utc(START + 13 * SECOND)}",
                SCHEDULE,
                1,
                "@every 3s",
            ),
        ),
        (
            [schedule("@every 1h")],
            {"level": LEVEL_OF_2_12},
            Finding(
                Cause.UNREADABLE,
                "servers before 2.14 know only @at: it stays stored, unfired",
                SCHEDULE,
                1,
                "@every 1h",
            ),
        ),
    ],
)
def test_a_finding_says_what_would_happen_to_which_message(
    messages: list[StoredMessage], options: dict[str, Any], finding: Finding
) -> None:
    assert finding in read(*messages, **options).findings(NOW)


def test_what_is_handed_over_comes_soonest_first() -> None:
    late, soon = schedule(LATER), schedule("@every 1m", 2, "s.two")
    handover = read(late, soon, schedule(PAST, 3, "s.three"))
    order = [(one.held.sequence, one.next_fire) for one in handover.handed_over(NOW)]
    assert order == [(3, START - HOUR), (2, START + 60 * SECOND), (1, START + HOUR)]


def test_2_12_reads_no_repeating_schedule() -> None:
    handover = read(schedule("@every 1h"), schedule("0 0 0 1 1 *", 2, "s.two"), level=LEVEL_OF_2_12)
    assert (kinds(handover), held(handover)) == ([(Cause.UNREADABLE, 1), (Cause.UNREADABLE, 2)], [])


@pytest.mark.parametrize("header", [{"Nats_Schedule_Source": "s.source"}, {"Nats_Schedule_Rollup": "sub"}])
def test_2_12_ignores_sources_and_roll_ups(header: dict[str, str]) -> None:
    message = message_on(SCHEDULE, 1, Nats_Schedule=LATER, Nats_Schedule_Target=TARGET, **header)
    assert kinds(read(message, level=LEVEL_OF_2_12)) == [(Cause.IGNORED, 1)]


def test_on_2_12_an_unreadable_version_uncovers_the_delay_under_it() -> None:
    handover = read(schedule(LATER), schedule("@every 1h", 2), level=LEVEL_OF_2_12)
    assert kinds(handover) == [(Cause.UNREADABLE, 2), (Cause.OLDER, 1)]


def paused(pattern: str, sequence: int = 1, **more: str) -> StoredMessage:
    """Make a paused schedule."""
    message = schedule(pattern, sequence, SCHEDULE, stored_at=START, body=b"", **more)
    return message._replace(block=paused_block(message.block, ADR51))


def test_a_paused_schedule_is_handed_over_unchanged() -> None:
    handover = read(paused(LATER))
    assert (kinds(handover), held(handover)) == ([(Cause.PAUSED, 1)], [])
    assert Cause.PAUSED not in BLOCKING_KINDS | PURGED_KINDS


def test_an_active_version_under_a_paused_one_is_removed_so_that_the_server_does_not_revive_it() -> None:
    handover = read(schedule(LATER), paused(LATER, 2))
    assert (kinds(handover), held(handover)) == ([(Cause.OLDER, 1), (Cause.PAUSED, 2)], [])


def test_an_active_version_under_a_paused_one_with_portable_headers_would_be_revived() -> None:
    portable = message_on(SCHEDULE, 2, **{"X-Nats-Schedule-X-Paused": LATER, "X-Nats-Schedule-Target": TARGET})
    assert kinds(read(schedule(LATER), portable)) == [(Cause.COVERED, 1), (Cause.PORTABLE, 2)]


@pytest.mark.parametrize(
    ("pattern", "headers", "kind"),
    [
        ("@every 1h", {"Nats_Schedule_X_Limit": "3"}, Cause.POLICIES),
        ("@every 1h", {"Nats_Schedule_X_Missed": "skip"}, Cause.POLICIES),
        ("@every 3600500ms", {}, Cause.ROUNDED),
    ],
)
def test_of_a_paused_schedule_the_same_is_found_as_of_an_active_one(
    pattern: str, headers: dict[str, str], kind: Cause
) -> None:
    active = read(schedule(pattern, 1, SCHEDULE, stored_at=START, body=b"", **headers))
    assert [one for one in kinds(active) if one[0] is not Cause.MOVED] == [(kind, 1)]
    assert kinds(read(paused(pattern, 1, **headers))) == [(kind, 1), (Cause.PAUSED, 1)]


def test_of_a_paused_schedule_without_bounds_notes_are_no_finding() -> None:
    assert kinds(read(paused(LATER, Nats_Schedule_X_Note="later"))) == [(Cause.PAUSED, 1)]


def test_2_12_reads_no_repeating_schedule_when_it_is_resumed() -> None:
    assert kinds(read(paused("@every 1h"), level=LEVEL_OF_2_12)) == [(Cause.UNREADABLE, 1), (Cause.PAUSED, 1)]


def test_a_paused_schedule_that_would_be_rejected_stays_stored() -> None:
    assert kinds(read(paused("never"))) == [(Cause.UNUSABLE, 1)]


def test_a_kind_blocks_until_it_is_accepted_and_a_refusal_always() -> None:
    findings = [
        Finding(Cause.REFUSED, ""),
        Finding(Cause.COVERED, ""),
        Finding(Cause.GAP, ""),
        Finding(Cause.OLDER, ""),
    ]
    assert blocked_by(findings, lambda kind: kind is not Cause.GAP) == [Cause.GAP, Cause.REFUSED]
    assert blocked_by(findings, lambda kind: False) == [Cause.COVERED, Cause.GAP, Cause.REFUSED]


def test_whatever_could_be_lost_is_removed_only_with_consent_or_because_it_is_done() -> None:
    assert {Cause.SPENT, Cause.OLDER} == PURGED_KINDS - BLOCKING_KINDS


@pytest.mark.parametrize(
    ("pattern", "kind"), [("@every 8s", Cause.MISSED), ("@at 2026-01-01T00:00:09Z", Cause.OVERDUE)]
)
def test_a_fire_that_is_delayed_by_a_jitter_is_made_up_before_the_server_goes_on_without_it(
    pattern: str, kind: Cause
) -> None:
    handover = read(schedule(pattern, Nats_Schedule_X_Jitter="1h"))
    assert kinds(handover)[:1] == [(Cause.POLICIES, 1)]
    assert (kind, 1) in kinds(handover)
    made_up = [one.fire_time - START for one in handover.make_ups(NOW)]
    assert made_up == ([8 * SECOND] if kind is Cause.MISSED else [])


@pytest.mark.parametrize("policy", [policies("all"), policies("skip"), policies("all 3"), policies(report="true")])
def test_policies_for_missed_fires_stop_a_graduation_because_the_server_knows_none(policy: dict[str, str]) -> None:
    assert (Cause.POLICIES, 1) in kinds(read(stored_in("@every 8s", policy)))


@pytest.mark.parametrize(
    ("missed", "grace", "made_up"), [("skip", "1s", []), ("skip", "5s", [8]), ("all", "1s", [8]), ("once", "1s", [8])]
)
def test_a_fire_that_is_to_be_skipped_is_not_made_up_before_the_server_goes_on(
    missed: str, grace: str, made_up: list[int]
) -> None:
    handover = read(schedule("@every 8s", Nats_Schedule_X_Missed=missed, Nats_Schedule_X_Grace=grace))
    assert [(one.fire_time - START) // SECOND for one in handover.make_ups(NOW)] == made_up


def test_a_schedule_that_waits_for_its_fire_before_blocks_the_handover_and_is_made_up() -> None:
    one = schedule("@every 8s", Nats_Schedule_X_Overlap="queue")
    handover = read(one)
    assert kinds(handover)[:1] == [(Cause.POLICIES, 1)]
    assert [made.fire_time - START for made in handover.make_ups(NOW)] == [8 * SECOND]
    assert (Cause.POLICIES, 1) not in kinds(read(schedule("@every 8s", Nats_Schedule_X_Overlap="allow")))
