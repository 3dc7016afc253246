"""The arithmetic of the benchmark: percentiles, ratios, what moved, which aims hold, and what a process costs."""

import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from nats_scheduler.message.definition import Terms, defined, definition_block
from nats_scheduler.message.dialect import ADR51, PORTABLE, Dialect
from tests.bench import flatness
from tests.bench.__main__ import EXIT_AIM_MISSED, EXIT_REGRESSION, main
from tests.bench.aims import AIMS, judge
from tests.bench.comparison import moves
from tests.bench.load import BODY, Extras, daily_pattern, schedule
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
from tests.bench.processes import Cpu, cpu_seconds, read_clock, resident_bytes
from tests.bench.profiles import DEFAULT, MILLION, QUICK, TEN_MILLION, UnknownScenarioError, chosen, scenario
from tests.bench.publisher import Publisher
from tests.bench.runs import Run
from tests.bench.tables import columns, markdown, rows


def a_run(*repeats: dict[str, float], measure: Measure = LAST, name: str = "herd-1000", machine: str = "one") -> Run:
    """Build a run of one scenario and one measure: each repeat names a figure for each side."""
    found = Run("2026-01-01", machine, load_before=0.0)
    for repeat in repeats:
        found.add(name, {side: {measure.name: value} for side, value in repeat.items()})
    return found


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1), (0.5, 50), (0.501, 51), (0.99, 99), (0.991, 100), (1.0, 100)]
)
def test_a_percentile_is_the_value_that_the_share_does_not_exceed(share: float, expected: float) -> None:
    assert percentile([float(value) for value in range(1, 101)], share) == expected


def test_a_percentile_of_one_value_is_that_value() -> None:
    assert {percentile([7.0], share) for share in (0.0, 0.5, 0.99, 1.0)} == {7.0}


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


def test_a_table_holds_every_side_and_the_ratios_to_the_native_one() -> None:
    found = a_run({"native": 10, "emulated": 25, "portable": 5})
    assert columns(found)[3:] == ["native", "emulated", "portable", "emulated ÷ native", "portable ÷ native"]
    assert list(rows(found)) == [["herd-1000", LAST.name, "ms", "10.00", "25.00", "5.00", "2.50", "0.500"]]
    alone = a_run({"emulated": 1_234.5}, {"emulated": 1_234.5})
    assert columns(alone)[3:] == ["emulated"]
    assert list(rows(alone)) == [["herd-1000", LAST.name, "ms", "1,234.50"]]


def test_a_table_shows_the_range_over_repeats() -> None:
    found = a_run({"native": 10, "emulated": 20}, {"native": 10, "emulated": 10}, {"native": 10, "emulated": 5})
    assert next(iter(rows(found)))[-1] == "1.00 (0.500–2.00)"


def test_a_table_can_be_put_into_a_document() -> None:
    assert markdown(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_a_saved_run_is_read_back(tmp_path: Path) -> None:
    found = a_run({"native": 10, "emulated": 25})
    found.save(tmp_path / "run.json")
    assert Run.read(tmp_path / "run.json") == found
    (tmp_path / "other.json").write_text('{"date": "today"}')
    with pytest.raises(ValueError, match="holds no saved run"):
        Run.read(tmp_path / "other.json")


def steady(native: float, emulated: float, *, measure: Measure = LAST, machine: str = "one") -> Run:
    """Build a run of three repeats that are equal."""
    return a_run(*[{"native": native, "emulated": emulated}] * 3, measure=measure, machine=machine)


def test_ratios_are_compared_and_not_figures() -> None:
    assert list(moves(steady(100, 200), steady(1_000, 2_000, machine="ten times slower"))) == []
    (move,) = moves(steady(100, 200), steady(1_000, 4_000, machine="ten times slower"))
    assert (move.side, move.before, move.now, move.worse_by, move.is_regression) == ("emulated", 2.0, 4.0, 2.0, True)


def test_better_is_no_regression_and_more_may_be_better() -> None:
    (faster,) = moves(steady(100, 200), steady(100, 100))
    assert (faster.worse_by, faster.is_regression) == (0.5, False)
    (slower,) = moves(steady(100, 200, measure=LOAD_RATE), steady(100, 100, measure=LOAD_RATE))
    assert (slower.worse_by, slower.is_regression) == (2.0, True)
    assert "2.00 × worse" in slower.row()
    assert "2.00 × better" in faster.row()


def test_what_varies_between_repeats_is_noise() -> None:
    noisy = a_run(*[{"native": 100.0, "emulated": value} for value in (150.0, 200.0, 300.0)])
    assert list(moves(noisy, steady(100, 390))) == []
    assert [move.worse_by for move in moves(noisy, steady(100, 410))] == [2.05]


def test_a_run_that_was_not_repeated_shows_only_what_is_large() -> None:
    once = a_run({"native": 100, "emulated": 100})
    assert list(moves(once, steady(100, 140))) == []
    assert len(list(moves(once, steady(100, 160)))) == 1
    assert len(list(moves(steady(100, 100), steady(100, 140)))) == 1
    assert list(moves(steady(100, 100), steady(100, 110))) == []


def test_a_difference_below_the_grain_of_a_measure_is_noise() -> None:
    assert list(moves(steady(250, 1.0, measure=P99), steady(250, 1.9, measure=P99))) == []
    assert len(list(moves(steady(250, 1.0, measure=P99), steady(250, 2.1, measure=P99)))) == 1


def test_what_has_no_native_counterpart_is_compared_on_the_same_machine_only() -> None:
    before = a_run(*[{"emulated": 1.0}] * 3, measure=TAKEOVER)
    worse, elsewhere = [a_run(*[{"emulated": 3.0}] * 3, measure=TAKEOVER, machine=name) for name in ("one", "two")]
    (move,) = moves(before, worse)
    assert move.row()[3:6] == ["1.00 s", "3.00 s", "3.00 × worse"]
    assert list(moves(before, elsewhere)) == []


def test_what_says_nothing_of_the_scheduler_is_not_compared() -> None:
    assert list(moves(steady(1, 1, measure=FIRE_RATE), steady(1, 9, measure=FIRE_RATE))) == []


def test_an_aim_holds_up_to_its_bound_for_each_mode() -> None:
    found = a_run({"native": 10, "emulated": 15, "portable": 16})
    verdicts = {verdict.side: verdict for verdict in judge(found)}
    assert {side: verdict.holds for side, verdict in verdicts.items()} == {"emulated": True, "portable": False}
    assert verdicts["portable"].row()[1:] == [
        "last stored after ≤ 1.5 × the native scheduler's",
        "portable",
        "1.600 ×",
        "does not hold",
    ]


def test_an_aim_bounds_a_figure_a_ratio_or_the_growth_of_a_cost() -> None:
    absolute = a_run({"emulated": 1.6}, measure=P50, name="spread-2000")
    assert [(verdict.figure, verdict.holds) for verdict in judge(absolute)] == [(1.6, False)]
    growing = a_run({"emulated": 10}, name="held-1000")
    growing.add("held-100000", {"emulated": {LAST.name: 14.0}})
    assert [(verdict.figure, verdict.holds) for verdict in judge(growing)] == [(1.4, True)]
    assert flatness.columns(growing)[3:] == ["1,000 held", "100,000 held", "growth"]
    assert next(flatness.rows(growing)) == [LAST.name, "ms", "emulated", "10.00", "14.00", "1.40"]


def test_an_aim_of_what_is_better_if_it_is_more_holds_from_its_bound_on() -> None:
    found = a_run({"emulated": 10_000, "portable": 9_999}, measure=HIGHEST_RATE, name="rate-16000")
    verdicts = {verdict.side: verdict for verdict in judge(found)}
    assert {side: verdict.holds for side, verdict in verdicts.items()} == {"emulated": True, "portable": False}
    assert verdicts["emulated"].aim.text() == "highest rate ≥ 10000 1/s"


def test_cpu_is_that_of_the_scheduler_of_the_server_and_of_both() -> None:
    used = Cpu(0.5, 0.3, 0.2).since(Cpu(0.1, 0.1, 0.0))
    names = ["CPU per fire, sum", "CPU per fire, scheduler", "CPU per fire, server"]
    assert CPU_FIRE.figures(used, 1_000) == pytest.approx(dict(zip(names, (400.0, 200.0, 200.0), strict=True)))
    assert list(IDLE_CPU.figures(used, 10.0).values()) == pytest.approx([4.0, 2.0, 2.0])


def test_the_aims_of_cpu_for_each_fire_are_on_the_sum_and_relative_to_the_native_scheduler() -> None:
    aims = [aim for aim in AIMS if aim.measure.name.startswith("CPU per fire")]
    assert {aim.scenario for aim in aims} == {"spread-2000", "steady-1000", "spread-20000", "herd-100000"}
    assert {(aim.measure.name.rpartition(", ")[2], aim.over) for aim in aims} == {("sum", "native")}


def test_every_aim_is_about_a_scenario_that_a_profile_runs() -> None:
    assert {aim.scenario for aim in AIMS} <= {*MILLION, *TEN_MILLION}
    assert {aim.measure.name for aim in AIMS} <= MEASURES.keys()
    assert {aim.over for aim in AIMS} <= {"", "native", *MILLION}


def test_a_scenario_has_the_name_under_which_it_is_asked_for() -> None:
    names = [*MILLION, *TEN_MILLION, "herd-7", "steady-5"]
    assert [scenario(name).name for name in names] == names
    assert set(QUICK) < set(DEFAULT) < set(MILLION)
    assert [found.name for found in chosen(QUICK, ["herd", "spread-5", "herd-1000"])] == [
        "herd-1000",
        "herd-20000",
        "herd-100000",
        "spread-5",
    ]


@pytest.mark.parametrize("name", ["herds-5", "herd-", "herd-0", "herd-x", ""])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UnknownScenarioError, match="is no scenario"):
        scenario(name)


def test_the_exit_code_tells_a_regression_and_an_aim_that_is_missed(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    steady(100, 150).save(good)
    steady(100, 500).save(bad)

    def code(*arguments: str | Path) -> int:
        return CliRunner().invoke(main, [str(argument) for argument in arguments]).exit_code

    assert code("--load", good) == 0
    assert code("--load", good, "--check", "--compare", bad) == 0
    assert code("--load", bad, "--compare", good) == EXIT_REGRESSION
    assert code("--load", bad, "--check") == EXIT_AIM_MISSED
    assert code("--only", "nothing") == 2
    (tmp_path / "none.json").write_text("[]")
    assert code("--load", tmp_path / "none.json") == 2


@pytest.mark.parametrize(
    ("text", "seconds"), [("0:01.50", 1.5), (" 1:02:03\n", 3_723), ("2-00:00:01", 172_801), ("12:00", 720)]
)
def test_the_clock_that_ps_prints_is_read(text: str, seconds: float) -> None:
    assert read_clock(text) == seconds


def test_the_cost_of_a_process_is_its_own() -> None:
    before = time.process_time()
    while time.process_time() < before + 0.05:
        pass
    least, read, most = time.process_time(), cpu_seconds(os.getpid()), time.process_time()
    assert least - 0.05 <= read <= most + 1.0  # `ps` rounds
    assert 5_000_000 < resident_bytes(os.getpid()) < 5_000_000_000


def test_a_daily_pattern_names_the_second_of_its_instant() -> None:
    assert daily_pattern(((9 * 60 + 8) * 60 + 7) * 1_000_000_000) == "7 8 9 * * *"


def test_the_sizes_of_a_schedule_are_those_of_its_block_and_body() -> None:
    line, rest = schedule("A.s", "@hourly", b"X-", "A.t", Extras("A.u", body=b"short")).split(b"\r\n", 1)
    block_size, size = map(int, line.split()[-2:])
    assert len(rest) == size + 2
    assert rest[:block_size].endswith(b"X-Nats-Schedule-Source: A.u\r\n\r\n")


@pytest.mark.parametrize(("prefix", "dialect"), [(b"", ADR51), (b"X-", PORTABLE)], ids=["adr51", "portable"])
@pytest.mark.parametrize("extras", [Extras(), Extras("A.u", "Asia/Kathmandu", "1h")], ids=["plain", "with-all"])
def test_the_headers_of_a_load_are_those_of_its_definitions(prefix: bytes, dialect: Dialect, extras: Extras) -> None:
    """The benchmark writes them by itself, ten times as fast: what publishes is not what is measured."""
    terms = Terms(dialect, "A.t", extras.source or None, ttl=extras.ttl, rollup=False)
    frame = schedule("A.s", "0 0 9 * * *", prefix, "A.t", extras)
    block = definition_block(defined("0 0 9 * * *", terms, extras.time_zone or None))
    assert frame.split(b"\r\n", 1)[1].startswith(block + BODY)


def test_headers_of_the_publisher_follow_those_of_the_schedule() -> None:
    frame = schedule("A.s", "@hourly", b"", "A.t", Extras(headers=b"Order-Id: 7\r\n", body=b"body"))
    assert frame.endswith(b"Nats-Schedule-Target: A.t\r\nOrder-Id: 7\r\n\r\nbody\r\n")


def test_acknowledgements_are_counted_wherever_the_bytes_are_cut() -> None:
    answers = b'MSG _BENCH.ack 1 25\r\n{"stream":"BENCH","seq":12}\r\n' * 7
    for cut in range(1, len(answers), 3):
        publisher = Publisher()
        publisher.data_received(answers[:cut])
        publisher.data_received(answers[cut:])
        assert publisher.acknowledged == 7
