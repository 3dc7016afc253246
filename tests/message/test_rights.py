"""No message that is published for somebody else has a header by which the server would do more than to store it."""

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.control.words import publishable_again
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.dialect import ADR51, DIALECTS, Dialect
from nats_scheduler.message.generated import as_stored_natively, fire_block, identity_header
from nats_scheduler.message.headers import MSG_ID
from nats_scheduler.message.rights import lent_header, wide_rollup, without_lent
from tests.harness.blocks import block_of
from tests.harness.seeds import draws
from tests.harness.servers import V2_10, V2_15, server_binary
from tests.message import reference
from tests.message.blocks import odd_blocks
from tests.message.test_generated import NEXT, scheduled

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "headers.md"
ROW = re.compile(r"^\| `([^`]+)` \| (2\.\d+) \| (.+) \| (yes|no) \| (.+) \|$", re.M)


class ActedOn(NamedTuple):
    """A header that some server acts on when a message is published, or when it is stored or delivered later."""

    name: str
    """With `…` at its end it stands for all names that begin so."""
    since: str
    """The first release that acts on it; `2.9` for all that are looked at."""
    effect: str
    carried: str
    """The verdict whether a fire may carry it for the author of its schedule or its source."""
    why: str


HEADERS = [ActedOn(*row) for row in ROW.findall(PAGE.read_text("utf-8"))]

READ_BY_CLIENTS = (
    *(
        "Nats-Stream",
        "Nats-Subject",
        "Nats-Sequence",
        "Nats-Last-Sequence",
        "Nats-Num-Pending",
        "Nats-Pending-Messages",
    ),
    *("Nats-Pending-Bytes", "Nats-UpTo-Sequence", "Nats-Time-Stamp", "Nats-Msg-Size", "Nats-Pin-Id"),
    *("Nats-Wrong-Pin-Id", "Nats-Server-Xkey", "Nats-No-Masking"),
)
"""Headers that servers write, in messages, answers or HTTP, and do not read in what is published."""
PURGE = b"$JS.API.STREAM.PURGE.OTHER"
TRACES = [b"Nats-Trace-Dest", b"nats-trace-dest", b"NATS-TRACE-DEST", b"Nats-Trace-Only", b"Nats-Trace-Hop"]
OTHERS = [b"Nats-Rollup", b"Nats-Request-Info", b"Nats-Stream-Source", b"Nats-Incr", b"Nats-Batch-Id"]
FORBIDDEN = [*OTHERS, b"Nats-Batch-Sequence", b"Nats-Batch-Commit", b"Nats-Schedule", b"Nats-Schedule-Target"]
REMOVED_BY_SERVERS = [b"Nats-Request-Info", b"Nats-Required-Api-Level", b"Nats-Stream-Source"]
PREFIXES_REMOVED_BY_SERVERS = [b"Nats-Expected-", b"Nats-Batch-"]
VALUES = [b"all", b"true", PURGE, b"1", b"", b"Nats-RollupNats-Rollup", b"Nats-Trace-DestNats-Trace-Dest", b"{}"]
ENDS = [b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"", b"\0", b"\r\n\r\n", b"xx"]

_lines = st.tuples(
    st.sampled_from(
        [b"", b"", b"", b" ", b"Nats-Schedule-Junk\r\n", b"A\r\n", b"A: b\n", b"A: b\r", b"Nats-Schedule-J: x"]
    ),
    st.sampled_from([*TRACES, *FORBIDDEN, b"A", b"traceparent", b"Nats-Msg-Id", b"Nats-TTL", b"Nats-Expected-Stream"]),
    st.sampled_from([b": ", b": ", b":", b"", b" : ", b": Nats-RollupNats-Rollup\r\nNats-Rollup: "]),
    st.sampled_from(VALUES),
    st.sampled_from(ENDS),
).map(b"".join)
lending_blocks = st.tuples(
    st.sampled_from([b"NATS/1.0\r\n", b"NATS/1.0\r\n", b"NATS/1.0 100 Idle\r\n", b""]),
    st.lists(_lines, max_size=6).map(b"".join),
    st.sampled_from([b"\r\n", b""]),
).map(b"".join)

KNOWN_ATTACKS = [
    b"Nats-Trace-Dest: " + PURGE,
    b"nats-trace-dest: x\r\nNats-Trace-Only: true",
    b"Nats-Schedule-Junk\r\nNats-Trace-Dest: " + PURGE,
    b"Nats-Expected-Junk\r\nNats-Trace-Dest: " + PURGE,
    b"Nats-Schedule-B: Nats-Request-InfoNats-Request-Info\r\n"
    b"Nats-Request-Info: Nats-RollupNats-Rollup\r\nNats-Rollup: all",
    b"A: Nats-RollupNats-Rollup\r\nNats-Rollup: all",
    b"Nats-Batch-A: Nats-RollupNats-Rollup\r\nNats-Rollup: all",
]


def states(block: bytes) -> Iterator[bytes]:
    """Yield a block as it is, and as servers may have it after they have removed something."""
    yield block
    for name in REMOVED_BY_SERVERS:
        yield reference.remove_if_present(block, name)
    for prefix in PREFIXES_REMOVED_BY_SERVERS:
        yield reference.remove_if_prefix_present(block, prefix)


def expect_no_right(block: bytes, own: bytes) -> None:
    """Require that no version finds a header that lends a right; `own` is the identity."""
    assert not [key for key in reference.traced_keys(block) if key.lower().startswith(b"nats-trace-")], block
    for state in states(block):
        for search in reference.SEARCHES:
            found = [name for name in FORBIDDEN if search(name, state) >= 0 and reference.slice_header(name, state)]
            assert not found, (found, search, block)
            assert not [name for name in TRACES if search(name, state) >= 0], block
        assert reference.slice_header(MSG_ID, state) in (own, None), block


def definition_in(dialect: Dialect) -> Definition:
    """Return a schedule that fires once."""
    return scheduled("@at 2020-01-01T00:00:00Z", dialect)


@settings(max_examples=draws(40))
@given(odd_blocks | lending_blocks, st.sampled_from(DIALECTS), st.booleans())
def test_no_version_finds_in_a_fire_what_would_lend_a_right(base: bytes, dialect: Dialect, is_sample: bool) -> None:
    found = definition_in(dialect)
    block = base if is_sample else as_stored_natively(base)
    fire = fire_block(block, *found, "t.s", None, [identity_header("7:t.s")])
    if fire is not None:
        expect_no_right(
            fire.replace(b"\r\nNats-Schedule-Next: purge", b"").replace(b"\r\nNats-Scheduler: t.s", b""), b"7:t.s"
        )


def test_a_known_attack_is_not_passed_on() -> None:
    for dialect, lines in product(DIALECTS, KNOWN_ATTACKS):
        named = block_of((dialect.schedule, "@every 1s"), (dialect.target, "t.o"))
        base = named[:-2] + lines.replace(b"Nats-Schedule", dialect.schedule) + b"\r\nOwn: 1\r\n\r\n"
        fire = fire_block(base, *definition_in(dialect), "t.s", NEXT, [identity_header("7:t.s")])
        assert fire is not None
        assert b"\r\nOwn: 1\r\n" in fire
        assert [text for text in (b"Nats-Trace", b"trace", b"Nats-Rollup: all") if text in fire] == [], lines


def test_a_schedule_that_is_stored_again_has_none_either() -> None:
    for lines in (*KNOWN_ATTACKS, b"A: b\nNats-Trace-Dest: x\r\nB: c"):
        again = publishable_again(b"NATS/1.0\r\nNats-Schedule: @daily\r\n" + lines + b"\r\n\r\n")
        assert lent_header(again) is None, lines
        assert not [key for key in reference.traced_keys(again) if key.lower().startswith(b"nats-trace-")], lines


def test_all_other_headers_stay() -> None:
    for kept in (
        b"NATS/1.0\r\nA: Nats-Trace-Dest: x\r\nX-Nats-Trace-Dest: y\r\nNats-Trace: z\r\n\r\n",
        b"NATS/1.0\r\ntraceparent: 00-1-2-01\r\nNats-Incrx: 1\r\nnats-rollup: all\r\nNats-Rollups: all\r\n\r\n",
        b"NATS/1.0\r\nno colon\r\nA: b\nc\r\n Nats-Trace-Dest: folded\r\n\r\n",
        b"NATS/1.0\r\nNats-Stream-Source:\r\nA: b\r\n\r\n",
        b"NATS/1.0\r\n\r\n",
        b"",
    ):
        assert without_lent(kept) == kept


def test_what_nobody_may_ask_to_have_published_is_named() -> None:
    named: dict[str, tuple[str | None, bytes | None]] = {
        "nats-trace-ONLY: 1": ("nats-trace-ONLY", None),
        "A\r\nNats-Trace-Dest: x": ("Nats-Trace-Dest", None),
        "Nats-Incr: 1": ("Nats-Incr", None),
        "A: Nats-RollupNats-Rollup\r\nNats-Rollup: all": (None, b"all"),
        "Nats-Rollup: SUB": (None, None),
        "traceparent: x\r\nA: b": (None, None),
    }
    blocks = {lines: f"NATS/1.0\r\nNats-Schedule: @daily\r\n{lines}\r\n\r\n".encode() for lines in named}
    assert {lines: (lent_header(block), wide_rollup(block)) for lines, block in blocks.items()} == named


def test_what_the_table_denies_is_removed_and_what_it_allows_stays() -> None:
    assert len(HEADERS) == len({one.name for one in HEADERS}) > 20
    for one in HEADERS:
        name = one.name.replace("…", "-Foo" if one.name[-2] != "-" else "Foo")
        line = f"\r\n{name}: x\r\n".encode()
        fire = fire_block(b"NATS/1.0" + line + b"A: b\r\n\r\n", *definition_in(ADR51), "t.s", None, [])
        assert fire is not None
        assert (line in fire) is (one.carried == "yes"), name


@pytest.mark.server
@pytest.mark.parametrize("version", [V2_10, V2_15])
def test_the_table_has_each_name_that_the_program_of_a_server_contains(version: str) -> None:
    """A new version that acts on a new header needs a line in the table, or a place among what it only writes."""
    program = server_binary(version).read_bytes()
    prefixes = [one.name.removesuffix("…") for one in HEADERS if one.name.endswith("…")]
    names = [one.name for one in HEADERS if not one.name.endswith("…")]
    exact = "|".join(sorted((*names, *READ_BY_CLIENTS), key=len, reverse=True))
    known = re.compile(f"(?:{'|'.join(prefixes)}|(?:{exact})(?!-))".encode())
    found = {program[at.start() : at.start() + 40] for at in re.finditer(rb"(?:Nats|Nmqtt)-[A-Z][A-Za-z]", program)}
    assert not sorted(text for text in found if not known.match(text))
    for one in HEADERS:
        if one.name.startswith(("Nats-", "KV-", "traceparent")):
            is_there = one.name.removesuffix("…").encode() in program
            assert is_there or tuple(map(int, version.split(".")))[:2] < tuple(map(int, one.since.split("."))), one
