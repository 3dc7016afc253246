"""The arithmetic of the benchmark: figures, ratios, what moved, which aims hold, and what is no measurement."""

import os
import re
import time
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from nats_scheduler.message.definition_block import defined, definition_block
from nats_scheduler.message.dialect import ADR51, PORTABLE
from nats_scheduler.message.schedule_form import Terms
from tests.bench import tables
from tests.bench.__main__ import EXIT_AIM_MISSED, EXIT_REGRESSION, main
from tests.bench.aims import AIMS, judge
from tests.bench.comparison import moves
from tests.bench.curve import drawn, points
from tests.bench.fires import Fire, WrongFiresError, fire_in, lateness, lateness_of_repeating
from tests.bench.load import (
    BODY,
    SECOND,
    Extras,
    daily_pattern,
    schedule,
    source_of,
    spread,
    subject_of,
    target_of,
    targets_of,
)
from tests.bench.measures import (
    CPU_FIRE,
    FIRE_RATE,
    HIGHEST_RATE,
    IDLE_CPU,
    LAST,
    LOAD_RATE,
    MEASURES,
    P50,
    P99,
    TAKEOVER,
    Measure,
    percentile,
)
from tests.bench.needs import available_disk, available_memory, missing, needed
from tests.bench.processes import Cpu, cpu_seconds, kernel_seconds, read_clock, resident_bytes
from tests.bench.profiles import DEFAULT, MILLION, QUICK, TEN_MILLION, UnknownScenarioError, chosen, scenario
from tests.bench.publisher import Publisher
from tests.bench.runner import run
from tests.bench.runs import Run, read_runs
from tests.bench.scenarios.spread import highest
from tests.bench.sides import NATIVE

MILLISECOND = 1_000_000


def a_run(*repeats: dict[str, float], measure: Measure = LAST, name: str = "herd-1000", machine: str = "one") -> Run:
    """Build a run of one scenario and one measure: each repeat names a figure for each side."""
    found = Run("2026-01-01", machine, load_before=0.0, seed=1)
    for repeat in repeats:
        found.add(name, {side: {measure.name: value} for side, value in repeat.items()})
    return found


def steady(native: float, emulated: float, *, measure: Measure = LAST, machine: str = "one") -> Run:
    """Build a run of three repeats that are equal."""
    return a_run(*[{"native": native, "emulated": emulated}] * 3, measure=measure, machine=machine)


# -- figures, ratios and tables --------------------------------------------------------------------------------


def test_a_percentile_is_the_value_that_the_share_does_not_exceed() -> None:
    expected = {0.0: 1, 0.5: 50, 0.501: 51, 0.99: 99, 0.991: 100, 1.0: 100}
    hundred = [float(value) for value in range(1, 101)]
    assert {share: percentile(hundred, share) for share in expected} == expected
    assert {percentile([7.0], share) for share in expected} == {7.0}


def test_a_ratio_is_the_median_of_the_ratios_of_each_repeat() -> None:
    found = a_run(
        {"native": 10, "emulated": 20}, {"native": 100, "emulated": 100}, {"native": 10, "emulated": 30}, {"native": 10}
    )
    ratio = found.ratio("herd-1000", LAST.name, "emulated")
    assert ratio is not None
    assert (ratio.median, ratio.least, ratio.most) == (2.0, 1.0, 3.0)
    assert found.value("herd-1000", LAST.name, "emulated") == 30
    assert found.ratio("herd-1000", LAST.name, "portable") is None
    assert a_run({"native": 0, "emulated": 1}).ratio("herd-1000", LAST.name, "emulated") is None


def test_a_table_holds_every_side_the_ratios_to_the_native_one_and_their_range() -> None:
    found = a_run({"native": 10, "emulated": 25, "portable": 5})
    assert tables.columns(found)[3:] == ["native", "emulated", "portable", "emulated ÷ native", "portable ÷ native"]
    assert list(tables.rows(found)) == [["herd-1000", LAST.name, "ms", "10.00", "25.00", "5.00", "2.50", "0.500"]]
    alone = a_run({"emulated": 1_234.5}, {"emulated": 1_234.5})
    assert tables.columns(alone)[3:] == ["emulated"]
    assert list(tables.rows(alone)) == [["herd-1000", LAST.name, "ms", "1,234.50"]]
    varying = a_run({"native": 10, "emulated": 20}, {"native": 10, "emulated": 10}, {"native": 10, "emulated": 5})
    assert next(iter(tables.rows(varying)))[-1] == "1.00 (0.500–2.00)"
    assert tables.markdown(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_a_saved_run_is_read_back_and_its_pieces_are_one_run(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    whole = a_run({"native": 10, "emulated": 25}, {"native": 11, "emulated": 24})
    whole.save(path)
    assert read_runs(path) == [whole]
    again, other = a_run({"emulated": 20}), a_run({"native": 7}, name="herd-7")
    again.load_before = 0.5
    for piece in (again, other):
        piece.save(path)
    (run,) = read_runs(path)
    assert (run.values("herd-1000", LAST.name, "native"), run.load_before) == ([10, 11], 0.5)
    assert run.values("herd-1000", LAST.name, "emulated") == [20], "what is measured again replaces what was"
    assert run.values("herd-7", LAST.name, "native") == [7]
    a_run({"native": 3}, machine="two").save(path)
    assert [found.machine for found in read_runs(path)] == ["one", "two"]
    for text in ('{"date": "today"}', "[]", "[{}]", "no JSON"):
        path.write_text(text)
        with pytest.raises(ValueError, match="holds no saved run"):
            read_runs(path)


def test_cpu_is_that_of_the_scheduler_of_the_server_of_both_and_the_kernels_part() -> None:
    used = Cpu(0.5, 0.3, 0.2, 0.4).since(Cpu(0.1, 0.1, 0.0, 0.1))
    names = [f"CPU per fire, {part}" for part in ("sum", "scheduler", "server", "kernel")]
    assert CPU_FIRE.figures(used, 1_000) == pytest.approx(dict(zip(names, (400.0, 200.0, 200.0, 300.0), strict=True)))
    assert list(IDLE_CPU.figures(used, 10.0).values()) == pytest.approx([4.0, 2.0, 2.0, 3.0])
    clocks = {"0:01.50": 1.5, " 1:02:03\n": 3_723, "2-00:00:01": 172_801, "12:00": 720}
    assert {text: read_clock(text) for text in clocks} == clocks, "as `ps` prints it"
    before = time.process_time()
    while time.process_time() < before + 0.02:
        pass
    least, read, most = time.process_time(), cpu_seconds(os.getpid()), time.process_time()
    assert least - 0.05 <= read <= most + 1.0  # `ps` rounds
    before = kernel_seconds(os.getpid())
    while kernel_seconds(os.getpid()) == before:
        pass  # it reads from the kernel, so its own time there grows
    assert kernel_seconds(os.getpid()) < cpu_seconds(os.getpid()) + 1.0
    assert 5_000_000 < resident_bytes(os.getpid()) < 5_000_000_000


# -- what moved, and the aims ----------------------------------------------------------------------------------


def test_ratios_are_compared_and_not_figures() -> None:
    assert list(moves(steady(100, 200), steady(1_000, 2_000, machine="ten times slower"))) == []
    (move,) = moves(steady(100, 200), steady(1_000, 4_000, machine="ten times slower"))
    assert (move.side, move.before, move.now, move.worse_by, move.is_regression) == ("emulated", 2.0, 4.0, 2.0, True)
    (faster,) = moves(steady(100, 200), steady(100, 100))
    assert (faster.worse_by, faster.is_regression) == (0.5, False)
    (slower,) = moves(steady(100, 200, measure=LOAD_RATE), steady(100, 100, measure=LOAD_RATE))
    assert (slower.worse_by, slower.is_regression) == (2.0, True), "more is better"
    assert "2.00 × worse" in slower.row()
    assert "2.00 × better" in faster.row()
    before = a_run(*[{"emulated": 1.0}] * 3, measure=TAKEOVER)
    worse, elsewhere = [a_run(*[{"emulated": 3.0}] * 3, measure=TAKEOVER, machine=name) for name in ("one", "two")]
    (move,) = moves(before, worse)
    assert move.row()[3:6] == ["1.00 s", "3.00 s", "3.00 × worse"], "what has no native counterpart"
    assert list(moves(before, elsewhere)) == [], "on the same machine only"


def test_what_varies_between_repeats_or_says_nothing_of_the_scheduler_is_noise() -> None:
    noisy = a_run(*[{"native": 100.0, "emulated": value} for value in (150.0, 200.0, 300.0)])
    once = a_run({"native": 100, "emulated": 100})
    fine = steady(250, 1.0, measure=P99)
    for before, now, worse_by in (
        (noisy, steady(100, 390), []),
        (noisy, steady(100, 410), [2.05]),
        (once, steady(100, 140), []),  # it was not repeated
        (once, steady(100, 160), [1.6]),
        (steady(100, 100), steady(100, 140), [1.4]),
        (steady(100, 100), steady(100, 110), []),
        (fine, steady(250, 1.9, measure=P99), []),  # below the grain of the measure
        (fine, steady(250, 2.1, measure=P99), [2.1]),
        (steady(1, 1, measure=FIRE_RATE), steady(1, 9, measure=FIRE_RATE), []),
    ):
        assert [move.worse_by for move in moves(before, now)] == pytest.approx(worse_by)


def test_an_aim_bounds_a_figure_a_ratio_or_the_growth_of_a_cost_for_each_mode() -> None:
    once = a_run({"native": 10, "emulated": 15, "portable": 16})
    verdicts = {verdict.side: verdict for verdict in judge([once])}
    assert {side: verdict.is_met for side, verdict in verdicts.items()} == {"emulated": True, "portable": False}
    row = ["herd-1000", "last stored after", "portable", "10.00 ms", "16.00 ms", "1.60", "≤ 1.5 × native", "not met"]
    assert verdicts["portable"].row() == row
    (two,) = judge([a_run({"native": 10, "emulated": 15}), a_run({"native": 10, "emulated": 20}, machine="two")])
    assert two.row()[3:] == ["10.00 ms", "15.00 to 20.00 ms", "1.50 to 2.00", "≤ 1.5 × native", "not met"]
    absolute = a_run({"emulated": 1.6}, measure=P50, name="spread-2000")
    assert [(verdict.figures, verdict.is_met) for verdict in judge([absolute])] == [([1.6], False)]
    growing = a_run({"emulated": 10}, name="held-1000")
    growing.add("held-100000", {"emulated": {LAST.name: 14.0}})
    (flat,) = judge([growing])
    assert flat.row()[2:] == ["emulated", "–", "14.00 ms", "1.40", "≤ 1.5 × held-1000", "met"]
    rates = a_run({"emulated": 10_000, "portable": 9_999}, measure=HIGHEST_RATE, name="rate-16000")
    verdicts = {verdict.side: verdict for verdict in judge([rates])}
    assert {side: verdict.is_met for side, verdict in verdicts.items()} == {"emulated": True, "portable": False}
    assert verdicts["emulated"].aim.text() == "≥ 10,000 1/s", "more is better"


def test_a_pair_of_sidecars_is_compared_with_one_and_has_aims_of_its_own() -> None:
    found = a_run({"native": 10, "emulated": 20, "pair": 24}, name="herd-20000")
    assert tables.columns(found)[3:] == ["native", "emulated", "pair", "emulated ÷ native", "pair ÷ emulated"]
    assert next(iter(tables.rows(found)))[3:] == ["10.00", "20.00", "24.00", "2.00", "1.20"]
    one, two = judge([found])
    assert one.row()[2:] == ["emulated", "10.00 ms", "20.00 ms", "2.00", "≤ 1.1 × native", "not met"]
    assert two.row()[2:] == ["pair", "20.00 ms", "24.00 ms", "1.20", "≤ 1.25 × emulated", "met"]
    slower = a_run(*[{"emulated": 20.0, "pair": 48.0}] * 3, name="herd-20000")
    (move,) = moves(a_run(*[{"emulated": 10.0, "pair": 12.0}] * 3, name="herd-20000", machine="two"), slower)
    assert move.row()[2:5] == ["pair", "1.20 ÷ emulated", "2.40 ÷ emulated"]


def test_every_aim_is_about_a_scenario_that_a_profile_runs() -> None:
    assert {aim.scenario for aim in AIMS} <= {*MILLION, *TEN_MILLION}
    assert {aim.measure.name for aim in AIMS} <= MEASURES.keys()
    assert {aim.over for aim in AIMS} <= {"", "native", "emulated", *MILLION}
    native = [aim for aim in AIMS if aim.over == "native" and "budget" not in aim.scenario]
    cpu = [aim for aim in native if aim.measure.name.startswith("CPU per fire")]
    assert {aim.scenario for aim in cpu} == {"spread-2000", "steady-1000", "spread-20000", "herd-100000"}
    assert {aim.measure.name.rpartition(", ")[2] for aim in cpu} == {"sum"}


def test_the_exit_code_tells_a_regression_and_an_aim_that_is_missed(tmp_path: Path) -> None:
    good, bad, none = (tmp_path / f"{name}.json" for name in ("good", "bad", "none"))
    steady(100, 150).save(good)
    steady(100, 500).save(bad)
    none.write_text("[]")
    for line, code in (
        (f"--load {good}", 0),
        (f"--load {good} --check --compare {bad}", 0),
        (f"--load {bad} --compare {good}", EXIT_REGRESSION),
        (f"--load {bad} --check", EXIT_AIM_MISSED),
        ("--only nothing", 2),
        (f"--load {none}", 2),
    ):
        assert CliRunner().invoke(main, line.split()).exit_code == code, line


# -- scenarios -------------------------------------------------------------------------------------------------


def test_a_scenario_has_the_name_under_which_it_is_asked_for() -> None:
    names = [*MILLION, *TEN_MILLION, "herd-7", "steady-5"]
    assert [scenario(name).name for name in names] == names
    assert set(QUICK) < set(DEFAULT) < set(MILLION)
    herds = ["herd-1000", "herd-20000", "herd-100000"]
    assert [found.name for found in chosen(QUICK, ["herd", "spread-5", "herd-1000"])] == [*herds, "spread-5"]
    for name in ("herds-5", "herd-", "herd-0", "herd-x", ""):
        with pytest.raises(UnknownScenarioError, match="is no scenario"):
            scenario(name)


async def test_a_scenario_that_the_machine_cannot_hold_is_told_with_what_is_missing_and_not_run() -> None:
    large, terabyte = scenario("held-10000000"), 1_000_000_000_000
    lack = "held-10000000 needs 15.5 GB of memory, 8.0 GB are free"
    assert list(missing(large, 8_000_000_000, terabyte)) == [lack]
    lacks = list(missing(large, 8_000_000_000, 3_000_000_000))
    assert lacks == [lack, "held-10000000 needs 5.0 GB of disk, 3.0 GB are free"]
    memory, disk = needed(scenario("held-1000000"))
    assert list(missing(scenario("held-1000000"), memory, disk)) == []
    assert len(list(missing(scenario("held-1000000"), memory - 1, disk - 1))) == 2
    assert list(missing(scenario("held-100000"), 0, 0)) == []
    assert needed(scenario("ordinary-1000000"))[0] < memory / 2, "an ordinary message needs less than a schedule"
    assert (available_memory() > 1_000_000, available_disk(Path.cwd()) > 0) == (True, True)
    said: list[str] = []
    found, failures = await run([scenario("held-1000000000000")], [NATIVE], 1, said.append)
    assert (failures, found.scenarios) == (1, {})
    assert [line.startswith("NOT RUN: held-1000000000000 needs") for line in said] == [True, True]


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


# -- the load --------------------------------------------------------------------------------------------------


def test_each_schedule_has_a_subject_a_target_and_a_source_of_its_own() -> None:
    assert subject_of(7) == "BENCH.s.7"
    assert (target_of("BENCH.s.7"), source_of(7)) == ("BENCH.t.7", "BENCH.u.7")
    held = subject_of(7, "s-held", "BENCH-1")
    assert (held, target_of(held)) == ("BENCH-1.s-held.7", "BENCH-1.t-held.7")
    assert source_of(7, "s-held", "BENCH-1") == "BENCH-1.u-held.7"
    assert (targets_of(), targets_of("s-held", "BENCH-1")) == ("BENCH.t.>", "BENCH-1.t-held.>")
    assert daily_pattern(((9 * 60 + 8) * 60 + 7) * SECOND) == "7 8 9 * * *"


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


# -- fires: what is lost, stored twice, early, or on another target is no measurement --------------------------


def test_a_fire_is_read_from_its_target_its_time_and_the_schedule_that_it_names() -> None:
    def read(target: str, header: str) -> Fire:
        reply = b"$JS.ACK.BENCH.name.1.12.3.1700000000000000123.0"
        return fire_in((target.encode(), reply, f"NATS/1.0\r\n{header}\r\nNats-Schedule-Next: purge\r\n\r\n".encode()))

    for prefix in ("", "X-"):
        assert read("BENCH.t.7", f"{prefix}Nats-Scheduler: BENCH.s.7") == Fire(7, 1_700_000_000_000_000_123)
    for target, header, reason in (
        ("BENCH.t.8", "Nats-Scheduler: BENCH.s.7", "of BENCH.s.7 was stored on BENCH.t.8, expected BENCH.t.7"),
        ("BENCH-1.t.7", "Nats-Scheduler: BENCH.s.7", "stored on BENCH-1.t.7"),
        ("BENCH.t.7", "Nats-Scheduler: BENCH.s-held.7", "expected BENCH.t-held.7"),
        ("BENCH.t.7", "Other: Nats-Scheduler", "BENCH.t.7 names no schedule"),
    ):
        with pytest.raises(WrongFiresError, match=reason):
            read(target, header)


def test_lateness_is_sorted_in_milliseconds_and_none_if_a_fire_is_lost_doubled_or_early() -> None:
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


def test_a_load_is_due_at_times_that_its_seed_draws_with_gaps_that_vary() -> None:
    one, same, other = (spread(Random(seed), 5 * SECOND, 2.0, 100) for seed in (1, 1, 2))
    assert one == same == sorted(one)
    assert one != other
    assert 5 * SECOND <= one[0] <= one[-1] < 7 * SECOND
    assert len({late - early for early, late in pairwise(one)}) > 90


def test_the_curve_of_the_budget_has_each_budget_of_both_sides_and_what_costs_more_is_higher() -> None:
    found = Run("2026-01-01", "one", load_before=0.0, seed=1)
    for budget, cpu in ((250, 100.0), (5, 700.0)):
        found.add(f"budget-{budget}", {"native": {CPU_FIRE.sum.name: 40.0}, "emulated": {CPU_FIRE.sum.name: cpu}})
    found.add("budget-slow-5", {"emulated": {CPU_FIRE.sum.name: 9_000.0}})
    assert points([found], "emulated") == [(5, 700.0), (250, 100.0)]
    circles = [float(y) for y in re.findall(r'<circle cx="[^"]*" cy="([^"]*)"', drawn([found]))]
    assert len(circles) == 2
    assert circles[0] < circles[1]
    with pytest.raises(ValueError, match="both sides"):
        drawn([Run("2026-01-01", "one", load_before=0.0, seed=1)])


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
