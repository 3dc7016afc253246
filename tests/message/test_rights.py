"""No message that is published for somebody else has a header by which the server would do more than to store it."""

import re
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from nats_scheduler.control.words import publishable_again
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.dialect import ADR51, DIALECTS, Dialect
from nats_scheduler.message.generated import fire_block, identity_header
from nats_scheduler.message.rights import lent_header, wide_rollup, without_lent
from tests.harness.blocks import block_of
from tests.harness.servers import V2_10, V2_15, server_binary
from tests.message import reference
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


def definition_in(dialect: Dialect) -> Definition:
    """Return a schedule that fires once."""
    return scheduled("@at 2020-01-01T00:00:00Z", dialect)


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
    assert without_lent(b"NATS/1.0\r\nNats-Trace-Dest: x\r\n\r\n") == b"", "a block of no headers is none"


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
