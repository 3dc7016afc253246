"""Zones have the offsets that the standard library computes from the same data, and are found where Go finds them."""

import os
import re
import struct
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.schedule.instants import DAY, HOUR, SECOND, SECONDS_PER_DAY, days_from_civil
from nats_scheduler.schedule.invalid import InvalidTimeZone
from nats_scheduler.schedule.posix_rule import parse_posix_rule
from nats_scheduler.schedule.tzif import OffsetTable, read_tzif
from nats_scheduler.schedule.zone_data import host_zone_data, local_zone_data, package_zone_data, zone_data_versions
from nats_scheduler.schedule.zones import UTC as UTC_ZONE
from nats_scheduler.schedule.zones import Segment, Zone, _local_zone, load_zone
from tests.harness.seeds import draws, generator

PACKAGE = Path(str(files("tzdata"))) / "zoneinfo"
NAMES = sorted((PACKAGE.parent / "zones").read_text("utf-8").split())
FIRST_YEAR, LAST_YEAR = 1950, 2200


@cache
def loaded(name: str) -> Zone:
    zone = load_zone(name)
    assert isinstance(zone, Zone)
    return zone


@cache
def standard(name: str) -> ZoneInfo:
    """Read the file of the `tzdata` package with the standard library, whatever is installed on the host."""
    with (PACKAGE / name).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def standard_offset(name: str, second: int) -> int:
    offset = datetime.fromtimestamp(second, UTC).astimezone(standard(name)).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def first_second_of(year: int, month: int = 1, day: int = 1) -> int:
    return days_from_civil(year, month, day) * SECONDS_PER_DAY


SECONDS = st.integers(first_second_of(FIRST_YEAR), first_second_of(LAST_YEAR))


@pytest.mark.slow
def test_every_zone_has_the_offsets_of_the_standard_library() -> None:
    draw, different = generator("zones"), []
    for name in NAMES:
        for _ in range(draws(8)):
            second = draw.randrange(first_second_of(FIRST_YEAR), first_second_of(LAST_YEAR))
            if loaded(name).offset_at(second * SECOND) != standard_offset(name, second):
                different.append((name, second))
    assert different == []


@settings(max_examples=draws(40))
@given(st.sampled_from(NAMES), SECONDS)
def test_a_segment_ends_where_the_standard_library_has_a_change(name: str, second: int) -> None:
    segment = loaded(name).segment_at(second * SECOND)
    for edge in (segment.start, segment.end):
        if edge is not None and edge > first_second_of(FIRST_YEAR) * SECOND:
            around = [standard_offset(name, edge // SECOND - 1), standard_offset(name, edge // SECOND)]
            assert segment.offset in around
            assert [loaded(name).offset_at(edge - 1), loaded(name).offset_at(edge)] == around


@settings(max_examples=draws(40))
@given(st.sampled_from(NAMES), st.integers(-(10**21), 10**21))
def test_segments_follow_each_other_without_a_hole_at_any_distance(name: str, instant: int) -> None:
    zone = loaded(name)
    segment = zone.segment_at(instant)
    assert segment.start is None or segment.start <= instant
    assert segment.end is None or instant < segment.end
    if segment.end is not None:
        assert zone.segment_at(segment.end).start == segment.end
        assert zone.segment_at(segment.end - 1) == segment
    if segment.start is not None:
        assert zone.segment_at(segment.start - 1).end == segment.start


def test_names_are_those_that_go_loads() -> None:
    assert UTC_ZONE.segment_at(-(10**30)) == UTC_ZONE.segment_at(10**30) == Segment(None, None, 0)
    assert load_zone("UTC") is UTC_ZONE
    assert [loaded(name).name for name in LOADED] == list(LOADED)
    assert [name for name in REFUSED if not isinstance(load_zone(name), InvalidTimeZone)] == []
    assert load_zone("Europe/Amsterdam") is load_zone("Europe/Amsterdam"), "it is loaded once"
    assert str(load_zone("Mars/Olympus")).startswith("'Mars/Olympus': no such time zone")


LOADED = ("UTC", "Local", "America/New_York", "EST", "CET", "GMT", "Zulu", "Etc/GMT+2", "US/Pacific", "posixrules")
REFUSED = [
    *("", "utc", "local", "america/new_york", "Z", "+02:00", "UTC+2", "GMT+2", ".", "America", "Europe/", "\\UTC"),
    *("Europe/Amsterdam/", "Europe/Amsterdam ", "Europe\\Amsterdam", "../zoneinfo/UTC", "Europe/../UTC", "a..b"),
    *("/etc/localtime", "zone.tab", "__init__.py", "UTC\0", "\udcff", "x" * 70_000),
]


def test_one_zone_is_read_once_however_it_is_spelled() -> None:
    """As a path on the server: 2.15 takes and refuses these names (`tests/differential/header_cases.py`)."""
    gaza = loaded("Asia/Gaza")
    for name in ("Asia/./Gaza", "Asia//Gaza", "./Asia/Gaza", "Asia/.//././Gaza", f"Asia/{'./' * 200}Gaza"):
        zone = loaded(name)
        assert (zone.name, zone.digest) == (name, gaza.digest)
        assert zone.segment_at(0) is gaza.segment_at(0), "it has the same table"
    assert loaded("Asia/Calcutta").segment_at(0) is loaded("Asia/Kolkata").segment_at(0), "files with the same content"
    for name in ("Asia/Gaza/", "Asia/Gaza/.", "Asia/", "./", "UTC/.", "./Local", f"Asia/{'/' * 5_000}Gaza"):
        assert isinstance(load_zone(name), InvalidTimeZone), name


def test_a_zone_is_found_in_the_package_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Ourhouse").mkdir()
    (tmp_path / "Ourhouse" / "Attic").write_bytes((PACKAGE / "Asia" / "Kathmandu").read_bytes())
    monkeypatch.setenv("ZONEINFO", str(tmp_path))
    zone = load_zone("Ourhouse/Attic")
    assert isinstance(zone, Zone)
    assert zone.offset_at(0) == loaded("Asia/Kathmandu").offset_at(0)
    (tmp_path / "Asia").mkdir()
    (tmp_path / "Asia" / "Thimbu").write_bytes((PACKAGE / "UTC").read_bytes())
    monkeypatch.setenv("ZONEINFO", str(tmp_path))
    zone = load_zone("Asia/Thimbu")
    assert isinstance(zone, Zone)
    assert zone.offset_at(10**18) == 6 * 3600


def test_the_local_zone_is_what_the_environment_says_or_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    tokyo = PACKAGE / "Asia" / "Tokyo"
    for setting in ("Asia/Tokyo", ":Asia/Tokyo", str(tokyo)):
        monkeypatch.setenv("TZ", setting)
        assert local_zone_data() == tokyo.read_bytes(), setting
    for setting in ("UTC", "", "Mars/Olympus"):
        monkeypatch.setenv("TZ", setting)
        assert local_zone_data() is None, setting
    for setting, hours in (("Asia/Tokyo", 9), ("UTC", 0), ("Mars/Olympus", 0), (str(PACKAGE), 0)):
        monkeypatch.setenv("TZ", setting)
        zone = _local_zone()  # the one that is loaded by its name is kept for the whole process
        assert (zone.name, zone.offset_at(10**18)) == ("Local", hours * 3600), setting
    monkeypatch.delenv("TZ", raising=False)
    host = Path("/etc/localtime")
    assert local_zone_data() == (host.read_bytes() if os.path.exists(host) else None)


def test_bytes_that_are_no_zone_data_are_refused() -> None:
    sound = (PACKAGE / "Europe" / "Amsterdam").read_bytes()
    assert read_tzif(sound) is not None
    assert read_tzif(b"") is None
    assert read_tzif(b"TZif9" + sound[5:]) is None
    assert read_tzif(b"XZif" + sound[4:]) is None
    assert all(read_tzif(sound[:length]) is None for length in range(len(sound) - 40))


def test_data_of_the_first_version_is_read_without_a_rule() -> None:
    header = struct.pack(">4sc15x6l", b"TZif", b"\0", 0, 0, 0, 1, 2, 4)
    types = struct.pack(">lBBlBB", -60, 0, 0, 3_600, 1, 0)
    data = header + struct.pack(">lB", -5, 1) + types + b"ABC\0"
    assert read_tzif(data) == OffsetTable(-60, ((-5, 3_600),), "")
    assert read_tzif(data[:-1]) is None


RULES = {
    "UTC0": (0, []),
    "<+0545>-5:45": (20_700, []),
    "AAA0BBB0,M3.2.0,M11.1.0": (0, []),
    "EST5EDT": (
        -18_000,
        [(first_second_of(2026, 3, 8) + 25_200, -14_400), (first_second_of(2026, 11, 1) + 21_600, -18_000)],
    ),
    "CET-1CEST,M3.5.0,M10.5.0/3": (
        3_600,
        [(first_second_of(2026, 3, 29) + 3_600, 7_200), (first_second_of(2026, 10, 25) + 3_600, 3_600)],
    ),
    "<-02>2<-01>,M3.5.0/-1,M10.5.0/0": (
        -7_200,
        [(first_second_of(2026, 3, 29) + 3_600, -3_600), (first_second_of(2026, 10, 25) + 3_600, -7_200)],
    ),
    "IST-1GMT0,M10.5.0,M3.5.0/1": (
        3_600,
        [(first_second_of(2026, 3, 29) + 3_600, 3_600), (first_second_of(2026, 10, 25) + 3_600, 0)],
    ),
    "AAA0BBB,J60/0,J300/0": (0, [(first_second_of(2026, 3, 1), 3_600), (first_second_of(2026, 10, 27) - 3_600, 0)]),
    "AAA0BBB,59/0,299/0": (0, [(first_second_of(2026, 3, 1), 3_600), (first_second_of(2026, 10, 27) - 3_600, 0)]),
}


def test_rules_change_the_offset_when_they_say() -> None:
    rules = {text: parse_posix_rule(text) for text in RULES}
    assert {text: rule and (rule.standard, rule.changes(2026)) for text, rule in rules.items()} == RULES
    rule = parse_posix_rule("AAA0BBB,J60/0,J300/0")
    assert rule is not None
    assert rule.changes(2024)[0] == (first_second_of(2024, 3, 1), 3_600)
    texts = ("", "E5", "EST", "EST5EDT,M3.2.0", "EST5EDT,M3.2.0,M11.1.0,", "<EST5", "EST5:", "EST5EDT,M13.2.0,M11.1.0")
    assert [text for text in texts if parse_posix_rule(text) is not None] == []


def test_without_a_rule_the_last_offset_holds_for_ever() -> None:
    zone = Zone("Ruleless", OffsetTable(0, ((0, 3_600),), ""))
    assert zone.segment_at(10**25) == Segment(0, None, 3_600)
    assert zone.segment_at(-1) == Segment(None, 0, 0)
    assert Zone("Odd", OffsetTable(0, ((0, 3_600),), "rubbish")).offset_at(DAY) == 3_600
    zone = Zone("Renamed", OffsetTable(0, ((0, 3_600), (100, 3_600), (200, 0)), ""))
    assert zone.segment_at(150 * SECOND) == Segment(0, 200 * SECOND, 3_600)
    begun = Zone("Begun", OffsetTable(0, ((0, 3_600),), "AAA-1BBB,M3.5.0,M10.5.0/3"))
    assert begun.segment_at(0).start == 0, "the rule begins with the last change"
    zone = Zone("Permanent", OffsetTable(0, (), "XXX3EDT4,0/0,J365/23"))
    assert {zone.offset_at(first_second_of(2026) * SECOND + hour * HOUR) for hour in range(24 * 800)} == {-4 * 3600}


def test_the_zone_data_of_the_host_is_found_where_a_server_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Europe").mkdir()
    (tmp_path / "Europe" / "Berlin").write_bytes(b"what ZONEINFO holds")
    assert package_zone_data("Nowhere/At_All") is None
    packaged = package_zone_data("Europe/Berlin")
    assert packaged is not None
    assert packaged.startswith(b"TZif")
    monkeypatch.setenv("ZONEINFO", str(tmp_path))
    assert host_zone_data("Europe/Berlin") == b"what ZONEINFO holds"
    assert host_zone_data("Europe/Nowhere") is None
    versions = zone_data_versions()
    assert "the tzdata package" in versions
    assert all(re.fullmatch(r"\d{4}[a-z]", version) for version in versions.values()), versions
