"""When its stream removes a schedule: `message/ages`; and what is said of that."""

import pytest

from nats_scheduler.message.ages import Removal, is_cut_off, removal_of, what_helps
from nats_scheduler.message.capabilities import capabilities_of
from nats_scheduler.message.definition import Definition, read_definition
from nats_scheduler.message.dialect import PORTABLE
from nats_scheduler.message.headers import EMPTY_BLOCK, with_headers
from nats_scheduler.message.schedule_findings import findings_about
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule.bounds import Bounded, Bounds
from nats_scheduler.schedule.instants import DAY, HOUR
from nats_scheduler.testing.manual_clock import START
from tests.schedule.reading import read

V2_10, V2_11 = capabilities_of("2.10.26"), capabilities_of("2.11.11")

FIRES_NO_MORE = "max_age of the stream (1h0m0s) removes it at that age, and then it never fires again: "
NEVER_HELPS = "published with Nats-TTL: never it stays"


def noted(pattern: str, rules: StreamRules, server: str | None = "2.11.11", **policies: str) -> str:
    headers = {"X-Nats-Schedule": pattern, "X-Nats-Schedule-Target": "s.out"}
    headers |= {name.replace("_", "-"): value for name, value in policies.items()}
    block = with_headers(EMPTY_BLOCK, [(name.encode(), value.encode()) for name, value in headers.items()])
    defined = read_definition(block, "s.s", rules, PORTABLE, START)
    assert isinstance(defined, Definition)
    found = findings_about(block, defined, rules, START, None if server is None else capabilities_of(server))
    return "; ".join(f"{one.what}: {one.command}" for one in found)


def rules(max_age: int = HOUR, *, ttl: bool = True) -> StreamRules:
    return StreamRules("S", ("s.>",), max_age=max_age, allow_msg_ttl=ttl)


def test_a_schedule_that_its_stream_ends_before_its_last_fire_is_noted() -> None:
    assert noted("@every 1m", rules()) == FIRES_NO_MORE + NEVER_HELPS
    assert noted("@every 1m", rules(), X_Nats_Schedule_X_Limit="100") == FIRES_NO_MORE + NEVER_HELPS


@pytest.mark.parametrize(
    ("pattern", "max_age", "headers"),
    [
        ("@every 1m", 0, {}),
        ("@every 1m", HOUR, {"Nats_TTL": "never"}),
        ("@every 1m", HOUR, {"X_Nats_Schedule_X_Limit": "3"}),
        ("@at 2020-01-01T00:00:00Z", HOUR, {}),
        ("@every 2h", DAY, {"X_Nats_Schedule_X_Limit": "3"}),
    ],
)
def test_one_that_is_done_by_then_or_stays_is_not(pattern: str, max_age: int, headers: dict[str, str]) -> None:
    assert noted(pattern, rules(max_age), **headers) == ""


def test_a_message_lives_as_long_as_the_shorter_limit_allows() -> None:
    for headers, max_age, removal in (
        (b"", HOUR, Removal(START + HOUR, is_by_age=True)),
        (b"Nats-TTL: 2h\r\n", HOUR, Removal(START + HOUR, is_by_age=True)),
        (b"Nats-TTL: 1h\r\n", HOUR, Removal(START + HOUR, is_by_age=False)),
        (b"Nats-TTL: 1h\r\n", 0, Removal(START + HOUR, is_by_age=False)),
        (b"Nats-TTL: never\r\n", HOUR, None),
        (b"", 0, None),
    ):
        assert removal_of(b"NATS/1.0\r\n" + headers + b"\r\n", START, rules(max_age), V2_11) == removal, headers
    never = b"NATS/1.0\r\nNats-TTL: never\r\n\r\n"
    for ignoring, server in ((rules(ttl=False), V2_11), (rules(), V2_10)):
        assert removal_of(never, START, ignoring, server) == Removal(START + HOUR, is_by_age=True)


def test_what_helps_depends_on_the_server_and_the_stream() -> None:
    in_time = "raise max_age, or publish it again before that"
    assert noted("@every 1m", rules(), "2.10.26") == FIRES_NO_MORE + in_time
    assert noted("@every 1m", rules(), "2.10.26", Nats_TTL="never") == FIRES_NO_MORE + in_time, "2.10 knows no TTLs"
    assert (
        what_helps(rules(ttl=False), V2_11)
        == "published with Nats-TTL: never, on a stream with allow_msg_ttl, it stays"
    )
    assert noted("@every 1m", rules(), None) == f"{FIRES_NO_MORE}{NEVER_HELPS} from 2.11 on"
    assert what_helps(rules(ttl=False), V2_10) == in_time


def test_the_last_fire_before_the_end_is_the_last_one() -> None:
    timetable = Timetable(Bounded(read("@every 1m"), Bounds(limit=3)), START)
    last = timetable.fires(3)[-1]
    assert [is_cut_off(timetable, last + by) for by in (-1, 0, 1)] == [True, False, False]
