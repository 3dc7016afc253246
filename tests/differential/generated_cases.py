"""The cases of the comparison of generated messages: what a schedule may carry and what a source may hold.

Its rule: a case is data, and the same bytes on every side.
Lines are written with `|` between them; `$` is the place of `Nats-Schedule` and `Nats-Schedule-Target`, which come
first where it is missing.
`{s}`, `{o}` and `{q}` stand for the subjects of the schedule, its target and its source, `{n}` for the stream, and
`{last}` for the sequence of the message before.
"""

from dataclasses import dataclass
from typing import Literal

Stream = Literal["plain", "marked", "marked-one", "batched"]
"""Each kind has a stream of its own, see `STREAMS`."""

STREAMS: dict[Stream, dict[str, object]] = {
    "plain": {"allow_msg_ttl": True},
    "marked": {"allow_msg_ttl": True, "subject_delete_marker_ttl": 3_600_000_000_000},
    "marked-one": {"allow_msg_ttl": True, "subject_delete_marker_ttl": 3_600_000_000_000, "max_msgs_per_subject": 1},
    "batched": {"allow_msg_ttl": True, "allow_atomic": True},
}

Spelling = Literal["Z", "+02:00", "-00:00", "comma", "long", "past", "first"]
"""The spelling of the instant of `@at`; the last two are other instants, both long past."""


@dataclass(frozen=True)
class Case:
    """One schedule, and what lies on its source and its target beforehand."""

    name: str
    lines: str | bytes = ""
    body: bytes = b"body"
    source: tuple[tuple[str | bytes, bytes], ...] | None = None
    """Lines and bodies of the messages on the source, in order; None where there is no source header."""
    target: tuple[bytes, ...] = ()
    """Bodies of the messages that lie on the target."""
    stream: Stream = "plain"
    spelling: Spelling = "Z"
    status: str = ""
    """The text behind the version on the first line."""

    @property
    def is_portable(self) -> bool:
        """True if it means the same in portable headers, and holds nothing that a portable fire leaves out."""
        texts = [self.lines, *(lines for lines, _body in self.source or ())]
        other = ("X-Nats-Sched", "Nats-Batch", "Nats-Stream-Source")
        return not any(name in _text(lines) for name in other for lines in texts)


def _text(lines: str | bytes) -> str:
    return lines if isinstance(lines, str) else lines.decode("latin-1")


BINARY = bytes(range(256)) * 3

BODIES = [
    Case("no additional header"),
    Case("empty body", body=b""),
    Case("binary body", body=BINARY),
    Case("body that looks like headers", body=b"NATS/1.0\r\nA: b\r\n\r\n"),
    Case("body with a protocol line", body=b"\r\nPUB x 0\r\n\r\n"),
    Case("body of nearly a megabyte", body=BINARY * 1360),
    Case("body of nearly a megabyte from a source", source=(("A: b", BINARY * 1360),)),
]

SPELLINGS = [
    Case("offset of two hours", spelling="+02:00"),
    Case("negative offset of nothing", spelling="-00:00"),
    Case("fraction behind a comma", spelling="comma"),
    Case("more digits than nanoseconds", spelling="long"),
    Case("long past", spelling="past"),
    Case("the epoch", spelling="first"),
]

_LINES: list[str | bytes] = [
    "A: b",
    "A: b|$",
    "A: 1|$|B: 2",
    "A: 1|A: 2|a: 3|$|A: 1",
    "A:1|B:   2|C: 3  |D:\t4\t|E : 5|F:",
    " G: indented|$",
    "H: a:b:c|I: ::|J:: x",
    "Content-Type: application/json; charset=utf-8|traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b71-01",
    "Über: ñ|日本: 語|🎉: 🎉",
    b"Latin: gr\xfc\xdfe|\xe9t\xe9: \xff\xfe\x80|$",
    b"Control: \x01\x02\x7f\x1b[0m|Zero: a\x00b",
    "no colon at all",
    "nats-schedule: lower|NATS-SCHEDULE: upper|Nats-schedule-ttl: odd",
    "nats-ttl: 5|NATS-MSG-ID: x|nats-expected-stream: other|nats-rollup: all",
    "X-Nats-Schedule-Custom: kept",
    "X-Nats-Schedul: kept|My-Nats-Schedule: kept|Nats-Schedul: kept|Nats-Sched: kept",
    "Nats-Schedule-Custom: gone|A: b",
    "Nats-ScheduleFoo: gone|Nats-Schedule-: gone|Nats-Schedules: gone|A: b",
    "Nats-Schedule-Foo: 1|A: b|Nats-Schedule-Foo: 2|B: c|Nats-Schedule-Foo: 3",
    "Nats-Expected-Foo: gone|Nats-Expected-: gone|Nats-Expected: kept|X-Nats-Expected-Foo: kept",
    "Nats-Expected-Stream: {n}|A: b",
    "Nats-Expected-Last-Subject-Sequence: 0|A: b",
    "Nats-Expected-Last-Sequence: {last}|A: b",
    "Nats-Msg-Id: {s} one|A: b",
    "Nats-Msg-Id: {s} one more|Nats-Msg-Id: twice|A: b",
    "Nats-Expected-Last-Msg-Id: |Nats-Msg-Idx: kept|Nats-Msg-Id-x: kept",
    "Nats-TTL: 1h|A: b",
    "Nats-TTL: never|A: b|Nats-TTL-x: kept|Nats-TTLx: kept",
    "Nats-TTL:|A: b|Nats-TTL: 1h",
    "Nats-Rollup: sub|A: b",
    "Nats-Rollup: SUB|A: b|Nats-Rollupx: kept",
    "A: Nats-TTL: 5|B: Nats-TTLNats-TTL|Nats-TTL: 1h|C: d",
    "A: Nats-Schedule: x|B: Nats-Expected-Stream: y|C: Nats-Msg-Id",
    "A: b\nNats-Schedule-Foo: x|C: d\nNats-TTL: 5|E: f",
    "A: b\rNats-Schedule-Foo: x|C: d",
    "A: b|B: c\nNats-Schedule-Foo: last",
    "Nats-Stream-Source:|A: b",
    "Nats-Stream: X|Nats-Subject: Y|Nats-Sequence: 1|Nats-Time-Stamp: Z|Nats-Last-Sequence: 0|Nats-Num-Pending: 0",
    "Nats-Marker-Reason: MaxAge|Nats-Required-Api-Level: 0|Nats-Trace-Only: false",
    "Nats-Msg-Size: 5|Nats-Service-Error: none|Status: 503|Description: busy",
    "Nats-Schedule-Next:|Nats-Scheduler:|A: b",
    "Nats-Schedule-TTL:|Nats-Schedule-Rollup:|Nats-Schedule-Source:|A: b",
    "Nats-Schedule: second|Nats-Schedule-Target: second|A: b",
    "   |$|  |A: b",
    "A: " + "x" * 20_000,
    "|".join(f"H{n}: {n}" for n in range(300)),
]

HEADERS = [Case(f"headers {lines!r}", lines) for lines in _LINES]

STATUSES = [
    Case("inline status", "A: b", status=" 503 busy"),
    Case("inline status alone", status=" 408"),
    Case("odd inline status", "A: b", status="x"),
]

TTLS = [
    Case(f"ttl {ttl!r}", f"Nats-Schedule-TTL:{ttl}|A: b")
    for ttl in [
        *[" 60s", " 1m", " 1h30m", " 3600", " 03600", " 99999999"],
        *[" never", " NEVER", " nEvEr", " 00", " 000000", " +1h", " 1.5h", " .5h", " 1.h", " 90000ms", " 5400000000µs"],
        *[" 1h0.5s", " 1h1h", " 30m1h", " 1h60ms", "1h", "     1h", " 60.999s", " 876000h", " 18446744073709551616"],
    ]
]

ROLLUPS = [
    Case("rollup", "Nats-Schedule-Rollup: sub|A: b", target=(b"old", b"older")),
    Case("rollup with ttl", "Nats-Schedule-Rollup: sub|Nats-Schedule-TTL: 1h|A: b", target=(b"old",)),
    Case("rollup with spaces before", "Nats-Schedule-Rollup:    sub|Nats-Rollup: sub", target=(b"old",)),
    Case("rollup of a sample", "Nats-Schedule-Rollup: sub", source=(("A: b", b"sample"),), target=(b"old",)),
    Case("rollup of an empty target", "Nats-Schedule-Rollup: sub"),
    Case("no rollup", "A: b", target=(b"old", b"older")),
]

_SAMPLES: list[tuple[str | bytes, bytes, str]] = [
    ("", b"sample", ""),
    ("", b"", ""),
    ("", BINARY, "A: not used"),
    ("S: 1|s: 2|S:  3 ", b"sample", "A: not used|Nats-Schedule-TTL: 1h"),
    (b"Latin: \xff\xfe|\xe9: x", b"sample", ""),
    ("Nats-Schedule: @at 2200-01-01T00:00:00Z|Nats-Schedule-Target: {o}.later|A: b", b"sample", ""),
    ("Nats-Schedule-Custom: gone|Nats-Schedule-TTL: soon|A: b", b"sample", "Nats-Schedule-TTL: 1h"),
    ("Nats-Schedule-TTL: 2h|Nats-Schedule-Rollup: sub", b"sample", "Nats-Schedule-Custom: x"),
    ("Nats-TTL: 1h|Nats-Msg-Id: {s}|A: b", b"sample", "Nats-Msg-Id: {s} own|Nats-TTL: 2h"),
    ("Nats-Expected-Stream: {n}|Nats-Expected-Last-Subject-Sequence: 0|A: b", b"sample", ""),
    ("Nats-Rollup: sub|A: b", b"sample", ""),
    ("Nats-TTL: 1h", b"sample", ""),
    ("X-Nats-Schedule: kept|A: b", b"sample", ""),
    ("Nats-Schedule-Time-Zone: UTC|A: b", b"sample", ""),
]
"""Lines and body of the message on the source, and further lines of the schedule."""

SOURCES = [Case(f"source {lines!r} {body[:9]!r}", more, b"own", ((lines, body),)) for lines, body, more in _SAMPLES] + [
    Case("source that was never published to", "A: used", b"own", ()),
    Case("source that was never published to, with ttl", "Nats-Schedule-TTL: 1h|Nats-TTL: 2h", b"own", ()),
    Case("source with several messages", "", b"own", (("A: 1", b"first"), ("B: 2", b"second"), ("C: 3", b"third"))),
    Case("source whose last message is empty", "", b"own", (("A: 1", b"first"), ("", b""))),
]

MARKERS = [
    Case(f"marker and {lines!r}", lines, stream=stream, source=source)
    for stream in ("marked", "marked-one")
    for lines in ["", "Nats-Schedule-TTL: 1m|A: b", "Nats-Schedule-TTL: 2h", "Nats-Schedule-TTL: never", "A: b"]
    for source in (None, (("S: 1", b"sample"),))
] + [
    Case(f"marker and {lines!r}", lines, stream="marked")
    for lines in [
        "Nats-Schedule-TTL: 1m|Nats-Schedule-Rollup: sub",
        "Nats-Schedule-TTL: 3600",
        "Nats-Schedule-TTL: 3599.9s",
        "Nats-Schedule-TTL: 00",
        "Nats-TTL: 1m|Nats-Schedule-TTL: 61",
    ]
]

BATCHES = [
    Case("batch of one", "$|Nats-Batch-Id: {s}|Nats-Batch-Sequence: 1|Nats-Batch-Commit: 1|A: b", stream="batched"),
    Case("batch with ttl", "Nats-Batch-Id: {s}|Nats-Schedule-TTL: 1h|Nats-Batch-Sequence: 1|Nats-Batch-Commit: 1|$",
         stream="batched"),
]  # fmt: skip

FIXED = [*BODIES, *SPELLINGS, *HEADERS, *STATUSES, *TTLS, *ROLLUPS, *SOURCES, *MARKERS, *BATCHES]
