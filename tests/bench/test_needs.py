"""A scenario that the machine cannot hold is refused before it begins, with what is missing."""

from pathlib import Path

from tests.bench.needs import available_disk, available_memory, missing, needed
from tests.bench.profiles import scenario
from tests.bench.runner import run
from tests.bench.sides import NATIVE

TERABYTE = 1_000_000_000_000


def test_what_is_missing_is_named_with_what_there_is() -> None:
    (lack,) = missing(scenario("held-10000000"), 8_000_000_000, TERABYTE)
    assert lack == "held-10000000 needs 15.5 GB of memory, 8.0 GB are free"
    lacks = list(missing(scenario("held-10000000"), 8_000_000_000, 3_000_000_000))
    assert lacks[1:] == ["held-10000000 needs 5.0 GB of disk, 3.0 GB are free"]


def test_a_machine_that_has_enough_lacks_nothing() -> None:
    memory, disk = needed(scenario("held-1000000"))
    assert list(missing(scenario("held-1000000"), memory, disk)) == []
    assert len(list(missing(scenario("held-1000000"), memory - 1, disk - 1))) == 2
    assert list(missing(scenario("held-100000"), 0, 0)) == []


def test_an_ordinary_message_needs_less_memory_than_a_schedule() -> None:
    assert needed(scenario("ordinary-1000000"))[0] < needed(scenario("held-1000000"))[0] / 2


def test_what_is_free_is_known(tmp_path: Path) -> None:
    assert available_memory() > 1_000_000
    assert available_disk(tmp_path) > 0


async def test_a_scenario_that_does_not_fit_is_told_and_not_run() -> None:
    said: list[str] = []
    found, failures = await run([scenario("held-1000000000000")], [NATIVE], 1, said.append)
    assert (failures, found.scenarios) == (1, {})
    assert [line.startswith("NOT RUN: held-1000000000000 needs") for line in said] == [True, True]
