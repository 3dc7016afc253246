"""A rejection says in one sentence what was rejected and what was expected."""

from nats_scheduler.message.rejection import MAX_KEPT_CHARS, TTL_INVALID, Rejection
from nats_scheduler.schedule.invalid import MAX_SHOWN_CHARS


def test_a_rejection_names_header_value_expectation_and_code() -> None:
    rejection = TTL_INVALID.rejection("Nats-Schedule-TTL", "soon", "is not a duration such as '5m' or 'never'")
    assert str(rejection) == (
        "Nats-Schedule-TTL of 'soon' is not a duration such as '5m' or 'never' (server code 10191)"
    )
    assert rejection == Rejection(
        10191,
        "message schedules invalid per-message TTL",
        "Nats-Schedule-TTL",
        "soon",
        "is not a duration such as '5m' or 'never'",
        400,
    )


def test_a_value_that_cannot_be_printed_is_escaped() -> None:
    rejection = TTL_INVALID.rejection("Nats-Schedule-TTL", "\udcff\x00", "is not a duration")
    assert str(rejection).startswith(r"Nats-Schedule-TTL of '\udcff\x00' is not")


def test_a_long_value_is_cut_where_it_is_shown_and_nowhere_else() -> None:
    rejection = TTL_INVALID.rejection("Nats-Schedule-TTL", "x" * 60_000, "is not a duration")
    assert len(str(rejection)) < 200
    assert len(rejection.value) == 60_000


def test_a_value_is_cut_exactly_where_it_is_too_long() -> None:
    shown = "x" * MAX_SHOWN_CHARS
    for value, cut in ((shown, shown), (shown + "x", shown + "…")):
        assert str(TTL_INVALID.rejection("H", value, "is not")) == f"H of '{cut}' is not (server code 10191)"


def test_what_is_kept_of_a_rejection_is_cut_exactly_where_it_is_too_long() -> None:
    kept = TTL_INVALID.rejection("H", "v" * MAX_KEPT_CHARS, "r" * MAX_KEPT_CHARS)
    assert kept.shortened() is kept
    for value, reason in (("v" * (MAX_KEPT_CHARS + 1), kept.reason), (kept.value, "r" * (MAX_KEPT_CHARS + 1))):
        assert TTL_INVALID.rejection("H", value, reason).shortened() == kept
