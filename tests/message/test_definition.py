"""Schedules are read and rejected in the server's order, with the server's codes and in one sentence."""

from nats_scheduler.message.definition import Definition, read_definition, read_pattern
from nats_scheduler.message.dialect import ADR51, PORTABLE
from nats_scheduler.message.reading import Reading, read_message
from nats_scheduler.message.rejection import FAILED, MAX_KEPT_CHARS, TTL_INVALID, Rejection
from nats_scheduler.message.restrictions import UNRESTRICTED, Restrictions
from nats_scheduler.message.schedule_form import Terms
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.invalid import MAX_SHOWN_CHARS
from nats_scheduler.schedule.patterns import Cron, Syntax, parse_pattern
from tests.harness.blocks import block_of
from tests.message.blocks import portable
from tests.message.recorded import AT, REJECTIONS, Headers, Stream, schedule

SUBJECTS = ("orders.>", "sample.*")
RULES: dict[Stream, StreamRules] = {
    "full": StreamRules("ORDERS", SUBJECTS, allow_msg_ttl=True),
    "bare": StreamRules("ORDERS", SUBJECTS),
    "off": StreamRules("ORDERS", SUBJECTS, schedules_enabled=False),
}
STORED_AT = 1_790_000_000_000_000_000


def read(headers: Headers, rules: StreamRules = RULES["full"]) -> Definition | Rejection | None:
    """Read the definition of a message on `orders.s1` with these headers."""
    return read_definition(block_of(*headers), "orders.s1", rules, ADR51, STORED_AT)


def rejection(headers: Headers, rules: StreamRules = RULES["full"]) -> Rejection:
    """Read a message that is rejected."""
    refused = read(headers, rules)
    assert isinstance(refused, Rejection)
    return refused


def code_of(reading: Reading | None) -> int | None:
    """Return the code of a rejection."""
    return reading.rejection.code if reading and reading.rejection else None


ABOUT = {
    10165: ["Nats-TTL"],
    10166: ["-TTL", "Nats-TTL"],
    10189: [""],
    10190: ["-Target"],
    10191: ["-TTL"],
    10192: ["-Rollup", "Nats-Rollup"],
    10203: ["-Source"],
    10212: ["r", "-Next"],
    10223: ["-Time-Zone"],
}
"""The headers that each code is about, without the prefix; 10188 is about any."""


def test_a_message_is_refused_with_the_code_of_the_server() -> None:
    """The portable twin of each message is refused with the same code, for one of its own headers."""
    for stream, headers, code in REJECTIONS:
        for dialect, items in ((ADR51, headers), (PORTABLE, portable(headers))):
            reading = read_message(block_of(*items), "orders.s1", STORED_AT, RULES[stream], [dialect])
            assert code_of(reading) == code, (stream, items)
            if (refused := reading and reading.rejection) is None:
                continue
            own = {name.decode(): name.removeprefix(dialect.schedule).decode() for name in dialect.names}
            assert own.get(refused.header, refused.header) in ABOUT.get(refused.code, own.values()), items
            values = {name: value.lstrip(" ") for name, value in reversed(items)}
            assert (refused.value, refused.status) == (values.get(refused.header, ""), 400), items
            assert refused.reason.startswith("is "), items


def test_a_definition_holds_what_the_headers_say() -> None:
    headers = schedule("@every 5m", ttl="  1h", rollup="sub", source="sample.a", storage_rollup="Sub")
    pattern = parse_pattern("@every 5m")
    assert read(headers) == Definition(pattern, Terms(ADR51, "orders.due", "sample.a", "1h", True))  # type: ignore[arg-type]
    block = block_of(("Nats-Schedule", AT), ("Nats-Schedule-Target", b"orders.\xff"))
    found = read_definition(block, "orders.s1", RULES["full"], ADR51, 0)
    assert isinstance(found, Definition)
    assert found.terms.target == "orders.\udcff"


def test_a_stream_without_schedules_answers_10188() -> None:
    for headers in (schedule(), schedule("rubbish"), (("Nats-Schedule-Time-Zone", "Mars"),)):
        assert rejection(headers, RULES["off"]).code == 10188
    assert read((("Nats-Schedule-Time-Zone", "UTC"),), RULES["off"]) is None
    block = block_of(*portable((*schedule(), ("Nats-Schedule-X-Syntax", "none"))))
    assert code_of(read_message(block, "orders.s1", STORED_AT, RULES["off"], (PORTABLE,))) == 10188


def test_a_pattern_that_does_not_fire_within_the_horizon_is_refused() -> None:
    leap = schedule("0 0 0 29 2 *")
    stored_at = 3_981_744_000_000_000_000  # 2096-03-05: the year 2100 is no leap year.
    assert isinstance(read(leap), Definition)
    refused = read_definition(block_of(*leap), "orders.s1", RULES["full"], ADR51, stored_at)
    assert str(refused) == (
        "Nats-Schedule of '0 0 0 29 2 *' is not a valid pattern: it does not fire within the next five years "
        "(server code 10189)"
    )


def test_a_pattern_in_no_message_yet_is_read_as_that_of_a_message() -> None:
    daily = "0 0 5 * * *"
    assert read_pattern(f" {daily} ", None, STORED_AT) == parse_pattern(daily)
    assert read_pattern(daily, "Europe/Berlin", STORED_AT) == parse_pattern(daily, "Europe/Berlin")
    assert read_pattern("0 5 * * L5", None, STORED_AT, "crontab") == parse_pattern("0 5 * * L5", None, Syntax.CRONTAB)
    assert read_pattern("", None, STORED_AT) is None
    for text, zone, syntax, code, header, value in (
        ("soon", None, None, 10189, "Nats-Schedule", "soon"),
        ("soon", None, "crontab", 10189, "X-Nats-Schedule", "soon"),
        (daily, "Mars", None, 10223, "Nats-Schedule-Time-Zone", "Mars"),
        ("0 5 *\r* *", "UTC", "crontab", 10189, "X-Nats-Schedule", "0 5 *\r* *"),
        (daily, "U\nC", None, 10223, "Nats-Schedule-Time-Zone", "U\nC"),
    ):
        refused = read_pattern(text, zone, STORED_AT, syntax)
        assert isinstance(refused, Rejection), (text, zone)
        assert (refused.code, refused.header, refused.value) == (code, header, value)
        assert "a header is one line" in refused.reason or not {"\r", "\n"} & set(value)
    assert isinstance(read_pattern("0 0 0 29 2 *", None, STORED_AT), Cron)
    assert isinstance(read_pattern("0 0 0 29 2 *", None, 3_981_744_000_000_000_000), Rejection)


NO_SCHEDULES = "is on stream 'ORDERS', which has no schedules: set allow_msg_schedules (server code 10188)"
SENTENCES: list[tuple[Stream, Headers, str]] = [
    (
        "full",
        schedule(target="orders.*"),
        "Nats-Schedule-Target of 'orders.*' is not a literal subject such as 'orders.due':"
        " no wildcards, blanks or empty tokens (server code 10190)",
    ),
    (
        "full",
        schedule(target="elsewhere"),
        "Nats-Schedule-Target of 'elsewhere' is not a subject of stream 'ORDERS':"
        " expected one of orders.>, sample.* (server code 10190)",
    ),
    (
        "full",
        schedule(storage_rollup="all"),
        "Nats-Rollup of 'all' is not 'sub': a schedule rolls up its own subject only (server code 10192)",
    ),
    ("off", schedule("rubbish"), f"Nats-Schedule of 'rubbish' {NO_SCHEDULES}"),
    ("off", (("Nats-Schedule-Time-Zone", "Mars"),), f"Nats-Schedule-Time-Zone of 'Mars' {NO_SCHEDULES}"),
    (
        "bare",
        schedule(ttl="5m"),
        "Nats-Schedule-TTL of '5m' is on stream 'ORDERS', which has no message TTLs: set allow_msg_ttl"
        " (server code 10166)",
    ),
]


def test_a_refusal_says_what_was_expected_and_shows_the_value() -> None:
    assert [(stream, headers, str(rejection(headers, RULES[stream]))) for stream, headers, _ in SENTENCES] == SENTENCES


def test_a_schedule_that_ends_itself_is_refused() -> None:
    cancel = block_of(("Nats-Schedule-Next", "purge"), ("Nats-Scheduler", "orders.s1"))
    reading = read_message(cancel, "orders.s1", STORED_AT, RULES["full"], (ADR51,))
    assert reading is not None
    assert "is the subject of the message itself: a schedule ends another one" in str(reading.rejection)


def test_a_schedule_on_a_wildcard_is_refused() -> None:
    refused = read_definition(block_of(*schedule()), "orders.>", RULES["full"], ADR51, STORED_AT)
    assert str(refused) == (
        "subject of 'orders.>' is the subject of the schedule, but not a literal one: its purge would delete all that "
        "it matches (server code 10190)"
    )


# -- the sentence --------------------------------------------------------------------------------------------------


def test_a_value_is_cut_only_where_it_is_shown_and_too_long() -> None:
    shown = "x" * MAX_SHOWN_CHARS
    for value, cut in ((shown, shown), (shown + "x", shown + "…")):
        found = TTL_INVALID.rejection("H", value, "is not")
        assert str(found) == f"H of '{cut}' is not (server code 10191)"
        assert found.value == value
    assert str(FAILED.rejection("H", "v", "failed")) == (
        "H of 'v' failed (a mistake of nats-scheduler: please report it)"
    )


def test_what_is_kept_of_a_rejection_is_cut_where_it_is_too_long() -> None:
    kept = TTL_INVALID.rejection("H", "v" * MAX_KEPT_CHARS, "r" * MAX_KEPT_CHARS)
    assert kept.shortened() is kept
    for value, reason in (("v" * (MAX_KEPT_CHARS + 1), kept.reason), (kept.value, "r" * (MAX_KEPT_CHARS + 1))):
        assert TTL_INVALID.rejection("H", value, reason).shortened() == kept


# -- what the operator allows --------------------------------------------------------------------------------------


def read_restricted(restrictions: Restrictions, source: str) -> Definition | Rejection | None:
    """Read a schedule where the operator restricts targets and sources."""
    return read(schedule("@every 5m", source=source), StreamRules("ORDERS", (">",), restrictions=restrictions))


def test_only_what_the_operator_allows_is_accepted() -> None:
    for restrictions, source in (
        (UNRESTRICTED, "elsewhere"),
        (Restrictions(targets=("orders.due",)), "elsewhere"),
        (Restrictions(targets=("x", "orders.*")), ""),
        (Restrictions(sources=("sensors.>",)), "sensors.a.b"),
        (Restrictions(sources=("sensors.>",)), ""),
    ):
        assert isinstance(read_restricted(restrictions, source), Definition), (restrictions, source)
    assert str(read_restricted(Restrictions(targets=("orders.paid", "due.>")), "sensors.a.b")) == (
        "Nats-Schedule-Target of 'orders.due' is not among the targets that the operator allows on this stream: "
        "orders.paid, due.> (server code 10190)"
    )
    assert str(read_restricted(Restrictions(sources=("sensors.*",)), "sensors.a.b")) == (
        "Nats-Schedule-Source of 'sensors.a.b' is not among the sources that the operator allows on this stream: "
        "sensors.* (server code 10203)"
    )


def test_the_checks_of_the_server_come_before_those_of_the_operator() -> None:
    refused = read_restricted(Restrictions(targets=("orders.paid",)), "a..b")
    assert isinstance(refused, Rejection)
    assert refused.code == 10203


def test_one_schedule_more_than_allowed_is_rejected() -> None:
    faults = [Restrictions(max_schedules=3).number_fault(b"Nats-Schedule", "@daily", held) for held in (0, 2, 3, 4)]
    assert faults[:2] == [None, None]
    for fault in faults[2:]:
        assert fault is not None
        assert (fault.code, fault.status) == (10023, 503)
        assert "one schedule more than the 3" in str(fault)
