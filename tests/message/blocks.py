"""Header blocks for the tests of this folder: written by hand, or drawn by Hypothesis from likely causes of errors."""

from collections.abc import Iterable

from hypothesis import strategies as st

from nats_scheduler.message.reading import Reading
from tests.harness.blocks import block_of

NAMES = [
    *(b"Nats-Schedule", b"Nats-Schedule-Target", b"Nats-Schedule-Source", b"Nats-Schedule-TTL"),
    *(b"Nats-Schedule-Time-Zone", b"Nats-Schedule-Rollup", b"Nats-Schedule-Next", b"Nats-Schedule-X-Paused"),
    *(b"Nats-Scheduler", b"Nats-ScheduleFoo", b"X-Nats-Schedule", b"X-Nats-Schedule-Target", b"X-Nats-Scheduler"),
    *(b"X-Nats-Schedule-Next", b"X-Nats-Schedule-X-Paused", b"nats-schedule", b"Nats-Msg-Id", b"Nats-TTL"),
    *(b"Nats-Rollup", b"Nats-Expected-Stream", b"Nats-Batch-Id", b"Trace-Id", b"A"),
]

VALUES = [
    *(b"@at 2030-01-01T00:00:00Z", b"@every 5m", b"0 0 5 * * *", b"orders.due", b"orders.s1", b"purge", b"sub"),
    *(b"UTC", b"5m", b"nats-scheduler:7:5:orders.s2", b"orders.s2", b""),
]

# Combinations of these are all special cases of the server's search: doubled names, bare LFs, missing colons and ends.
_parts = st.lists(
    st.sampled_from([*NAMES, *VALUES, b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b"\xff", b"\xc3\xa9", b"x"]),
    max_size=6,
).map(b"".join)
_lines = st.tuples(
    st.sampled_from(NAMES),
    st.sampled_from([b": ", b":", b" :", b"", b":   "]),
    st.one_of(st.sampled_from(VALUES), _parts),
    st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b""]),
).map(b"".join)
_starts = st.sampled_from([b"NATS/1.0\r\n", b"NATS/1.0\r\n", b"NATS/1.0 503 busy\r\n", b"NATS/1.0\n", b"", b"\r\n"])

odd_blocks = st.one_of(
    st.binary(max_size=60),
    _parts,
    st.tuples(_starts, st.lists(_lines, max_size=8).map(b"".join), st.sampled_from([b"\r\n", b""])).map(b"".join),
)
"""Blocks that a publisher could send but no client library would."""

proper_blocks = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=8).map(
    lambda items: block_of(*items)
)
"""Blocks as a client library writes them."""


def portable(items: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return `items` with the portable names of schedule headers, and of headers that look like one."""
    return [(f"X-{name}" if "Nats-Schedule" in name else name, value) for name, value in items]


def meaning(reading: Reading | None) -> Reading:
    """Return the reading of a message that means something."""
    assert reading is not None
    return reading
