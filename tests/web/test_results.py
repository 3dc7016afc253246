"""The results of forms: found by the login that they are for, as long as they are kept, and no more of them."""

from nats_scheduler.web.results import KEPT_SECONDS, MAX_RESULTS, MAX_ROWS, FormRow, Result, Results

ADA, BOB = "login ada", "login bob"


def result(number: int = 1) -> Result:
    return Result("Pause", "O", [FormRow("O.s", 7)] * number)


def test_a_result_is_shown_to_whom_it_is_for_and_for_a_time() -> None:
    now = 0.0
    results = Results(lambda: now)
    name = results.keep(ADA, result())
    assert len(name) >= 20
    assert (results.result(ADA, name), results.result(BOB, name), results.result(ADA, "")) == (result(), None, None)
    now = KEPT_SECONDS
    assert results.result(ADA, name) is None


def test_the_oldest_of_too_many_results_is_dropped() -> None:
    results = Results(lambda: 0.0)
    names = [results.keep(ADA, result()) for _ in range(MAX_RESULTS + 1)]
    assert [results.result(ADA, name) is None for name in names] == [True] + [False] * MAX_RESULTS
    long = results.keep(ADA, result(MAX_ROWS))
    assert [name for name in (*names, long) if results.result(ADA, name)] == [long]
