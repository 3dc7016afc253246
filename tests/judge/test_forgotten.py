"""What the files of no node hold although it was acknowledged is lost by the servers, in histories made by hand."""

from dataclasses import replace
from typing import Any

from tests.judge.checkers import verdict
from tests.judge.forgotten import Losses
from tests.judge.history import (
    SECOND,
    FireAnswered,
    FireKey,
    History,
    Operation,
    ScheduleSeen,
    StoredRecord,
    StoreSeen,
    Verb,
)
from tests.judge.made_by_hand import KEPT, at, history
from tests.judge.patterns import Pattern

ONE = StoredRecord(at(2), "s.1", None, b"one")
NEXT = StoredRecord(at(7), "s.3", None, b"three")
FIRED = FireKey(1, at(8))


def stores(*erased: int, **records: StoredRecord) -> list[StoreSeen]:
    """Make the files of three nodes, of records under `_` and their sequence."""
    found = {int(name[1:]): record for name, record in records.items()}
    return [StoreSeen(f"n{number}", dict(found), frozenset(erased)) for number in range(3)]


def with_a_record(made: History, node: int, sequence: int, record: StoredRecord) -> History:
    """Let one node hold something."""
    seen = list(made.stores)
    seen[node] = replace(seen[node], records={**seen[node].records, sequence: record})
    return history(made, stores=seen)


STORED = Operation(
    Verb.STORE, "s.2", at(3), at(3.1), 5, pattern=Pattern("at", at(6) // SECOND), target="t.2", body=b"two"
)
LOST_SCHEDULE = history(
    asked=[STORED], schedules=[*KEPT.schedules, ScheduleSeen("s.2", 5, at(3.1), b"two")], stores=stores(_1=ONE, _5=NEXT)
)
"""A schedule for 6 s was acknowledged as 5, and never seen again: the next message got its sequence."""
LOST_FIRE = history(fires={8: None}, answered=[FireAnswered(FIRED, 18, at(8.01))], stores=stores(_1=ONE, _17=NEXT))
"""The fire of 8 s was acknowledged as 18, and is not stored: every node ends before that."""


def test_what_the_files_of_no_node_hold_is_lost_by_the_servers() -> None:
    place_taken = history(LOST_FIRE, stores=stores(_1=ONE, _18=NEXT._replace(stored_at=at(8.5))))
    fire = f"the fire of 1 for {at(8)}, acknowledged as 18:"
    for made, evidence in (
        (LOST_SCHEDULE, "s.2, acknowledged as 5: n0 has s.3, n1 has s.3, n2 has s.3"),
        (LOST_FIRE, f"{fire} n0 ends at 17, n1 ends at 17, n2 ends at 17"),
        (place_taken, f"{fire} n0 has s.3, n1 has s.3, n2"),
    ):
        assert [str(violation) for violation in verdict(made)] == []
        losses = Losses(made)
        (found,) = [*losses.schedules.values(), *losses.fires.values()]
        assert found.startswith(evidence)


def test_any_other_schedule_that_is_gone_is_a_violation() -> None:
    others: dict[str, list[StoreSeen]] = {
        "it was removed, and that left a note in the files": stores(5, _1=ONE, _6=NEXT),
        "the files begin behind it": stores(_6=NEXT),
        "no node was read": [],
        "its place was taken before it was acknowledged": stores(_1=ONE, _5=NEXT._replace(stored_at=at(3.05))),
    }
    made = {name: history(LOST_SCHEDULE, stores=seen) for name, seen in others.items()}
    made["a node holds it"] = with_a_record(LOST_SCHEDULE, 1, 5, StoredRecord(at(3.05), "s.2", None, b"two"))
    for name, one in made.items():
        assert {found.schedule: found.promise for found in verdict(one)} == {"s.2": "Complete"}, name


def test_any_other_fire_that_is_missing_is_a_violation() -> None:
    others: dict[str, dict[str, Any]] = {
        "it was never answered": {"answered": []},
        "another fire was answered": {"answered": [FireAnswered(FireKey(1, at(6)), 18, at(8.01))]},
        "the message there was stored before the answer": {"stores": stores(_1=ONE, _18=NEXT)},
        "it was removed": {"stores": stores(18, _1=ONE, _19=NEXT)},
    }
    made = {name: history(LOST_FIRE, **fields) for name, fields in others.items()}
    made["a node holds it"] = with_a_record(LOST_FIRE, 2, 18, StoredRecord(at(8.005), "t.1", FIRED, b"one"))
    for name, one in made.items():
        assert [found.promise for found in verdict(one)] == ["Complete"], name


def test_a_loss_excuses_nothing_but_what_was_lost() -> None:
    assert [found.schedule for found in verdict(history(LOST_SCHEDULE, fires={8: None}))] == ["s.1"]
