"""Exported schedules are read again as the same ones: headers in their order, duplicates, and bytes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.control.declared import Declared, Readable, declare, dialect_of, written
from nats_scheduler.control.words import publishable_again
from nats_scheduler.files.file_reading import read_files
from nats_scheduler.files.writing import Format, stream_document, written_file
from nats_scheduler.message.dialect import ADR51, DIALECTS, Dialect
from nats_scheduler.message.schedule_form import ScheduleForm
from tests.harness.blocks import block_of
from tests.harness.seeds import draws
from tests.message.blocks import NAMES, VALUES, odd_blocks, proper_blocks

POLICIES = ["X-Owner", "X-End", "X-Missed", "X-Limit", "X-Unknown"]

pairs = st.tuples(
    st.sampled_from([*NAMES, *(b"Nats-Schedule-" + name.encode() for name in POLICIES), b"Tr\xc3\xa4ce"]),
    st.one_of(
        st.sampled_from([*VALUES, b"billing", b" blank first", b"blank last ", b"1.5", b"no"]), st.binary(max_size=9)
    ),
)
schedule_blocks = st.lists(pairs, max_size=7).map(
    lambda items: block_of((b"Nats-Schedule", b"@every 5m"), *items, (b"Nats-Schedule-Target", b"orders.due"))
)
blocks = st.one_of(schedule_blocks, odd_blocks, proper_blocks)
bodies = st.one_of(st.binary(max_size=40), st.text(max_size=40).map(lambda text: text.encode("utf-8", "ignore")))
forms: st.SearchStrategy[Format] = st.sampled_from(["yaml", "json"])


def read_again(text: str) -> tuple[Declared, ...]:
    files, problems = read_files([("exported", text.encode())])
    assert problems == [], text
    [found] = files
    return found.declared


@settings(max_examples=draws(25))
@given(blocks, bodies, forms, st.sampled_from([None, True, False]), st.sampled_from(DIALECTS))
def test_any_headers_and_any_body_come_back_byte_for_byte(
    block: bytes, body: bytes, form: Format, paused: bool | None, spelling: Dialect
) -> None:
    exported = Declared("orders.s", declare(block, dialect_of(block)), body, paused)
    text = written_file([stream_document("ORDERS", [exported], spelling=spelling)], form)
    [found] = read_again(text)
    assert (written(found.content), found.body, found.paused) == (publishable_again(block), body, paused), text
    assert found == exported, text


WRITTEN = [
    (
        block_of(
            ("Nats-Schedule", "0 0 9 * * mon-fri"),
            ("Nats-Schedule-Time-Zone", "Europe/Berlin"),
            ("Nats-Schedule-Target", "orders.due"),
            ("Nats-Schedule-X-End", "2027-07-01T00:00:00Z"),
            ("Trace-Id", "17"),
        ),
        [
            "cron: 0 0 9 * * mon-fri",
            "time_zone: Europe/Berlin",
            "target: orders.due",
            "policies:",
            '  end: "2027-07-01T00:00:00Z"',
            "headers:",
            "  - name: Trace-Id",
            '    value: "17"',
        ],
    ),
    (
        block_of(
            ("A", "1"), ("Nats-Schedule", "@every 5m"), ("Nats-Schedule-TTL", "5m"), ("Nats-Schedule-Target", "t")
        ),
        ["every: 5m", "target: t", "ttl: 5m", "headers:", "  - name: A", '    value: "1"', "order: sorted"],
    ),
]


def test_a_schedule_is_written_as_people_would() -> None:
    for block, lines in WRITTEN:
        exported = Declared("orders.s", declare(block, dialect_of(block)), b"")
        text = written_file([stream_document("ORDERS", [exported])], "yaml")
        inside = "".join(f"    {line}\n" for line in lines)
        assert text == f'stream: ORDERS\nschedules:\n  - subject: orders.s\n{inside}    body: ""\n'


def test_what_belongs_to_one_publish_is_not_exported() -> None:
    block = block_of(
        ("Nats-Msg-Id", "1"), ("Nats-Schedule", "@daily"), ("Nats-Schedule-Target", "t"), ("Nats-Expected-Stream", "S")
    )
    assert declare(block, ADR51) == Readable(ScheduleForm("@daily", target="t"))


def test_the_roll_up_that_a_server_adds_is_not_exported() -> None:
    items = [("Nats-Schedule", "@daily"), ("Nats-Schedule-Target", "t"), ("Nats-Rollup", "sub")]
    assert declare(block_of(*items), ADR51, is_fired_by_server=True) == Readable(ScheduleForm("@daily", target="t"))
    assert declare(block_of(*items), ADR51) == Readable(
        ScheduleForm("@daily", target="t", headers=(("Nats-Rollup", "sub"),))
    )
