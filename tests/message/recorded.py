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


RECORDED: dict[tuple[Stream, int | None], list[Headers]] = {
    ("full", None): [
        *(schedule(), schedule("@every 1s"), schedule("0 0 5 * * *", time_zone="Europe/Berlin")),
        *(schedule("@daily", time_zone="UTC"), schedule(ttl="5m", rollup="sub", source="sample.a")),
        *(schedule(ttl="", rollup="", source=""), schedule(ttl="00"), schedule(ttl="NEVER")),
        *(schedule(ttl="18446744073709551616"), schedule(storage_rollup="SUB"), schedule(storage_rollup="")),
        *(schedule("    " + AT, "   orders.due"), schedule(target="orders.a*"), schedule(target="orders.>a")),
        *(schedule(target="orders.x>"), schedule(target="orders.ümläut")),
        (("Nats-Schedule", AT), ("Nats-Schedule", "rubbish"), ("Nats-Schedule-Target", "orders.due")),
        (("nats-schedule", "rubbish"), ("Nats-Schedule ", "rubbish"), ("X-Nats-Schedule", "x")),
        (("Nats-ScheduleFoo", "rubbish"), ("Nats-Schedule-Foo", "rubbish")),
        (("Nats-Schedule-Target", "no blanks"), ("Nats-Schedule-TTL", "soon")),
        (("Nats-Schedule", ""), ("Nats-Schedule-TTL", "soon")),
        schedule("@at 0001-01-01T00:00:00Z", "", ttl="soon"),
        (("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "purge")),
        (("Nats-Scheduler", "elsewhere"), ("Nats-Schedule-Next", "purge")),
        *(schedule(scheduler="orders.s2", next="purge"), (("Nats-Scheduler", ""),), (("Nats-Schedule-Next", ""),)),
        schedule(storage_ttl="5m"),
    ],
    ("bare", None): [
        *(schedule(storage_ttl=""), schedule(storage_ttl="00")),
    ],
    ("off", None): [
        *(schedule(""), schedule("@at 0001-01-01T00:00:00Z", ""), (("Nats-Schedule-Time-Zone", "UTC"),)),
    ],
    ("full", 10165): [
        *(schedule(storage_ttl="soon"), schedule(storage_ttl="0")),
        (("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "purge"), ("Nats-TTL", "soon")),
    ],
    ("bare", 10165): [
        schedule(storage_ttl="soon"),
    ],
    ("bare", 10166): [
        *(schedule(ttl="5m"), schedule(target="", ttl="5m"), schedule(storage_ttl="5m")),
        *(schedule(storage_ttl="never"), schedule("rubbish", time_zone="Mars/Olympus", storage_ttl="5m")),
        (("Nats-Schedule-Time-Zone", "Mars/Olympus"), ("Nats-TTL", "5m")),
        (("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "purge"), ("Nats-TTL", "5m")),
        (("Nats-Scheduler", "orders.s2"), ("Nats-TTL", "5m")),
    ],
    ("off", 10166): [
        schedule(storage_ttl="5m"),
    ],
    ("off", 10188): [
        *(schedule(), schedule("rubbish"), schedule("@daily", time_zone="Mars/Olympus")),
        *((("Nats-Schedule-Time-Zone", "Mars/Olympus"),), schedule(ttl="soon")),
        *((("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "purge")), schedule(storage_ttl="soon")),
    ],
    ("full", 10189): [
        *(schedule(time_zone="UTC"), schedule("@every 5m", time_zone="UTC"), schedule("rubbish", "")),
        *(schedule(AT + " "), schedule("\t" + AT), schedule("@every 999ms"), schedule("@reboot")),
        *(schedule("* * * * *"), schedule("0 0 0 30 2 *"), schedule("2030-01-01T00:00:00Z")),
        schedule("rubbish", "", ttl="soon"),
    ],
    ("full", 10190): [
        *(schedule(target=""), (("Nats-Schedule", AT),), schedule(target="orders.*"), schedule(target="orders.>")),
        *(schedule(target="orders..due"), schedule(target="orders.due "), schedule(target="orders.s1")),
        *(schedule(target="elsewhere"), schedule(target="Orders.due"), schedule(target="sample.a.b")),
        *(schedule(target="elsewhere", source="nowhere"), schedule(target="elsewhere", next="soon")),
    ],
    ("full", 10191): [
        *(schedule(ttl="soon"), schedule(ttl="999ms"), schedule(ttl="0"), schedule(ttl="5m "), schedule(ttl="-1")),
        *(schedule(ttl="9223372036854775808"), schedule(target="", ttl="soon", rollup="all")),
    ],
    ("full", 10192): [
        *(schedule(rollup="SUB"), schedule(rollup="all"), schedule(rollup="sub "), schedule(storage_rollup="all")),
        *(schedule(storage_rollup="rubbish"), schedule(storage_rollup="all", storage_ttl="soon")),
    ],
    ("bare", 10192): [
        schedule(target="", ttl="5m", rollup="all"),
    ],
    ("full", 10203): [
        *(schedule(source="orders.due"), schedule(source="orders.s1"), schedule(source="sample.*")),
        *(schedule(source="elsewhere"), schedule(target="elsewhere", source="sample.*")),
        schedule(source="nowhere", storage_rollup="all"),
    ],
    ("full", 10212): [
        (("Nats-Schedule-Next", "Purge"),),
        (("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "2030-01-01T00:00:00Z")),
        *((("Nats-Schedule-Next", "purge"),), (("Nats-Scheduler", ""), ("Nats-Schedule-Next", "purge"))),
        (("Nats-Scheduler", "orders.*"), ("Nats-Schedule-Next", "purge")),
        *((("Nats-Scheduler", "orders.s1"), ("Nats-Schedule-Next", "purge")), (("Nats-Scheduler", "orders.s2"),)),
        *((("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "")), schedule(scheduler="orders.s2")),
        schedule(scheduler="orders.s2", storage_ttl="soon"),
    ],
    ("off", 10212): [
        (("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "soon")),
        *((("Nats-Scheduler", "orders.s1"), ("Nats-Schedule-Next", "purge")), (("Nats-Scheduler", "orders.s2"),)),
    ],
    ("full", 10223): [
        *(schedule(time_zone=""), schedule("@daily", time_zone="utc"), schedule("@daily", time_zone="UTC ")),
        *(schedule("@daily", time_zone="../UTC"), schedule("rubbish", time_zone="Mars/Olympus")),
        *((("Nats-Schedule-Time-Zone", "Mars/Olympus"),), (("Nats-Schedule-Time-Zone", ""),)),
        schedule("rubbish", "", time_zone="rubbish", ttl="soon"),
    ],
}
"""The headers of the messages that were published, by stream and the code of the answer.

The codes of `docs/reference/headers.md`, "Order of checks"; where a message has two faults, the first one counts.
"""
REJECTIONS = [(stream, headers, code) for (stream, code), messages in RECORDED.items() for headers in messages]


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
