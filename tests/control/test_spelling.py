"""A new schedule is written in the headers that fire on its stream, and whose policies have an effect there."""

import pytest

from nats_scheduler.control.errors import NotServedError
from nats_scheduler.control.port import Served
from nats_scheduler.control.spelling import spelling_of
from nats_scheduler.message.dialect import ADR51, PORTABLE, Dialect
from nats_scheduler.message.stream_rules import StreamRules

RULES = StreamRules(name="S", subjects=("S.>",))
BOTH = (ADR51, PORTABLE)
EMULATED = Served(RULES, BOTH, is_native=False, server_version="2.11.11")
NATIVE = Served(RULES, BOTH, is_native=True, server_version="2.14.6")
AT_ONLY = Served(RULES, BOTH, is_native=True, server_version="2.12.8")
PORTABLE_ONLY = Served(RULES, (PORTABLE,), is_native=False, server_version="2.15.1")
AT, DAILY = "@at 2200-01-01T00:00:00Z", "@daily"


def headers(pattern: str, *more: str) -> list[tuple[bytes, bytes]]:
    """Return the headers of a schedule; further ones are named without `Nats-Schedule-`."""
    names = ["", "-Target", *(f"-{name}" for name in more)]
    return [(b"Nats-Schedule" + name.encode(), b"value" if name else pattern.encode()) for name in names]


@pytest.mark.parametrize(
    ("served", "pattern", "more", "spelling"),
    [
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
    ],
)
def test_the_spelling_is_the_one_that_gives_what_is_asked_for(
    served: Served, pattern: str, more: tuple[str, ...], spelling: Dialect
) -> None:
    assert spelling_of(served, headers(pattern, *more)) is spelling


@pytest.mark.parametrize("served", [EMULATED, NATIVE, AT_ONLY, PORTABLE_ONLY])
def test_the_portable_spelling_can_be_asked_for_everywhere(served: Served) -> None:
    assert spelling_of(served, headers(AT), portable=True) is PORTABLE


def test_a_spelling_that_nothing_fires_is_refused() -> None:
    only_server = Served(RULES, (ADR51,), is_native=True, server_version="2.12.8")
    with pytest.raises(NotServedError, match="X-Jitter, X-Limit needs them"):
        spelling_of(only_server, headers(AT, "X-Limit", "X-Note", "X-Jitter"))
    with pytest.raises(NotServedError, match="they were asked for"):
        spelling_of(only_server, headers(AT), portable=True)
    with pytest.raises(NotServedError, match=r"the server itself \(2.12.8\) fires @at only"):
        spelling_of(only_server, headers(DAILY))
