"""A new schedule is written in the headers that fire on its stream, and whose policies have an effect there."""

from dataclasses import replace

import pytest

from nats_scheduler.control.errors import NotPossibleError, NotServedError
from nats_scheduler.control.spelling import check_edit, spelling_of
from nats_scheduler.control.store_port import Served
from nats_scheduler.control.words import edited
from nats_scheduler.message.capabilities import capabilities_of
from nats_scheduler.message.dialect import ADR51, PORTABLE, Dialect
from nats_scheduler.message.headers import EMPTY_BLOCK, with_headers
from nats_scheduler.message.schedule_form import Edit
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import SECOND

RULES = StreamRules(name="S", subjects=("S.>",))
BOTH = (ADR51, PORTABLE)
EMULATED = Served(RULES, BOTH, is_native=False, server=capabilities_of("2.11.0"))
NATIVE = Served(RULES, BOTH, is_native=True, server=capabilities_of("2.14.0"))
AT_ONLY = Served(RULES, BOTH, is_native=True, server=capabilities_of("2.12.0"))
PORTABLE_ONLY = Served(RULES, (PORTABLE,), is_native=False, server=capabilities_of("2.14.0"))
AT, DAILY = "@at 2200-01-01T00:00:00Z", "@daily"
NOW = 1_700_000_000 * SECOND


def headers(pattern: str, *more: str) -> list[tuple[bytes, bytes]]:
    """Return the headers of a schedule; further ones are named without `Nats-Schedule-`."""
    names = ["", "-Target", *(f"-{name}" for name in more)]
    return [(b"Nats-Schedule" + name.encode(), b"value" if name else pattern.encode()) for name in names]


def test_the_spelling_is_the_one_that_gives_what_is_asked_for() -> None:
    asked: list[tuple[Served, str, tuple[str, ...], Dialect]] = [
        (EMULATED, DAILY, (), ADR51),
        (EMULATED, DAILY, ("Source", "Time-Zone", "X-Jitter", "X-Note"), ADR51),
        (EMULATED, DAILY, ("X-Syntax",), PORTABLE),
        (EMULATED, AT, ("X-Target",), PORTABLE),
        (NATIVE, DAILY, ("Source", "Time-Zone", "Rollup", "TTL"), ADR51),
        (NATIVE, DAILY, ("X-Note", "X-Owner"), ADR51),
        (NATIVE, DAILY, ("X-Owner", "X-Jitter"), PORTABLE),
        (AT_ONLY, AT, ("TTL", "X-Note"), ADR51),
        (AT_ONLY, AT, ("Source",), PORTABLE),
        (AT_ONLY, AT, ("Rollup",), PORTABLE),
        (AT_ONLY, DAILY, (), PORTABLE),
        (PORTABLE_ONLY, AT, (), PORTABLE),
    ]
    for served, pattern, more, spelling in asked:
        assert spelling_of(served, headers(pattern, *more), NOW) is spelling, (served.server, pattern, more)
    for served in (EMULATED, NATIVE, AT_ONLY, PORTABLE_ONLY):
        assert spelling_of(served, headers(AT), NOW, portable=True) is PORTABLE, "if it is asked for"
    for pattern in ("@every soon", "@daily nonsense", "@at tomorrow", ""):
        assert spelling_of(AT_ONLY, headers(pattern), NOW) is ADR51, "it is left to what checks it"


def test_a_sidecar_fires_what_the_server_gets_wrong() -> None:
    zone = (b"Nats-Schedule-Time-Zone", b"Africa/Cairo")
    for written in (headers("@every 1.4s"), [*headers("@daily"), zone]):
        assert spelling_of(NATIVE, written, NOW) is PORTABLE
        assert spelling_of(EMULATED, written, NOW) is ADR51
        assert spelling_of(NATIVE, written, NOW, has_sidecar=False) is ADR51
        assert spelling_of(replace(NATIVE, dialects=(ADR51,)), written, NOW) is ADR51


def test_a_time_after_2262_is_always_portable() -> None:
    assert spelling_of(NATIVE, headers("@at 2300-01-01T00:00:00Z"), NOW, has_sidecar=False) is PORTABLE


def test_a_spelling_that_nothing_fires_is_refused() -> None:
    for served, written, reason in (
        (AT_ONLY, headers(AT, "X-Limit", "X-Note", "X-Jitter"), "only a sidecar heeds X-Jitter, X-Limit"),
        (AT_ONLY, headers(DAILY), "a server of 2.12 fires @at only"),
        (AT_ONLY, headers(AT, "Rollup"), "a server of 2.12 ignores a source and a roll-up"),
        (NATIVE, headers("@at 2300-01-01T00:00:00Z"), "a server fires a time after 2262 at once"),
        (NATIVE, headers(AT, "X-Target"), "only a sidecar fires into another stream"),
        (NATIVE, headers(DAILY, "X-Syntax"), "only a sidecar reads a pattern of value"),
    ):
        only_server = replace(served, dialects=(ADR51,))
        begin = "nothing would fire this schedule on stream S"
        with pytest.raises(NotServedError) as refused:
            spelling_of(only_server, written, NOW)
        assert str(refused.value) == f"{begin}: {reason}, and nothing fires portable headers (X-Nats-Schedule) there"
        with pytest.raises(NotServedError) as refused:
            spelling_of(only_server, written, NOW, missing="no sidecar answers")
        assert str(refused.value) == f"{begin}: {reason}, and no sidecar answers"
    with pytest.raises(NotServedError, match="on stream S: portable headers are asked for, and nothing fires"):
        spelling_of(replace(NATIVE, dialects=(ADR51,)), headers(AT), NOW, portable=True)


def edit_of(*headers: str, unset: tuple[str, ...] = ()) -> Edit:
    """Return an edit; names are those without `Nats-Schedule`."""
    pairs = [one.partition(": ") for one in headers]
    return Edit(
        [(b"Nats-Schedule" + name.encode(), value.encode()) for name, _, value in pairs],
        [b"Nats-Schedule" + name.encode() for name in unset],
    )


BEFORE = with_headers(EMPTY_BLOCK, headers(AT, "X-Jitter", "Source"))
"""A schedule with a policy and a source, which the server ignores: another client stored it so."""


def test_an_edit_that_sets_what_the_server_does_not_do_is_refused() -> None:
    for served, edit, reason in (
        (NATIVE, edit_of("-X-Limit: 3"), "only a sidecar heeds X-Limit"),
        (NATIVE, edit_of("-X-Jitter: 3s"), "only a sidecar heeds X-Jitter"),
        (NATIVE, edit_of(": @at 2300-01-01T00:00:00Z"), "a server fires a time after 2262 at once"),
        (NATIVE, edit_of("-X-Target: jobs.run"), "only a sidecar fires into another stream"),
        (NATIVE, edit_of("-X-Syntax: crontab"), "only a sidecar reads a pattern of crontab"),
        (AT_ONLY, edit_of(": @every 5m"), "a server of 2.12 fires @at only"),
        (AT_ONLY, edit_of("-Rollup: sub"), "a server of 2.12 ignores a source and a roll-up"),
    ):
        refused = f"the server fires this schedule, and {reason}: replace the schedule"
        with pytest.raises(NotPossibleError, match=refused):
            check_edit(served, edited(BEFORE, edit), edit, NOW)
    daily, zone = with_headers(EMPTY_BLOCK, headers(DAILY)), edit_of("-Time-Zone: Europe/Berlin")
    with pytest.raises(NotPossibleError, match="fires @at only"):
        check_edit(AT_ONLY, edited(daily, zone), zone, NOW)
