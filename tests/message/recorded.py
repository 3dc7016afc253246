"""The answers of a real nats-server 2.15.1, recorded: the expectations of the tests in this folder.

Every publish went to `orders.s1` of one of three streams with the subjects `orders.>` and `sample.*`: the stream
`full` has message schedules and message TTLs, `bare` has schedules only, `off` has neither.
`REJECTIONS` holds (stream, headers, error code or None if stored); `GENERATED` the block of the last message on the
source, or of the schedule, and the block that the server then generated.
"""

from typing import Literal

AT = "@at 2030-01-01T00:00:00Z"
LONG_AGO = "@at 2020-01-01T00:00:00Z"

Stream = Literal["full", "bare", "off"]
Headers = tuple[tuple[str, str], ...]


def schedule(pattern: str = AT, target: str = "orders.due", **others: str) -> Headers:
    """Write the headers of a schedule; `time_zone="UTC"` becomes `Nats-Schedule-Time-Zone: UTC`."""
    names = {
        "time_zone": "Nats-Schedule-Time-Zone",
        "ttl": "Nats-Schedule-TTL",
        "rollup": "Nats-Schedule-Rollup",
        "source": "Nats-Schedule-Source",
        "storage_rollup": "Nats-Rollup",
        "storage_ttl": "Nats-TTL",
        "scheduler": "Nats-Scheduler",
        "next": "Nats-Schedule-Next",
    }
    head = (("Nats-Schedule", pattern), ("Nats-Schedule-Target", target))
    return head + tuple((names[key], value) for key, value in others.items())


REJECTIONS: list[tuple[Stream, Headers, int | None]] = [
    # What is stored.
    ("full", schedule(), None),
    ("full", schedule("@every 1s"), None),
    ("full", schedule("0 0 5 * * *", time_zone="Europe/Berlin"), None),
    ("full", schedule("@daily", time_zone="UTC"), None),
    ("full", schedule(ttl="5m", rollup="sub", source="sample.a"), None),
    ("full", schedule(ttl="", rollup="", source=""), None),
    ("full", schedule(ttl="00"), None),
    ("full", schedule(ttl="NEVER"), None),
    ("full", schedule(ttl="18446744073709551616"), None),
    ("full", schedule(storage_rollup="SUB"), None),
    ("full", schedule(storage_rollup=""), None),
    ("full", schedule("    " + AT, "   orders.due"), None),
    ("full", schedule(target="orders.a*"), None),
    ("full", schedule(target="orders.>a"), None),
    ("full", schedule(target="orders.x>"), None),
    ("full", schedule(target="orders.ümläut"), None),
    ("full", (("Nats-Schedule", AT), ("Nats-Schedule", "rubbish"), ("Nats-Schedule-Target", "orders.due")), None),
    ("full", (("nats-schedule", "rubbish"), ("Nats-Schedule ", "rubbish"), ("X-Nats-Schedule", "x")), None),
    ("full", (("Nats-ScheduleFoo", "rubbish"), ("Nats-Schedule-Foo", "rubbish")), None),
    ("full", (("Nats-Schedule-Target", "no blanks"), ("Nats-Schedule-TTL", "soon")), None),
    ("full", (("Nats-Schedule", ""), ("Nats-Schedule-TTL", "soon")), None),
    ("off", schedule(""), None),
    ("off", schedule("@at 0001-01-01T00:00:00Z", ""), None),
    ("off", (("Nats-Schedule-Time-Zone", "UTC"),), None),
    ("full", schedule("@at 0001-01-01T00:00:00Z", "", ttl="soon"), None),
    # Checks 1 and 2 of docs/reference/headers.md, "Order of checks": time zone and pattern.
    ("full", schedule(time_zone=""), 10223),
    ("full", schedule("@daily", time_zone="utc"), 10223),
    ("full", schedule("@daily", time_zone="UTC "), 10223),
    ("full", schedule("@daily", time_zone="../UTC"), 10223),
    ("full", schedule("rubbish", time_zone="Mars/Olympus"), 10223),
    ("full", (("Nats-Schedule-Time-Zone", "Mars/Olympus"),), 10223),
    ("full", (("Nats-Schedule-Time-Zone", ""),), 10223),
    ("full", schedule(time_zone="UTC"), 10189),
    ("full", schedule("@every 5m", time_zone="UTC"), 10189),
    ("full", schedule("rubbish", ""), 10189),
    ("full", schedule(AT + " "), 10189),
    ("full", schedule("\t" + AT), 10189),
    ("full", schedule("@every 999ms"), 10189),
    ("full", schedule("@reboot"), 10189),
    ("full", schedule("* * * * *"), 10189),
    ("full", schedule("0 0 0 30 2 *"), 10189),
    ("full", schedule("2030-01-01T00:00:00Z"), 10189),
    # Check 3, and the checks before it, on a stream without schedules.
    ("off", schedule(), 10188),
    ("off", schedule("rubbish"), 10188),
    ("off", schedule("@daily", time_zone="Mars/Olympus"), 10188),
    ("off", (("Nats-Schedule-Time-Zone", "Mars/Olympus"),), 10188),
    ("off", schedule(ttl="soon"), 10188),
    # Checks 4 to 6: TTL and roll-up of the generated message.
    ("full", schedule(ttl="soon"), 10191),
    ("full", schedule(ttl="999ms"), 10191),
    ("full", schedule(ttl="0"), 10191),
    ("full", schedule(ttl="5m "), 10191),
    ("full", schedule(ttl="-1"), 10191),
    ("full", schedule(ttl="9223372036854775808"), 10191),
    ("full", schedule(rollup="SUB"), 10192),
    ("full", schedule(rollup="all"), 10192),
    ("full", schedule(rollup="sub "), 10192),
    ("bare", schedule(ttl="5m"), 10166),
    # Checks 7 to 10: target and source.
    ("full", schedule(target=""), 10190),
    ("full", (("Nats-Schedule", AT),), 10190),
    ("full", schedule(target="orders.*"), 10190),
    ("full", schedule(target="orders.>"), 10190),
    ("full", schedule(target="orders..due"), 10190),
    ("full", schedule(target="orders.due "), 10190),
    ("full", schedule(target="orders.s1"), 10190),
    ("full", schedule(target="elsewhere"), 10190),
    ("full", schedule(target="Orders.due"), 10190),
    ("full", schedule(target="sample.a.b"), 10190),
    ("full", schedule(source="orders.due"), 10203),
    ("full", schedule(source="orders.s1"), 10203),
    ("full", schedule(source="sample.*"), 10203),
    ("full", schedule(source="elsewhere"), 10203),
    # Check 11: the roll-up of the schedule message itself.
    ("full", schedule(storage_rollup="all"), 10192),
    ("full", schedule(storage_rollup="rubbish"), 10192),
    # Which of two faults is reported.
    ("full", schedule("rubbish", "", time_zone="rubbish", ttl="soon"), 10223),
    ("full", schedule("rubbish", "", ttl="soon"), 10189),
    ("full", schedule(target="", ttl="soon", rollup="all"), 10191),
    ("bare", schedule(target="", ttl="5m", rollup="all"), 10192),
    ("bare", schedule(target="", ttl="5m"), 10166),
    ("full", schedule(target="elsewhere", source="sample.*"), 10203),
    ("full", schedule(target="elsewhere", source="nowhere"), 10190),
    ("full", schedule(source="nowhere", storage_rollup="all"), 10203),
    ("full", schedule(target="elsewhere", next="soon"), 10190),
    # Checks 12 to 16: the atomic cancel.
    ("full", (("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "purge")), None),
    ("full", (("Nats-Scheduler", "elsewhere"), ("Nats-Schedule-Next", "purge")), None),
    ("full", schedule(scheduler="orders.s2", next="purge"), None),
    ("full", (("Nats-Scheduler", ""),), None),
    ("full", (("Nats-Schedule-Next", ""),), None),
    ("full", (("Nats-Schedule-Next", "Purge"),), 10212),
    ("full", (("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "2030-01-01T00:00:00Z")), 10212),
    ("off", (("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "soon")), 10212),
    ("full", (("Nats-Schedule-Next", "purge"),), 10212),
    ("full", (("Nats-Scheduler", ""), ("Nats-Schedule-Next", "purge")), 10212),
    ("full", (("Nats-Scheduler", "orders.*"), ("Nats-Schedule-Next", "purge")), 10212),
    ("full", (("Nats-Scheduler", "orders.s1"), ("Nats-Schedule-Next", "purge")), 10212),
    ("off", (("Nats-Scheduler", "orders.s1"), ("Nats-Schedule-Next", "purge")), 10212),
    ("off", (("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "purge")), 10188),
    ("full", (("Nats-Scheduler", "orders.s2"),), 10212),
    ("off", (("Nats-Scheduler", "orders.s2"),), 10212),
    ("full", (("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "")), 10212),
    ("full", schedule(scheduler="orders.s2"), 10212),
    # The TTL of the message itself, which is checked first or last.
    ("full", schedule(storage_ttl="5m"), None),
    ("bare", schedule(storage_ttl=""), None),
    ("bare", schedule(storage_ttl="00"), None),
    ("bare", schedule(storage_ttl="5m"), 10166),
    ("bare", schedule(storage_ttl="never"), 10166),
    ("bare", schedule(storage_ttl="soon"), 10165),
    ("full", schedule(storage_ttl="soon"), 10165),
    ("full", schedule(storage_ttl="0"), 10165),
    ("bare", schedule("rubbish", time_zone="Mars/Olympus", storage_ttl="5m"), 10166),
    ("bare", (("Nats-Schedule-Time-Zone", "Mars/Olympus"), ("Nats-TTL", "5m")), 10166),
    ("off", schedule(storage_ttl="5m"), 10166),
    ("off", schedule(storage_ttl="soon"), 10188),
    ("full", schedule(storage_rollup="all", storage_ttl="soon"), 10192),
    ("full", schedule(scheduler="orders.s2", storage_ttl="soon"), 10212),
    ("full", (("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "purge"), ("Nats-TTL", "soon")), 10165),
    ("bare", (("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "purge"), ("Nats-TTL", "5m")), 10166),
    ("bare", (("Nats-Scheduler", "orders.s2"), ("Nats-TTL", "5m")), 10166),
]


PURGED = b"Nats-Scheduler: t.s\r\nNats-Schedule-Next: purge\r\n\r\n"
SAMPLED = b"A: not used\r\nNats-Schedule-Source: t.src\r\n"

Generated = tuple[bytes, bytes | None, bytes]


def generated(
    lines: bytes,
    kept: bytes | None = None,
    *,
    source: bytes | None = None,
    added: bytes = b"",
    start: bytes = b"NATS/1.0\r\n",
) -> Generated:
    """Return the block of an overdue schedule on `t.s` for `t.o` with these lines, its source, and what was generated.

    Its lines are `kept` or, without a word, all of `lines`.
    """
    block = start + b"Nats-Schedule: " + LONG_AGO.encode() + b"\r\nNats-Schedule-Target: t.o\r\n" + lines + b"\r\n"
    own = lines if kept is None else kept
    return block, source, b"NATS/1.0\r\n" + own + PURGED[:-2] + added + b"\r\n"


GENERATED: dict[str, Generated] = {
    "a plain schedule": generated(b""),
    "TTL and roll-up": generated(
        b"Nats-Schedule-TTL: 5s\r\nNats-Schedule-Rollup: sub\r\n", b"", added=b"Nats-TTL: 5s\r\nNats-Rollup: sub\r\n"
    ),
    "TTL of two zeros": generated(b"Nats-Schedule-TTL:   00\r\n", b"", added=b"Nats-TTL: 00\r\n"),
    "TTL never": generated(
        b"Nats-Schedule-TTL: never\r\nNats-Schedule-Rollup: sub\r\n",
        b"",
        added=b"Nats-TTL: never\r\nNats-Rollup: sub\r\n",
    ),
    "headers of the user": generated(b"X: 1\r\nY: 2\r\n"),
    "duplicates": generated(b"A: 1\r\nB: 2\r\nA: 3\r\nA: 1\r\n"),
    "odd spacing": generated(b"A:1\r\nB:   2 \t\r\nC :3\r\n D: 4\r\nE:\r\n"),
    "lower-case look-alikes": generated(
        b"nats-schedule: x\r\nnats-ttl: 5\r\nNATS-MSG-ID: x\r\nnats-expected-stream: T\r\n"
    ),
    "UTF-8 and what is not": generated(b"A: gr\xc3\xbc\xc3\x9fe\r\nB: \xff\xfe\x80\r\n\xc3\xa9: e\r\n"),
    "prefix look-alikes": generated(
        b"Nats-ScheduleFoo: x\r\nNats-Schedule-Foo: y\r\nX-Nats-Schedule: z\r\nX-Nats-Schedule-Target: t.p\r\n"
        b"Nats-Schedul: kept\r\n",
        b"X-Nats-Schedule: z\r\nX-Nats-Schedule-Target: t.p\r\nNats-Schedul: kept\r\n",
    ),
    "expectations": generated(
        b"Nats-Expected-Foo: x\r\nNats-Expected-Stream: T\r\nNats-Expected: kept\r\nX-Nats-Expected-Foo: kept\r\n",
        b"Nats-Expected: kept\r\nX-Nats-Expected-Foo: kept\r\n",
    ),
    "what storing needs": generated(
        b"Nats-Msg-Id: one\r\nNats-TTL: 1h\r\nNats-Rollup: sub\r\nNats-Msg-Idx: kept\r\nNats-TTL-x: kept\r\n",
        b"Nats-Msg-Idx: kept\r\nNats-TTL-x: kept\r\n",
    ),
    "an empty roll-up": generated(b"Nats-Rollup:\r\nA: b\r\n", b"A: b\r\n"),
    "an inline status": generated(b"A: b\r\n", start=b"NATS/1.0 503 busy\r\n"),
    "look-alikes in values": generated(b"A: Nats-TTL: 5\r\nB: Nats-TTLNats-TTL\r\nNats-TTL: 1h\r\nC: d\r\n"),
    "a bare line feed": generated(
        b"A: b\nNats-Schedule-Foo: x\r\nC: d\nNats-TTL: 5\r\nE: f\r\n", b"A: b\nC: d\nNats-TTL: 5\r\nE: f\r\n"
    ),
    "a line without a colon": generated(b"nothing\r\nA: b\r\n"),
    "an empty mark of another stream": generated(b"Nats-Stream-Source:\r\nA: b\r\n"),
    "a source": generated(SAMPLED, b"S: 1\r\ns: 2\r\n", source=b"NATS/1.0\r\nS: 1\r\ns: 2\r\nNats-Msg-Id: m1\r\n\r\n"),
    "a source without headers": generated(SAMPLED, b"", source=b""),
    "a source with an empty block": generated(SAMPLED, b"", source=b"NATS/1.0\r\n\r\n"),
    "a source of which nothing is to keep": generated(
        SAMPLED, b"", source=b"NATS/1.0\r\nNats-Msg-Id: m2\r\nNats-TTL: 1h\r\nNats-ScheduleX: y\r\n\r\n"
    ),
    "a source whose block is no block": generated(SAMPLED, b"", source=b"xx"),
    "a source without an end": generated(SAMPLED, b"A: ", source=b"NATS/1.0\r\nA: bc"),
}
