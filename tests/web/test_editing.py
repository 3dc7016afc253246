"""What a form of an edit asks for: what differs from what it showed, and nothing else.

It tests `web/earlier_versions.py` too.
"""

from typing import Any, cast

import pytest

from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.observe.message_contents import content_document
from nats_scheduler.service.past_answers import KeptChangeDocument
from nats_scheduler.web.earlier_versions import earlier_versions
from nats_scheduler.web.editing import MAX_BODY_CHARS, SHOWN, Written, body_in_form, digest_of, fields_of, untouched

STORED: Any = {
    "pattern": "@every 1h",
    "time_zone": None,
    "target": "O.out",
    "source": None,
    "ttl": "5m",
    "rollup": None,
    "policies": {"X-Limit": "3", "X-Jitter": "5s"},
    "dialect": "portable",
}


def written(sequence: int = 7, spelling: str = "portable", stored: str | None = None, **typed: str) -> Written:
    """Return a form of the stored schedule, with what is typed into it; `stored` is the body that it shows."""
    was = fields_of(STORED)
    empty = {**dict.fromkeys(("set", "unset", "replace"), ""), "body": stored or ""}
    return Written("O", "O.s", spelling, sequence, {**was, **empty, **typed}, was, digest_of(stored))


def test_an_edit_names_what_differs_and_nothing_else() -> None:
    assert written().edit() == {"set": [], "unset": [], "expected": 7}
    edited = written(
        pattern="@every 2h", ttl="", source="O.last", policies="X-Limit: 3\nX-Start:2027-01-01T00:00:00Z", unset="A, B"
    )
    assert edited.edit() == {
        "set": [
            ["X-Nats-Schedule", "@every 2h"],
            ["X-Nats-Schedule-Source", "O.last"],
            ["X-Nats-Schedule-X-Start", "2027-01-01T00:00:00Z"],
        ],
        "unset": ["X-Nats-Schedule-TTL", "X-Nats-Schedule-X-Jitter", "A", "B"],
        "expected": 7,
    }
    assert written(policies="limit: 3\nJITTER: 5s").edit() == written().edit(), "the names are those of --policy"
    with pytest.raises(ValueError, match="a body is typed: choose to replace the stored one by it, or clear it"):
        written(body="typed, and not to be stored").edit()
    assert written(body="", replace="1").edit()["body"] == "", "an empty body replaces the stored one"


def test_a_shown_body_is_sent_only_if_it_was_changed() -> None:
    assert "body" not in written(stored="tea\n\tand milk").edit()
    assert written(stored="tea", body="milk").edit()["body"] == "milk"
    assert written(stored="tea", body="").edit()["body"] == "", "what is shown and cleared is to be empty"
    assert written(stored="", body="milk").edit()["body"] == "milk"
    assert "body" not in written(stored="").edit()


def test_a_form_shows_a_body_that_it_gives_back_as_it_is() -> None:
    for body, is_shown in (
        (b" \ntea\n\t\n", True),
        ("grün \u202e\N{ZERO WIDTH JOINER}".encode(), True),
        (b"x" * (MAX_BODY_CHARS - 1), False),
        (b"a\r\nb", False),
        (b"\x1b[2J", False),
        (b"\xff", False),
    ):
        content = content_document(StoredMessage("O.s", 7, 0, b"", body), is_fire=False)
        assert body_in_form(content) == (body.decode() if is_shown else None)


def test_of_a_body_that_was_changed_meanwhile_nothing_is_lost() -> None:
    def beside(mine: Written, body: str | None) -> tuple[str, bool, object]:
        now = mine.beside(STORED, 8, is_new=False, body=body)
        try:
            return now.typed["body"], bool(now.was_body), now.edit().get("body")
        except ValueError:
            return now.typed["body"], bool(now.was_body), "not chosen"

    assert beside(written(stored="tea"), "milk") == ("milk", True, None)
    assert beside(written(stored="tea"), None) == ("", False, None)
    assert beside(written(stored="tea", body="mine"), "milk") == ("mine", True, "mine")
    assert beside(written(stored="tea", body="mine"), None) == ("mine", False, "not chosen")
    assert beside(written(), "milk") == ("milk", True, None)
    assert beside(written(body="mine", replace="1"), "milk") == ("mine", False, "mine")
    assert beside(written(body="mine"), "milk") == ("mine", False, "not chosen")
    assert beside(written(replace="1"), "milk") == ("", False, "")


def test_what_is_stored_meanwhile_is_taken_over_where_nothing_was_typed() -> None:
    theirs: Any = {**STORED, "target": "O.theirs", "ttl": "1m"}
    mine = written(target="O.mine").beside(theirs, 8, is_new=False)
    assert (mine.typed["target"], mine.typed["ttl"], mine.was["target"]) == ("O.mine", "1m", "O.theirs")
    assert mine.edit() == {"set": [["X-Nats-Schedule-Target", "O.mine"]], "unset": [], "expected": 8}
    new = written(ttl="").beside(theirs, 8, is_new=True)
    assert [new.typed[name] for name in SHOWN] == [written(ttl="").typed[name] for name in SHOWN]


def test_what_looks_like_a_policy_and_is_none_is_not_sent() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"policies": "Limmit: 2"}, "Limmit of '2' is no policy: X-Limit may be meant"),
        ({"policies": "Limit: 2\nX-Limit: 3"}, "X-Limit of '3' is given twice: X-Limit of '2' is too"),
        ({"set": "X-limit: 2"}, "a header 'X-limit: 2': expected this policy in the field of policies"),
    ]
    for typed, fault in cases:
        for keys in (written(**typed).edit, written(**typed).addition):
            with pytest.raises(ValueError, match=fault):
                keys()


# -- which earlier versions of a schedule the record of changes knows, and what is in them ---------------------------


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


def test_what_the_record_does_not_know_is_not_offered() -> None:
    for changes, sequence, left in (
        ([THIRD, SECOND, FIRST], 4, []),  # a change of now
        ([change(4, 5, pattern=("x", "y")), THIRD, SECOND], 5, [50]),  # a gap
        ([change(3, None), THIRD, SECOND], None, []),  # removed
        ([change(2, 3, pattern=("b", "…"), exact=False), SECOND], 3, []),  # cut
        ([change(2, 3, dialect=("adr51", "portable")), SECOND], 3, []),  # another spelling
        ([change(3, 3), THIRD, SECOND], 3, [30, 20]),  # fired
    ):
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
