"""The screen of `top` at each size: what is essential is there, nothing is wrapped, the rest is left out in order."""

from __future__ import annotations

import pytest

from nats_scheduler.cli.output import width_of
from nats_scheduler.cli.top_screen import ADVICE, screen, text_of
from nats_scheduler.cli.top_view import View
from nats_scheduler.schedule.instants import SECOND
from tests.cli.top_views import (
    HOSTILE,
    NOW,
    SERVER,
    crowded,
    failure,
    instance,
    judged,
    stream,
    view,
)

pytestmark = pytest.mark.deep

KEYS = "q quit   s order: trouble"
GONE = "The connection to NATS is lost: the server closed it."
LOST = view(verdict=judged("bad", GONE, is_blind=True), lost="the server closed it", age=12 * SECOND)
NOBODY = "No sidecar answers: none runs."
SILENT = View(NOW, SERVER, judged("bad", NOBODY, is_blind=True))
WAITING = View(NOW, SERVER, judged("warn", "No answer yet.", is_blind=True))
TROUBLED = view(failures=[failure(1)], streams=[stream("ORDERS", overdue=1, failing=2)])
VIEWS = {
    "calm": view(),
    "crowded": crowded(),
    "hostile": crowded(HOSTILE),
    "wide": crowded("注文.顧客.リマインダー"),
    "lost": LOST,
    "silent": SILENT,
    "nothing yet": WAITING,
}


def shown(given: View, columns: int | None, rows: int | None, keys: str = KEYS) -> list[str]:
    return text_of(screen(given, columns, rows, keys), columns)


def test_a_screen_has_the_size_of_the_terminal() -> None:
    sizes = [(80, rows) for rows in (*range(1, 30), 69)] + [(columns, 24) for columns in range(2, 130, 7)]
    for name, given in VIEWS.items():
        for columns, rows in [*sizes, (40, 10), (200, 60), (20, 5), (1, 1)]:
            found = shown(given, columns, rows)
            assert len(found) == rows, f"{name} on {columns} x {rows}: {len(found)} lines"
            wrong = [line for line in found if width_of(line) > columns or not line.isprintable()]
            assert wrong == [], f"{name} on {columns} x {rows}: too wide, or not printable"


def test_all_that_is_essential_is_on_80_by_24() -> None:
    found = shown(TROUBLED, 80, 24)
    assert found[0].split() == ["nats-scheduler", "top", *SERVER.split(), "2026-11-22T12:36:05Z"]
    assert found[1] == "ALL IS WELL  1 sidecar alive"
    assert found[2].startswith("fires     12.3/s, 738 in 60 s  ")
    assert found[3].startswith("lateness  p50 1.00 ms  p99 4.95 ms  max 5.00 ms  ")
    assert all("▁" <= char <= "█" for line in found[2:4] for char in line[-15:])
    assert found[4].split() == ["STREAM", "MODE", "SCHEDULES", "OVERDUE", "FAILING", "/MIN", "P99", "NEXT", "FIRE"]
    assert found[5].split() == ["ORDERS", "emulated", "100,000", "1", "2", "738", "4.95", "ms", "in", "3s"]
    assert found[6].split()[:2] == ["DUE", "6/20"]
    assert found[7].split() == ["in", "1s", "ORDERS", "orders.due.1", "@every", "5m"]
    text = "\n".join(found)
    assert "12:36:05    1.00 ms  ORDERS  orders.fired.0" in text
    assert "12:35:05  fire_refused  ORDERS  orders.refused.1  code 503" in text
    assert "f6aceb65fa7b  alive     1        2  1h0m0s" in text
    assert found[-1] == KEYS
    heads = [line.split() for line in shown(crowded(), 80, 24) if "/100" in line]
    assert [head[0] for head in heads] == ["STREAM", "DUE", "FIRED", "FAILED", "SIDECAR"]
    assert all(int(head[1].partition("/")[0]) >= 1 for head in heads), "each table keeps rows if all are long"


def test_what_is_left_out_is_left_out_in_order() -> None:
    """The more rows and columns there are, the more is shown: each part when all that is more important is there."""
    parts = [
        "ALL IS WELL",
        "fires  ",
        "lateness  ",
        "nats-scheduler",
        "q quit",
        "STREAM",
        "FAILED",
        "DUE",
        "SIDECAR",
        "FIRED",
    ]
    seen: list[str] = []
    for rows in range(1, 30):
        lines = shown(view(failures=[failure(1)]), 80, rows)
        now = [part for part in parts if any(line.startswith(part) for line in lines)]
        assert set(seen) <= set(now), rows
        seen += [part for part in now if part not in seen]
    assert seen == parts
    order = ["STANDBYS", "OWNER", "MODE", "P99", "SCHEDULES", "/MIN"]
    for columns in range(20, 100):
        heading = next(line for line in shown(view(), columns, 24) if line.startswith("STREAM")).split()
        left_out = [name for name in order if name not in heading]
        assert left_out == order[: len(left_out)], f"on {columns} columns"


def test_one_line_says_whether_all_is_well() -> None:
    two = [instance("a"), instance("b", "gone")]
    for given, expected in (
        (LOST, f"NOT WORKING  1 sidecar alive, as of 12s ago: {GONE}"),
        (SILENT, f"NOT WORKING  {NOBODY}"),
        (WAITING, "waiting for the first answer"),
        (view(verdict=judged("bad", "ORDERS: no contact")), "NOT WORKING  1 sidecar alive: ORDERS: no contact"),
        (view(verdict=judged("warn", "a", "b", "c")), "NEEDS ATTENTION  1 sidecar alive: a (and 2 more)"),
        (view(age=9 * SECOND), "ALL IS WELL  1 sidecar alive, as of 9s ago"),
        (view(instances=None), "ALL IS WELL"),
        (view(instances=two), "ALL IS WELL  1 of 2 sidecars alive"),
    ):
        assert shown(given, None, None)[1] == expected
    assert shown(SILENT, None, None)[2] == f"! {ADVICE}"
    assert shown(view(), 17, 24)[1] == "ALL IS WELL  1 s…", "a line that is too long loses its end"
    assert shown(view(verdict=judged("note", "Two."), notices=["One."]), 80, 24)[1:3] == [
        "ALL IS WELL  1 sidecar alive",
        "! One. Two.",
    ]
