"""Each planted bug is found by the checker of the promise that it breaks, within a stated number of seeds."""

from collections.abc import Callable
from itertools import takewhile

import pytest

from tests.simulation.planted import BUGS, LIKELY_SEEDS, MENDED, planted
from tests.simulation.planted_division import Changes
from tests.simulation.world import judged

pytestmark = [pytest.mark.slow, pytest.mark.deep]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Callable[[], Changes]) -> None:
    promise, within = BUGS[bug]
    likely = LIKELY_SEEDS.get(bug, 0)
    with planted(bug):
        passed = list(takewhile(lambda seed: promise not in _broken(seed), (likely, *range(within))))
    assert len(passed) <= within, f"{promise} is not seen to be broken by {bug.__doc__}"


@pytest.mark.parametrize("bug", MENDED, ids=lambda bug: bug.__name__)
def test_a_bug_that_was_mended_is_found_in_its_seed_and_not_without_it(bug: Callable[[], Changes]) -> None:
    promise, seed = MENDED[bug]
    with planted(bug):
        assert promise in _broken(seed)
    assert _broken(seed) == set()


@pytest.mark.parametrize("bug", [*BUGS, *MENDED], ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_gone_afterwards(bug: Callable[[], Changes]) -> None:
    before = [(place, name, getattr(place, name)) for place, name, _changed in bug()]
    with planted(bug):
        assert any(getattr(place, name) is not original for place, name, original in before)
    assert all(getattr(place, name) is original for place, name, original in before)


def _broken(seed: int) -> set[str]:
    return {violation.promise for violation in judged(seed)}
