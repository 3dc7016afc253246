"""Header combinations as data: single faults, oddities of the grammar, pairs of faults.

Its rule: a case is the kind of stream that it is published to and the header lines as they are sent.
`{n}` stands for the stream's name, `{self}` for the subject that the case is published to.
What each means is for the servers to say, so no expectation is written here.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Literal, NamedTuple

Kind = Literal["full", "bare", "moved", "off"]
"""Streams: `full` has schedules and TTLs of messages, `bare` schedules only, `moved` also a transform, `off` none."""

FLAGGED: tuple[Kind, ...] = ("full", "bare", "moved")
KINDS: tuple[Kind, ...] = (*FLAGGED, "off")

AT = "@at 2100-01-01T00:00:00Z"
PATTERN = f"Nats-Schedule: {AT}"
TARGET = "Nats-Schedule-Target: {n}.due"
CRON = "Nats-Schedule: 0 0 5 1 1 *"
CANCEL = ("Nats-Schedule-Next: purge", "Nats-Scheduler: {n}.gone")


class Case(NamedTuple):
    """One publish."""

    kind: Kind
    lines: tuple[str, ...]

    def block(self, stream: str, subject: str) -> bytes:
        """Write the header block for a stream and a subject."""
        lines = "".join(f"{line}\r\n" for line in self.lines)
        return f"NATS/1.0\r\n{lines}\r\n".replace("{n}", stream).replace("{self}", subject).encode()


PATTERNS = [
    *("", " ", AT, AT + " ", f"   {AT}", f"\t{AT}", AT.upper(), "@at  2100-01-01T00:00:00Z"),
    *("@at\t2100-01-01T00:00:00Z",),
    *("@at 2100-01-01t00:00:00Z", "@at 2100-01-01T00:00:00z", "@at 2100-01-01 00:00:00Z", "@at 2100-01-01T00:00:00"),
    *("@at 2100-01-01T00:00:00+02:00", "@at 2100-01-01T00:00:00-00:00", "@at 2100-01-01T00:00:00+24:00"),
    *("@at 2100-01-01T00:00:00+23:60", "@at 2100-01-01T00:00:00+0200", "@at 2100-01-01T00:00:00+02"),
    *("@at 2100-01-01T00:00:00+25:00", "@at 2100-01-01T00:00:00+23:61", "@at 2100-01-01T00:00:00 Z"),
    *("@at 2100-01-01T00:00:00.5Z", "@at 2100-01-01T00:00:00,5Z", "@at 2100-01-01T00:00:00.Z"),
    *("@at 2100-01-01T00:00:00.1234567890123Z", "@at 2100-01-01T3:04:05Z", "@at 2100-1-01T00:00:00Z"),
    *("@at 2100-01-1T00:00:00Z", "@at 2100-01-01T00:00Z", "@at 2100-01-01T24:00:00Z", "@at 2100-01-01T23:59:60Z"),
    *("@at 2100-02-29T00:00:00Z", "@at 2096-02-29T00:00:00Z", "@at 2100-13-01T00:00:00Z", "@at 2100-00-01T00:00:00Z"),
    *("@at 12100-01-01T00:00:00Z", "@at -100-01-01T00:00:00Z", "@at 4102444800", "@at", "@at "),
    *("@AT 2100-01-01T00:00:00Z",),
    *("@at 0001-01-01T00:00:00Z", "@at 0001-01-01T00:00:00+01:00", "@at 0001-01-01T01:00:00+01:00"),
    *("2100-01-01T00:00:00Z", "rubbish", "@reboot", "@Daily", "@daily ", " @daily", "@midnight", "@yearly"),
    *("@annually",),
    *("@monthly", "@weekly", "@hourly", "@every", "@every ", "@every 1h", "@every 60m0s", "@every 1.5h", "@every .5h"),
    *("@every 1.h", "@every 999ms", "@every 0", "@every 0s", "@every -1h", "@every +1h", "@every 1d", "@every 1w"),
    *("@every 0.9999999999s", "@every 1e3s", "@every 0x10s", "@every 1_000s", "@every 1 h", "@every 1H", "@every 1h "),
    *("@every  1h", "@every\t1h", "@EVERY 1h", "@every 3600000000us", "@every 3600000000µs", "@every 3600000000μs"),
    *("@every 2562047h47m16.854775807s", "@every 2562047h47m16.854775808s", "@every 1h1h", "@every 1s1h", "@every h"),
    *("@every 3600", "@every 1h.", "@every ..5h", "@every 3600000000000ns", "@every 1h-1m"),
    *("0 0 5 1 1 *", "0 0 5 1 1", "0 0 5 1 1 * *", "  0  0   5 1 1 *  ", "0\t0\t5\t1\t1\t*", "0\u00a00\u20035 1 1 *"),
    *("60 * 5 1 1 *", "0 60 5 1 1 *", "0 0 24 1 1 *", "0 0 5 0 1 *", "0 0 5 32 1 *", "0 0 5 1 0 *", "0 0 5 1 13 *"),
    *("0 0 5 1 1 7", "0 0 5 1 jan *", "0 0 5 1 JAN-mar *", "0 0 5 1 january *", "0 0 5 1 1 sun", "0 0 5 1 1 1-fri"),
    *("0 0 5 1 1 sat-sun", "0 0 5 1 1 mon,wed", "0 0 5 1 1 */mon", "0 0 5 30-10 1 *", "0 0 5 1,,2 1 *", "0 0 5 ,1 1 *"),
    *("0 0 5 1, 1 *", "0 0 5 , 1 1", "0 0 5 , 1 *", ", 0 5 1 1 *", "0 0 5 1 , *", "0 0 5 1 1 ,", "0 0 5 , 1 ,"),
    *("? ? ? ? 1 ?", "0 0 5 ? 1 *", "0 0 5 *-5 1 *", "0 0 5 *-garbage 1 *", "0 0 5 *-1-2-3/2 1 *", "0 0 5 ?-x/3 1 *"),
    *("0 0 5 */2 1 *", "0 0 5 3/2 1 *", "0 0 5 1-9/2 1 *", "0 0 5 */0 1 *", "0 0 5 5/ 1 *", "0 0 5 /5 1 *"),
    *("0 0 5 1/2/3 1 *",),
    *("0 0 5 */1000000 1 *", "0 0 5 */99999999999999999999 1 *", "0 0 5 +5 1 *", "0 0 5 005 1 *", "0 0 5 */+5 1 *"),
    *("0 0 5 -5 1 *", "0 0 5 0x5 1 *", "0 0 5 1_0 1 *", "0 0 5 ٣ 1 *", "0 0 5 L 1 *", "0 0 5 15W 1 *", "0 0 5 1 1 1#2"),
    *("0 0 0 30 2 *", "0 0 0 31 4 *", "0 0 0 29 2 *", "0 0 0 31 2,4,6,9,11 *", "0 0 5 1-2-3 1 *", "0 0 5 a 1 *"),
    *("0 0 5 1.5 1 *",),
    *("*/0 * * * * *", "0-60 * 5 1 1 *", "5-1 * 5 1 1 *", "0 0 5 1 1 */8", "0 0 5 1 1 0-6/7", "TZ=UTC 0 0 5 1 1 *"),
]
ZONES = [
    *("UTC", "Local", "America/New_York", "Europe/Amsterdam", "EST", "CET", "GMT", "Zulu", "Etc/GMT+2", "US/Pacific"),
    *("", " ", "utc", "local", "LOCAL", "america/new_york", "Z", "+02:00", "UTC+2", "GMT+2", ".", "Europe", "Europe/"),
    *("zone.tab", "tzdata.zi", "UTC ", "../UTC", "Europe/../UTC", "/usr/share/zoneinfo/UTC", "\\UTC", "Mars/Olympus"),
    *("Europe//Amsterdam", "./UTC", "Europe/./Amsterdam", "\tUTC", "Africa/Cairo", "Australia/Lord_Howe"),
    *("UTC\tx", "ü", "Asia/Gaza", "Asia/.//././Gaza", "./Asia/Gaza", "Asia/Gaza/.", "UTC/.", "./Local", ".UTC"),
]
TTLS = [
    *("5m", "1s", "3600", "never", "NEVER", "Never", "00", "0", "0s", "999ms", "1.5s", "1.9999s", "-1", "-5m", "+5"),
    *("+5m", "1.5", "1d", "5m ", " 5m", "\t5m", "", " ", "soon", "18446744073709551616", "9223372036854775808", "0x10"),
    *("9223372036854775807h", "2562047h47m16.854775807s", "1h1m", "1 h", "never ", "1e3", "٣", "000", "01"),
]
STORAGE_TTLS = [ttl for ttl in TTLS if not ttl.startswith("2562047h")]
"""With the longest duration a server from 2.11 on expires a message at once, perhaps before anyone reads it."""

ROLLUPS = ["sub", "SUB", "Sub", "all", "", " ", "sub ", "\tsub", "  sub", "rubbish"]
SUBJECTS = [
    *("{n}.due", "{n}.due ", "  {n}.due", "\t{n}.due", "", " ", "{self}", "{n}.*", "{n}.>", ">", "*", "{n}..due"),
    *("{n}.due.", ".{n}.due", "{n}.a*", "{n}.>a", "{n}.x>", "{n}.a b", "{n}.a\tb", "{n}.>.x", "elsewhere", "{n}"),
    *("{n}.ümläut", "{n}.*.x", "{n}.\x0c", "$JS.API.INFO", "{n}.in.x", "{n}.out.x", "more.a", "more.a.b", "More.a"),
]
CANCELLED = [subject.replace("{n}.due", "{n}.gone") for subject in SUBJECTS]
"""The subjects of a cancel: never one that a fire may reach meanwhile (check 15 of docs/reference/headers.md)."""

NEXTS = ["purge", "Purge", "purge ", "  purge", "", " ", "\tpurge", "2100-01-01T00:00:00Z", "rubbish"]


def _with(header: str, values: Iterable[str], *others: str) -> list[tuple[str, ...]]:
    return [(*others, f"{header}: {value}") for value in values]


SINGLES: list[tuple[str, ...]] = [
    *_with("Nats-Schedule", PATTERNS, TARGET),
    *_with("Nats-Schedule-Time-Zone", ZONES, CRON, TARGET),
    *_with("Nats-Schedule-Time-Zone", ZONES[:16], PATTERN, TARGET),
    *_with("Nats-Schedule-Time-Zone", ZONES[:16], "Nats-Schedule: @every 1h", TARGET),
    *_with("Nats-Schedule-Time-Zone", ZONES[:16], "Nats-Schedule: @daily", TARGET),
    *_with("Nats-Schedule-Time-Zone", ZONES),
    *_with("Nats-Schedule-TTL", TTLS, PATTERN, TARGET),
    *_with("Nats-Schedule-TTL", ("soon", "5m")),
    *_with("Nats-TTL", STORAGE_TTLS, PATTERN, TARGET),
    *_with("Nats-TTL", STORAGE_TTLS, *CANCEL),
    *_with("Nats-Schedule-Rollup", ROLLUPS, PATTERN, TARGET),
    *_with("Nats-Schedule-Rollup", ("all",)),
    *_with("Nats-Schedule-Target", SUBJECTS, PATTERN),
    *_with("Nats-Schedule-Target", ("no blanks", "")),
    *_with("Nats-Schedule-Source", SUBJECTS, PATTERN, TARGET),
    *_with("Nats-Schedule-Source", ("{n}.*",)),
    *_with("Nats-Scheduler", CANCELLED, "Nats-Schedule-Next: purge"),
    *_with("Nats-Scheduler", CANCELLED),
    *_with("Nats-Scheduler", CANCELLED, "Nats-Schedule-Next: 2100-01-01T00:00:00Z"),
    *_with("Nats-Schedule-Next", NEXTS),
    *_with("Nats-Schedule-Next", NEXTS, "Nats-Scheduler: {n}.gone"),
    *_with("Nats-Schedule-Next", NEXTS, "Nats-Scheduler: {n}.gone", PATTERN, TARGET),
    (PATTERN,),
    ("Nats-Schedule: ", "Nats-Schedule-TTL: soon"),
]
"""One thing that may be wrong, or odd, at a time."""

SPELLINGS: list[tuple[str, ...]] = [
    (PATTERN, "Nats-Schedule: rubbish", TARGET),
    ("Nats-Schedule: rubbish", PATTERN, TARGET),
    (PATTERN, TARGET, "Nats-Schedule-Target: elsewhere"),
    (PATTERN, "Nats-Schedule-Target: elsewhere", TARGET),
    (PATTERN, TARGET, "Nats-Schedule-TTL: 5m", "Nats-Schedule-TTL: soon"),
    (PATTERN, TARGET, "Nats-Schedule-TTL: ", "Nats-Schedule-TTL: soon"),
    (CRON, TARGET, "Nats-Schedule-Time-Zone: UTC", "Nats-Schedule-Time-Zone: rubbish"),
    (CRON, TARGET, "Nats-Schedule-Time-Zone: rubbish", "Nats-Schedule-Time-Zone: UTC"),
    ("nats-schedule: rubbish", TARGET),
    ("NATS-SCHEDULE: rubbish", TARGET),
    ("Nats-Schedule : rubbish", TARGET),
    (" Nats-Schedule: rubbish", TARGET),
    ("Nats-Schedule:rubbish", TARGET),
    (f"Nats-Schedule:{AT}", "Nats-Schedule-Target:{n}.due"),
    (f"Nats-Schedule:      {AT}", "Nats-Schedule-Target:     {n}.due"),
    ("Nats-Schedule", TARGET),
    ("A: Nats-Schedule: rubbish", TARGET),
    ("A: b\nNats-Schedule: rubbish", TARGET),
    ("Nats-ScheduleNats-Schedule: rubbish", TARGET),
    ("Nats-ScheduleNats-Schedule: x", "Nats-Schedule: rubbish", TARGET),
    ("A: xNats-Schedule", "Nats-Schedule: rubbish", TARGET),
    ("Nats-ScheduleFoo: rubbish", "Nats-Schedule-Foo: rubbish"),
    ("X-Other: x", PATTERN, "Y-Other: y", TARGET, "Z-Other: z"),
    (TARGET, PATTERN),
    (PATTERN, "nats-schedule-target: {n}.due"),
    (PATTERN, TARGET, "nats-schedule-ttl: soon"),
    (PATTERN, TARGET, "nats-schedule-rollup: all"),
    ("nats-scheduler: {n}.x",),
    ("nats-schedule-next: rubbish",),
    ("Nats-Scheduler : {n}.x",),
    ("Nats-Schedulers: {n}.x",),
    ("Nats-Schedule-Nextt: x",),
    (PATTERN, TARGET, "Nats-Rollup: sub"),
    (PATTERN, TARGET, "Nats-Rollup: SUB"),
    (PATTERN, TARGET, "Nats-Rollup: "),
    (PATTERN, TARGET, "Nats-Rollup: rubbish"),
    (PATTERN, TARGET, "nats-rollup: rubbish"),
    (PATTERN, TARGET, "Nats-Rollup: sub", "Nats-Rollup: rubbish"),
    ("Nats-Rollup: sub", *CANCEL),
    (PATTERN, TARGET, *CANCEL),
    ("Nats-Schedule-Next: purge", "Nats-Schedule-Next: rubbish", "Nats-Scheduler: {n}.gone"),
    ("Nats-Schedule-Next: purge", "Nats-Scheduler: {n}.gone", "Nats-Scheduler: {n}.*"),
    (PATTERN, TARGET, "Nats-Expected-Stream: elsewhere"),
    ("Nats-Schedule: rubbish", TARGET, "Nats-Expected-Stream: elsewhere"),
    (PATTERN, TARGET, "Nats-Expected-Last-Sequence: 9999999"),
    (PATTERN, TARGET, "Nats-Expected-Last-Subject-Sequence: 7"),
    (PATTERN, TARGET, "Nats-Expected-Last-Subject-Sequence: 0"),
    (PATTERN, TARGET, "Nats-TTL: 5m", "Nats-TTL: soon"),
    (PATTERN, TARGET, "nats-ttl: soon"),
    (TARGET, "Nats-Schedule-Time-Zone: UTC"),
]
"""Duplicates, odd case, odd spacing, look-alikes, and the server's own headers beside ours."""

FAULTS = {
    "zone": ("Nats-Schedule-Time-Zone", "Mars/Olympus"),
    "zone at": ("Nats-Schedule-Time-Zone", "UTC"),
    "pattern": ("Nats-Schedule", "rubbish"),
    "no pattern": ("Nats-Schedule", ""),
    "never": ("Nats-Schedule", "0 0 0 30 2 *"),
    "ttl": ("Nats-Schedule-TTL", "soon"),
    "ttl used": ("Nats-Schedule-TTL", "5m"),
    "rollup": ("Nats-Schedule-Rollup", "all"),
    "target grammar": ("Nats-Schedule-Target", "{n}.*"),
    "target missing": ("Nats-Schedule-Target", ""),
    "target self": ("Nats-Schedule-Target", "{self}"),
    "target elsewhere": ("Nats-Schedule-Target", "elsewhere"),
    "source grammar": ("Nats-Schedule-Source", "{n}.*"),
    "source target": ("Nats-Schedule-Source", "{n}.due"),
    "source elsewhere": ("Nats-Schedule-Source", "nowhere"),
    "storage rollup": ("Nats-Rollup", "rubbish"),
    "next": ("Nats-Schedule-Next", "soon"),
    "purge": ("Nats-Schedule-Next", "purge"),
    "scheduler": ("Nats-Scheduler", "{n}.gone"),
    "scheduler self": ("Nats-Scheduler", "{self}"),
    "storage ttl": ("Nats-TTL", "soon"),
    "storage ttl used": ("Nats-TTL", "5m"),
}
"""One fault of each kind; those of one header cannot be had together."""


def _faulty(names: Iterable[str]) -> tuple[str, ...] | None:
    """Write a schedule with these faults; None where two are of one header."""
    chosen = [FAULTS[name] for name in names]
    headers = dict(chosen)
    if len(headers) < len(chosen):
        return None
    headers = {"Nats-Schedule": AT, "Nats-Schedule-Target": "{n}.due", **headers}
    return tuple(f"{name}: {value}" for name, value in headers.items())


def pairs() -> Iterator[tuple[str, ...]]:
    """Yield every pair of faults."""
    for names in combinations(FAULTS, 2):
        if lines := _faulty(names):
            yield lines


def fixed_cases(kinds: Iterable[Kind]) -> list[Case]:
    """Return every case that is thought out, for each kind of stream."""
    return [Case(kind, lines) for kind in kinds for lines in (*SINGLES, *SPELLINGS, *pairs())]


ERASING: list[tuple[str, ...]] = [
    (PATTERN, TARGET, "Nats-Rollup: all"),
    (PATTERN, TARGET, "Nats-Rollup: ALL"),
    (PATTERN, "Nats-Schedule-Target: elsewhere", "Nats-Rollup: all"),
    ("Nats-Schedule: rubbish", TARGET, "Nats-Rollup: all"),
    (PATTERN, TARGET, "Nats-Rollup: all", "Nats-Schedule-Next: soon"),
    (*CANCEL, "Nats-Rollup: all"),
]
"""A server that stores these removes everything else in the stream, so they are said one after the other."""
