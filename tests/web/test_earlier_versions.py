"""Which earlier versions of a schedule the record of changes knows, and what is in them."""

from typing import Any, cast

import pytest

from nats_scheduler.service.past_answers import KeptChangeDocument
from nats_scheduler.web.earlier_versions import earlier_versions
from nats_scheduler.web.editing import untouched


def change(
    before: int | None, after: int | None, subject: str = "O.s", *, exact: bool = True, **parts: Any
) -> KeptChangeDocument:
    """Return a change as the record has it, kept as ten times its sequence; `parts` are fields with two values."""
    own = {name: parts.pop(name, default) for name, default in (("headers", []), ("body", False))}
    names = {name: name.replace("_", "-") if name.startswith("X_") else name for name in parts}
    fields = [{"name": names[name], "before": old, "after": new, "exact": exact} for name, (old, new) in parts.items()]
    made: Any = {"stream": "O", "subject": subject, "sequence_before": before, "sequence": after}
    made |= {"kept_as": 10 * (after or 99), "parts": {"fields": fields, **own}}
    return cast(KeptChangeDocument, made)


def known(changes: list[KeptChangeDocument], sequence: int | None = None) -> dict[int, dict[str, str | None]]:
    """Return the values of the versions that are known, by the change that ended each."""
    return {one: dict(version.values) for one, version in earlier_versions(changes, sequence).items()}


FIRST = change(None, 1)
SECOND = change(1, 2, pattern=("a", "b"), X_Limit=(None, "3"))
THIRD = change(2, 3, pattern=("b", "c"), ttl=("5m", None))


def test_a_version_has_the_oldest_of_the_values_that_were_changed_since() -> None:
    expected = {
        20: {"pattern": "a", "X-Limit": None, "ttl": "5m"},
        30: {"pattern": "b", "ttl": "5m"},
    }
    assert known([THIRD, SECOND, FIRST], 3) == expected
    assert known([THIRD, SECOND, FIRST]) == expected, "also where the sequence of now is not known"
    assert known([THIRD, change(7, 8, "O.other"), SECOND, FIRST]) == expected


@pytest.mark.parametrize(
    ("changes", "sequence", "left"),
    [
        ([THIRD, SECOND, FIRST], 4, []),
        ([change(4, 5, pattern=("x", "y")), THIRD, SECOND], 5, [50]),
        ([change(3, None), THIRD, SECOND], None, []),
        ([change(2, 3, pattern=("b", "…"), exact=False), SECOND], 3, []),
        ([change(2, 3, dialect=("adr51", "portable")), SECOND], 3, []),
        ([change(3, 3), THIRD, SECOND], 3, [30, 20]),
        ([FIRST], 1, []),
        ([], None, []),
    ],
    ids=["a change of now", "a gap", "removed", "cut", "another spelling", "fired", "added", "none"],
)
def test_what_the_record_does_not_know_is_not_offered(
    changes: list[KeptChangeDocument], sequence: int | None, left: list[int]
) -> None:
    assert list(known(changes, sequence)) == left


def test_the_form_has_the_values_of_the_version() -> None:
    schedule: Any = {
        "pattern": "c",
        "time_zone": None,
        "target": "O.out",
        "source": None,
        "ttl": None,
        "rollup": None,
        "policies": {"X-Limit": "3", "X-Note": "a: b"},
        "dialect": "portable",
        "sequence": 3,
    }
    form = untouched("O", "O.s", "portable", schedule)
    restored = form.restored(earlier_versions([THIRD, SECOND], 3)[20])
    assert restored.edit() == {
        "set": [["X-Nats-Schedule", "a"], ["X-Nats-Schedule-TTL", "5m"]],
        "unset": ["X-Nats-Schedule-X-Limit"],
        "expected": 3,
    }
