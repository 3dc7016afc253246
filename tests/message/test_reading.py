"""A stored message is an ordinary one, a schedule, a fire of a sidecar, a cancel, or rejected.

It tests `message/published.py` too.
"""

import pytest

from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.generated import generated_block
from nats_scheduler.message.headers import EMPTY_BLOCK, header_value
from nats_scheduler.message.misnamed import MAX_NAME_BYTES, MAX_REPORTED_HEADERS, misnamed_fault, misnamed_headers
from nats_scheduler.message.reader import MessageReader
from nats_scheduler.message.reading import Generated, Reading, expiry_of, is_fire_since, lifetime_of, read_message
from nats_scheduler.message.schedule_form import Terms
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.patterns import parse_pattern
from tests.harness.blocks import block_of, block_with, with_identity
from tests.message.blocks import meaning
from tests.message.recorded import AT, schedule

RULES = StreamRules("ORDERS", ("orders.>", "sample.*"), allow_msg_ttl=True)
STORED_AT = 1_790_000_000_000_000_000
IDENTITY = ("Nats-Msg-Id", "nats-scheduler:7:5:orders.s2")


def read(*headers: tuple[str, str]) -> Reading | None:
    """Read a message on `orders.s1` with these headers, both dialects served."""
    return read_message(block_of(*headers), "orders.s1", STORED_AT, RULES, DIALECTS)


def test_an_ordinary_message_and_a_look_alike_mean_nothing() -> None:
    for block in (None, b"", EMPTY_BLOCK, b"xx", block_of(("A", "b"), ("Nats-Msg-Id", "c"))):
        assert read_message(block, "orders.s1", STORED_AT, RULES, DIALECTS) is None
    assert read(("nats-schedule", "@daily"), ("A", "Nats-Schedule: @daily"), ("Nats-Schedule-Target", "x y")) is None


def test_the_first_dialect_with_a_schedule_decides() -> None:
    both = block_of(
        ("X-Nats-Schedule", "rubbish"),
        ("X-Nats-Scheduler", "orders.s2"),
        ("Nats-Schedule", AT),
        ("Nats-Schedule-Target", "orders.due"),
    )
    native_first = meaning(read_message(both, "orders.s1", STORED_AT, RULES, [ADR51, PORTABLE]))
    assert native_first.definition is not None
    portable_first = meaning(read_message(both, "orders.s1", STORED_AT, RULES, [PORTABLE, ADR51]))
    assert portable_first.rejection is not None
    assert portable_first.rejection.code == 10189


def test_a_dialect_is_read_if_it_is_served_and_has_a_schedule() -> None:
    block = block_of(*schedule("rubbish"))
    assert read_message(block, "orders.s1", STORED_AT, RULES, [PORTABLE]) is None
    assert read_message(block, "orders.s1", STORED_AT, RULES, []) is None
    reading = meaning(read(("Nats-Schedule", ""), ("X-Nats-Schedule", AT), ("X-Nats-Schedule-Target", "orders.due")))
    assert reading.definition is not None
    assert reading.definition.terms.dialect is PORTABLE


def test_a_message_that_names_a_schedule_and_says_purge_cancels_it() -> None:
    cancel = Reading(cancels="orders.s2")
    assert read(("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "purge")) == cancel
    assert read(("X-Nats-Schedule-Next", "purge"), ("X-Nats-Scheduler", "orders.s2"), ("A", "b")) == cancel
    reading = meaning(read(*schedule(scheduler="orders.s2", next="purge")))
    assert reading.definition is not None
    assert reading.cancels == "orders.s2"


def test_a_faulty_cancel_spoils_the_schedule_that_carries_it() -> None:
    reading = meaning(read(*schedule(scheduler="orders.s2")))
    assert reading.definition is None
    assert str(reading.rejection) == (
        "Nats-Scheduler of 'orders.s2' is without Nats-Schedule-Next: expected 'purge' there, or neither"
        " (server code 10212)"
    )


def test_a_faulty_cancel_is_rejected_with_the_header_that_is_wrong() -> None:
    for scheduler, following, header, reason in (
        ("orders.s2", "2030-01-01T00:00:00Z", "Nats-Schedule-Next", "is not 'purge', the only value"),
        ("", "purge", "Nats-Scheduler", "is missing or empty: expected the subject of the schedule that ends"),
        ("orders.*", "purge", "Nats-Scheduler", "is not a literal subject"),
        ("orders.s1", "purge", "Nats-Scheduler", "is the subject of the message itself"),
    ):
        reading = meaning(read(("Nats-Scheduler", scheduler), ("Nats-Schedule-Next", following)))
        assert reading.rejection is not None
        assert (reading.rejection.code, reading.rejection.header) == (10212, header), scheduler
        assert reading.rejection.reason.startswith(reason)


@pytest.mark.clause("storage-ttl")
def test_the_ttl_of_the_schedule_itself_is_judged_first_or_last() -> None:
    """A server of 2.10 ignores it; the server's other rejections are in `recorded`."""
    without = StreamRules("ORDERS", ("orders.>",))
    block = block_of(*schedule("rubbish", storage_ttl="5m"))
    first = meaning(read_message(block, "orders.s1", STORED_AT, without, DIALECTS)).rejection
    last = meaning(read(*schedule(storage_ttl="soon"))).rejection
    assert [(one.code, one.header) for one in (first, last) if one] == [(10166, "Nats-TTL"), (10165, "Nats-TTL")]
    assert read(("Nats-TTL", "soon"), ("Nats-Schedule-Target", "orders.due")) is None, "no schedule, no judgement"


def test_a_fire_of_ours_is_told_by_its_identity_in_each_dialect() -> None:
    fire = Reading(generated=Generated("orders.s2", 7, 5))
    for prefix in ("", "X-"):
        headers = (prefix + "Nats-Scheduler", "orders.s2"), (prefix + "Nats-Schedule-Next", "purge"), IDENTITY
        for served in (DIALECTS, [PORTABLE], [ADR51]):
            assert read_message(block_of(*headers), "orders.due", STORED_AT, RULES, served) == fire


def test_an_identity_counts_with_the_schedule_that_it_names() -> None:
    reading = read(*schedule(scheduler="orders.s2", next="purge"), IDENTITY)
    assert reading == Reading(generated=Generated("orders.s2", 7, 5))
    reading = read(("Nats-Scheduler", "orders.s3"), ("Nats-Schedule-Next", "purge"), IDENTITY)
    assert reading == Reading(cancels="orders.s3")
    reading = meaning(read(*schedule(), IDENTITY))
    assert reading.definition is not None


def test_a_fire_that_was_requested_is_beside_its_schedule() -> None:
    asked = ("Nats-Msg-Id", "nats-scheduler:beside:7:5:orders.s2")
    assert read(("X-Nats-Scheduler", "orders.s2"), asked) == Reading(beside=Generated("orders.s2", 7, 5))
    other = meaning(read(("X-Nats-Scheduler", "orders.s3"), asked))
    assert (other.beside, other.rejection is None) == (None, False), "it names another schedule"
    reading = meaning(read(*schedule(scheduler="orders.s2", next="purge"), asked))
    assert (reading.beside, reading.cancels) == (None, "orders.s2"), "a schedule is none"


def test_a_fire_since_another_is_of_that_version_and_as_late() -> None:
    block = block_of(("Nats-Scheduler", "orders.s2"), IDENTITY)
    for asked, is_one in {
        ("orders.s2", 7, 5): True,
        ("orders.s2", 7, 4): True,
        ("orders.s2", 7, 6): False,
        ("orders.s2", 8, 5): False,
        ("orders.s3", 7, 5): False,
    }.items():
        assert is_fire_since(block, *asked) is is_one, asked
    assert not is_fire_since(block_of(IDENTITY), "orders.s2", 7, 5)


def test_a_paused_schedule_has_the_definition_of_an_active_one() -> None:
    wrong = schedule("rubbish")
    for headers in (schedule(), wrong):
        active = meaning(read(*headers))
        paused = meaning(read(("Nats-Schedule-X-Paused", headers[0][1]), *headers[1:]))
        assert paused.paused is not None
        assert (paused.defined, paused.fault) == (active.definition, active.rejection) == (active.defined, active.fault)
        assert (active.defined is None, active.fault is None) == (headers is wrong, headers is not wrong)
    assert (Reading(cancels="a").defined, Reading(cancels="a").fault) == (None, None)


def test_a_fire_is_known_though_its_sample_ended_in_a_bare_line_feed() -> None:
    pattern = parse_pattern("@every 5m")
    assert not isinstance(pattern, Invalid | None)
    terms = Terms(ADR51, "orders.due", "sample.a", "", False)
    sample = b"NATS/1.0\r\nUnit: C\nNats-Scheduled: no\r\n\r\n"
    fire = with_identity(generated_block(sample, pattern, terms, "orders.s2", None), "nats-scheduler:7:5:orders.s2")
    assert header_value(fire, b"Nats-Scheduler") is None
    reading = read_message(fire, "orders.due", STORED_AT, RULES, [ADR51])
    assert reading == Reading(generated=Generated("orders.s2", 7, 5))


# -- lifetimes that the sidecar enforces ---------------------------------------------------------------------------

GENERATED = {"Nats_Scheduler": "s.one", "Nats_Schedule_Next": "purge", "Nats_Msg_Id": "nats-scheduler:1:5:s.one"}


def expiry(*dialects: Dialect, **headers: str) -> int | None:
    return expiry_of(StoredMessage("t", 1, STORED_AT, block_with(**headers), None), dialects or DIALECTS)


def test_the_lifetime_is_what_the_server_takes_from_the_header() -> None:
    lifetimes = {
        "5s": 5 * SECOND,
        "1h": HOUR,
        "90": 90 * SECOND,
        "1.9s": SECOND,
        "007": 7 * SECOND,
        "18446744073709551617": SECOND,
        "9223372036854775807": (2**63 - 1) * SECOND,
        **dict.fromkeys(["00", "18446744073709551616", "never", "NEVER", "soon", "0", "999ms", "5s ", ""], None),
    }
    assert {ttl: lifetime_of(b"NATS/1.0\r\nNats-TTL: %s\r\n\r\n" % ttl.encode()) for ttl in lifetimes} == lifetimes


def test_schedules_and_generated_messages_expire_and_nothing_else_does() -> None:
    assert expiry(Nats_TTL="5s", Nats_Schedule="@every 1s") == STORED_AT + 5 * SECOND
    assert expiry(Nats_TTL="5s", Nats_Schedule="@every nonsense") == STORED_AT + 5 * SECOND
    assert expiry(Nats_TTL="5s", X_Nats_Schedule="@every 1s") == STORED_AT + 5 * SECOND
    assert expiry(Nats_TTL="5s", Nats_Schedule_X_Paused="@every 1s") == STORED_AT + 5 * SECOND
    assert expiry(Nats_TTL="5s", **GENERATED) == STORED_AT + 5 * SECOND
    assert expiry(Nats_TTL="5s") is None
    assert expiry(Nats_TTL="5s", Nats_Schedule_Target="t", Nats_Schedule="") is None
    assert expiry(Nats_TTL="5s", Nats_Scheduler="s.one", Nats_Schedule_Next="purge") is None
    assert expiry(Nats_Schedule="@every 1s") is None
    assert expiry(X_Nats_TTL="5s", Nats_Schedule="@every 1s") is None


def test_a_schedule_in_a_dialect_that_is_not_served_never_expires() -> None:
    assert expiry(PORTABLE, Nats_TTL="5s", Nats_Schedule="@every 1s") is None
    assert expiry(ADR51, Nats_TTL="5s", X_Nats_Schedule="@every 1s") is None
    assert expiry(PORTABLE, Nats_TTL="5s", **GENERATED) == STORED_AT + 5 * SECOND


# -- headers that look like those of a schedule but are not --------------------------------------------------------

PATTERN, TARGET = ("Nats-Schedule", "@daily"), ("Nats-Schedule-Target", "orders.due")


def misnamed_in(*headers: tuple[str, str]) -> list[tuple[str, str]]:
    """Read a message as an engine does, and return its misnamed headers."""
    reader = MessageReader(RULES, DIALECTS)
    message = StoredMessage("orders.s", 1, STORED_AT, block_of(*headers), None)
    if reader.cached(message) is None:
        reader.read_uncached(message)
    return [(one.header, one.reason) for one in reader.misnamed]


def test_a_header_that_is_nearly_one_of_a_schedule_is_found() -> None:
    for headers, meant in (
        ([("Nats-Schedul", "@daily"), TARGET], "Nats-Schedule may be meant"),
        ([("nats-schedule", "@daily"), TARGET], "is not Nats-Schedule"),
        ([("NatsSchedule", "@daily"), TARGET], "Nats-Schedule may be meant"),
        ([("x-nats-schedule", "@daily"), TARGET], "is not X-Nats-Schedule"),
        ([("Nats-Schedule-At", "@daily"), TARGET], "has no effect"),
        ([("Nats-Schedule-Timezone", "UTC"), PATTERN, TARGET], "Nats-Schedule-Time-Zone may be meant"),
        ([("Nats-Schedule-TZ", "UTC"), PATTERN, TARGET], "has no effect"),
        ([("Nats-Schedule-Limit", "3"), PATTERN, TARGET], "Nats-Schedule-X-Limit may be meant"),
        ([("X-Nats-Schedule-Done-Within", "1m"), PATTERN, TARGET], "X-Nats-Schedule-X-Done-Within may be meant"),
        ([("Nats-Schedule-Ttl", "5m"), PATTERN, TARGET], "is not Nats-Schedule-TTL"),
        ([("Nats-Schedule-TZ", "UTC"), ("Nats-Schedule-X-Paused", "@daily"), TARGET], "has no effect"),
        ([TARGET], "without Nats-Schedule"),
    ):
        ((header, reason),) = misnamed_in(*headers)
        assert (header, meant in reason) == (headers[0][0], True), reason
    assert misnamed_headers(block_of(TARGET), [PORTABLE], is_schedule=False) == ()


def test_right_headers_and_those_of_others_are_not_misnamed() -> None:
    valid: list[list[tuple[str, str]]] = [
        [PATTERN, TARGET],
        [PATTERN, TARGET, ("Nats-Schedule-X-Missed", "skip")],
        [PATTERN, TARGET, ("Nats-Schedule-TTL", "5m"), ("Nats-Schedule-Time-Zone", "UTC"), ("Nats-TTL", "1h")],
        [("X-Nats-Schedule", "@daily"), ("X-Nats-Schedule-Target", "orders.due")],
        [("Nats-Schedule-X-Paused", "@every 1s"), TARGET],
        [("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "purge")],
        [("X-Text", "see nats-schedule: below"), ("Delivery-Schedule", "weekly"), ("Schedule", "daily")],
        [("Nats-Msg-Id", "nats-schedule:5")],
        [("A", "b")],
        [],
    ]
    assert [headers for headers in valid if misnamed_in(*headers)] == []


def test_what_a_stranger_writes_is_cut_and_counted() -> None:
    many = [(f"Nats-Schedule-{number}", "x") for number in range(100)]
    assert len(misnamed_in(PATTERN, TARGET, *many)) == MAX_REPORTED_HEADERS
    ((header, _reason),) = misnamed_in(("Nats-Schedul" + "x" * 10_000, "x"))
    assert len(header) == MAX_NAME_BYTES
    ((header, _reason),) = misnamed_in(("Nats-Schedul\x1b[31m", "x"))
    assert "\x1b" in header, "it is escaped where it is printed"
    ((header, _reason),) = misnamed_in(("Nats-Schedul\udcff", "x"))
    assert header == "Nats-Schedul\\xff"


def test_what_a_writer_would_misname_is_refused_unless_it_was_there_before() -> None:
    right = (("Nats-Schedule", "@daily"), TARGET, ("Trace-Id", "1"))
    assert misnamed_fault(block_of(*right)) is None
    for wrong in ("Nats-Schedule-Timezone", "X-Nats-Schedule-Time-Zone"):
        written = block_of(*right, (wrong, "UTC"))
        fault = misnamed_fault(written)
        assert fault is not None
        assert (fault.header, fault.value) == (wrong, "UTC")
        assert misnamed_fault(written, written) is None
        fault = misnamed_fault(block_of(*right, (wrong, "\udcff")))
        assert fault is not None
        assert (fault.value, "Nats-Schedule-Time-Zone may be meant" in fault.reason) == ("\\xff", True)
    for wrong in ("X-Nats-Schedule-X-Limit", "X-Nats-Schedule-X-\udcff"):
        fault = misnamed_fault(block_of(*right, (wrong, "1")))
        assert fault is not None
        assert fault.reason.startswith("has no effect beside Nats-Schedule: Nats-Schedule-X-")
    assert misnamed_fault(block_of(("X-Nats-Schedule-X-Limit", "1"))) is None, "it is no schedule"
    both = block_of(PATTERN, ("X-Nats-Schedule-X-Paused", "@daily"), ("X-Nats-Schedule-X-Limit", "1"))
    assert misnamed_fault(both) is None, "it has both spellings"
