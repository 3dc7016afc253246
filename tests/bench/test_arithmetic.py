"""The arithmetic of the benchmark: ratios, aims, the load, and what is no measurement."""

from pathlib import Path

import pytest

from nats_scheduler.message.definition_block import defined, definition_block
from nats_scheduler.message.dialect import ADR51, PORTABLE
from nats_scheduler.message.schedule_form import Terms
from tests.bench import tables
from tests.bench.aims import AIMS, judge
from tests.bench.fires import Fire, WrongFiresError, lateness, lateness_of_repeating
from tests.bench.load import BODY, SECOND, Extras, schedule
from tests.bench.measures import LAST
from tests.bench.profiles import MILLION, TEN_MILLION, scenario
from tests.bench.publisher import Publisher
from tests.bench.runs import Run, read_runs
from tests.bench.scenarios.spread import highest

MILLISECOND = 1_000_000


def a_run(*repeats: dict[str, float], name: str = "herd-1000", machine: str = "one") -> Run:
    """Build a run of one scenario and one measure: each repeat names a figure for each side."""
    found = Run("2026-01-01", machine, load_before=0.0, seed=1)
    for repeat in repeats:
        found.add(name, {side: {LAST.name: value} for side, value in repeat.items()})
    return found


def test_a_ratio_is_the_median_of_those_of_each_repeat() -> None:
    found = a_run({"native": 10, "emulated": 20}, {"native": 100, "emulated": 100}, {"native": 10, "emulated": 30})
    ratio = found.ratio("herd-1000", LAST.name, "emulated")
    assert ratio is not None
    assert (ratio.median, ratio.least, ratio.most) == (2.0, 1.0, 3.0)
    assert next(iter(tables.rows(found)))[-1] == "2.00 (1.00–3.00)"
    assert found.ratio("herd-1000", LAST.name, "portable") is None


def test_the_pieces_of_a_saved_run_are_one_run(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    whole = a_run({"native": 10, "emulated": 25}, {"native": 11, "emulated": 24})
    whole.save(path)
    assert read_runs(path) == [whole]
    a_run({"emulated": 20}).save(path)
    a_run({"native": 3}, machine="two").save(path)
    one, two = read_runs(path)
    assert one.values("herd-1000", LAST.name, "native") == [10, 11]
    assert one.values("herd-1000", LAST.name, "emulated") == [20], "what is measured again replaces what was"
    assert two.machine == "two"


def test_an_aim_is_met_by_each_mode_on_its_own() -> None:
    verdicts = {verdict.side: verdict for verdict in judge([a_run({"native": 10, "emulated": 15, "portable": 16})])}
    assert {side: verdict.is_met for side, verdict in verdicts.items()} == {"emulated": True, "portable": False}
    (pair,) = [one for one in judge([a_run({"emulated": 10, "pair": 13}, name="herd-20000")]) if one.side == "pair"]
    assert (pair.figures, pair.is_met) == ([1.3], False)


def test_every_aim_is_about_a_scenario_that_a_profile_runs() -> None:
    names = [*MILLION, *TEN_MILLION]
    assert [scenario(name).name for name in names] == names
    assert {aim.scenario for aim in AIMS} <= set(names)


async def search(up_to: int, lowest: int = 500, limit: int = 16_000, seconds: float = 60.0) -> tuple[int, list[int]]:
    """Search with a machine that holds every rate up to one; returns what was found and what was tried."""
    tried: list[int] = []

    async def holds(rate: int) -> bool:
        tried.append(rate)
        return rate <= up_to

    return await highest(holds, lowest, limit, seconds), tried


async def test_the_highest_rate_is_known_to_an_eighth_and_its_search_ends() -> None:
    for up_to in (500, 999, 1_000, 2_600, 4_321, 10_000, 15_999):
        found, tried = await search(up_to)
        assert found <= up_to <= found * 9 / 8 + 1
        assert len(tried) <= 10
    assert await search(2_600) == (2_500, [500, 1_000, 2_000, 4_000, 3_000, 2_500, 2_750])
    assert await search(499) == (0, [500]), "a side that holds no rate is not asked again"
    assert await search(1_000_000) == (16_000, [500, 1_000, 2_000, 4_000, 8_000, 16_000])
    assert await search(1_000_000, limit=700) == (700, [500, 700])
    assert await search(1_000_000, seconds=0.0) == (0, [])


def test_the_headers_of_a_load_are_those_of_its_definitions() -> None:
    """The benchmark writes them by itself, ten times as fast: what publishes is not what is measured."""
    for prefix, dialect in ((b"", ADR51), (b"X-", PORTABLE)):
        for extras in (Extras(), Extras("A.u", "Asia/Kathmandu", "1h")):
            terms = Terms(dialect, "A.t", extras.source or None, ttl=extras.ttl, rollup=False)
            frame = schedule("A.s", "0 0 9 * * *", prefix, "A.t", extras)
            block = definition_block(defined("0 0 9 * * *", terms, extras.time_zone or None))
            assert frame.split(b"\r\n", 1)[1].startswith(block + BODY)
    line, rest = schedule("A.s", "@hourly", b"X-", "A.t", Extras("A.u", body=b"short")).split(b"\r\n", 1)
    block_size, size = map(int, line.split()[-2:])
    assert len(rest) == size + 2
    assert rest[:block_size].endswith(b"X-Nats-Schedule-Source: A.u\r\n\r\n")
    frame = schedule("A.s", "@hourly", b"", "A.t", Extras(headers=b"Order-Id: 7\r\n", body=b"body"))
    assert frame.endswith(b"Nats-Schedule-Target: A.t\r\nOrder-Id: 7\r\n\r\nbody\r\n")


def test_acknowledgements_are_counted_wherever_the_bytes_are_cut() -> None:
    answers = b'MSG _BENCH.ack 1 25\r\n{"stream":"BENCH","seq":12}\r\n' * 7
    for cut in range(1, len(answers), 3):
        publisher = Publisher()
        publisher.data_received(answers[:cut])
        publisher.data_received(answers[cut:])
        assert publisher.acknowledged == 7


def test_a_fire_that_is_lost_doubled_or_early_is_no_measurement() -> None:
    fires = [Fire(1, 30 * MILLISECOND), Fire(0, 12 * MILLISECOND)]
    assert lateness(fires, [10 * MILLISECOND, 29 * MILLISECOND]) == [1.0, 2.0]
    for found, reason in (
        ([Fire(0, 10)], r"1 fires of 2 schedules: 1 lost \(such as 1\)"),
        ([Fire(0, 10), Fire(0, 10)], r"1 lost \(such as 1\), 1 stored twice \(such as 0\)"),
        ([Fire(0, 10), Fire(1, 10), Fire(1, 10)], r"3 fires of 2 schedules: 1 stored twice \(such as 1\)"),
        ([Fire(0, 10), Fire(1, 10), Fire(2, 10)], r"1 of no schedule \(such as 2\)"),
        ([Fire(0, 10), Fire(1, -MILLISECOND)], "1.000 ms early"),
    ):
        with pytest.raises(WrongFiresError, match=reason):
            lateness(found, [0, 0])


def repeated(*seconds: float, number: int = 0) -> list[Fire]:
    """Build the fires of one schedule, stored at these seconds."""
    return [Fire(number, round(at * SECOND)) for at in seconds]


def test_repeating_schedules_fire_once_at_each_of_their_seconds() -> None:
    before_and_after = repeated(98.001, 104.001)
    fires = [*before_and_after, *repeated(100.002, 102.004), *repeated(100.001, 101.003, 102.001, 103.001, number=1)]
    assert lateness_of_repeating(fires, [2, 1], 100, 104) == pytest.approx([1, 1, 1, 2, 3, 4])
    assert lateness_of_repeating(repeated(101.001, 103.5), [2], 100, 104) == pytest.approx([1, 500])
    for seconds in (
        (),
        (100.001,),  # the last one is lost
        (102.001,),  # the first one is lost
        (100.001, 102.001, 102.001),  # twice
        (100.001, 103.001),  # late
        (100.001, 101.001, 102.001),  # one more
        (100.001, 101.999),  # early
    ):
        with pytest.raises(WrongFiresError):
            lateness_of_repeating(repeated(*seconds), [2], 100, 104)
    with pytest.raises(WrongFiresError, match="early"):
        lateness_of_repeating(repeated(99.999, 100.999), [1], 99, 101)
