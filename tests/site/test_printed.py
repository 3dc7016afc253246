"""The text that a page shows is compared with what is printed: times, ages and names may differ, and nothing else."""

import pytest

from tests.site.printed import difference

ROW = "2026-11-23T05:28:59.629Z  9.6 ms  sidecar  3    2026-11-23T05:28:59.639Z  orders.due"


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (ROW, "2027-01-02T03:04:05Z      12 ms   sidecar  304  2027-01-02T03:04:05.012Z  orders.due"),
        ("fired by the sidecar e7701473b5eb", "fired by the sidecar 0123456789ab"),
        ("next fire in 21h31m48s, 31s ago", "next fire in 3s, 2m1s ago"),
        ("Mon  2026-11-23T08:30:00Z", "Tue  2027-01-05T08:30:00Z"),
        ("first\n…\nlast", "first\na\nb\nlast"),
        ("…\nlast", "a\nlast"),
        ("first\n…", "first\na"),
        ("indented\n  line", "indented\n  line\n"),
    ],
)
def test_these_are_the_same(shown: str, printed: str) -> None:
    assert difference(shown, printed) is None


@pytest.mark.parametrize(
    ("shown", "printed", "first"),
    [
        (ROW, ROW.replace("orders.due", "orders.other"), ROW),
        ("every 5m", "every 6m", "every 5m"),
        ("@every 5m", "@every 5s", "@every 5m"),
        ("2 schedules", "3 schedules", "2 schedules"),
        ("first", "first\nsecond", "(not shown) second"),
        ("first\nlast", "first\na\nlast", "last"),
        ("first\n…\nlast", "first\na", "last"),
        ("waiting, in 3s", "waiting, soon", "waiting, in 3s"),
    ],
)
def test_these_differ(shown: str, printed: str, first: str) -> None:
    assert difference(shown, printed) == first


def test_lines_may_come_in_any_order_where_the_page_says_so() -> None:
    assert difference("b\na", "x\na\nb\n", in_any_order=True) is None
    assert difference("b\nc", "x\na\nb\n", in_any_order=True) == "c"
