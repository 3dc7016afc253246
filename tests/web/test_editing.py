"""What a form of an edit asks for: what differs from what it showed, and nothing else."""

from typing import Any

import pytest

from nats_scheduler.message.schedule_form import FIELDS
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.observe.message_contents import content_document
from nats_scheduler.web.change_pages import headers_of
from nats_scheduler.web.editing import MAX_BODY_CHARS, SHOWN, Written, body_in_form, digest_of, fields_of
from tests.harness.hiding import HIDES, HIDING

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


@pytest.mark.parametrize(
    ("body", "is_shown"),
    [
        (b"", True),
        (b" \ntea\n\t\n", True),
        ("grün \u202e\N{ZERO WIDTH JOINER}".encode(), True),
        (b"x" * (MAX_BODY_CHARS - 2), True),
        (b"x" * (MAX_BODY_CHARS - 1), False),
        ("ä".encode() * (MAX_BODY_CHARS // 6 + 1), False),
        (b"a\r\nb", False),
        (b"a\x00", False),
        (b"\x1b[2J", False),
        ("\x85".encode(), False),
        (b"\xff", False),
    ],
)
def test_a_form_shows_a_body_that_it_gives_back_as_it_is(body: bytes, is_shown: bool) -> None:
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


def test_a_new_schedule_replaces_only_what_was_seen() -> None:
    new = written(spelling="adr51", policies="", ttl="", set="Kind: a:b", body="x", sequence=9)
    headers = [["Nats-Schedule", "@every 1h"], ["Nats-Schedule-Target", "O.out"], ["Kind", "a:b"]]
    assert new.addition() == {"headers": headers, "body": "x"}
    replacing = written(spelling="adr51", policies="", ttl="", set="Kind: a:b", body="x", replace="1", sequence=9)
    assert replacing.addition() == {"headers": headers, "body": "x", "replace": True, "expected": 9}


@pytest.mark.parametrize("name", HIDING)
def test_a_value_that_hides_a_header_is_not_sent(name: str) -> None:
    form = HIDING[name]
    lines = {"policies": form.policies, "set": form.headers}
    typed: dict[str, Any] = {field.name: getattr(form, field.name) or "" for field in FIELDS}
    typed |= {field: "\n".join(f"{name}: {value}" for name, value in pairs) for field, pairs in lines.items()}
    with pytest.raises(ValueError, match=HIDES):
        written(spelling="adr51", **typed).addition()


def test_what_is_stored_meanwhile_is_taken_over_where_nothing_was_typed() -> None:
    theirs: Any = {**STORED, "target": "O.theirs", "ttl": "1m"}
    mine = written(target="O.mine").beside(theirs, 8, is_new=False)
    assert (mine.typed["target"], mine.typed["ttl"], mine.was["target"]) == ("O.mine", "1m", "O.theirs")
    assert mine.edit() == {"set": [["X-Nats-Schedule-Target", "O.mine"]], "unset": [], "expected": 8}
    new = written(ttl="").beside(theirs, 8, is_new=True)
    assert [new.typed[name] for name in SHOWN] == [written(ttl="").typed[name] for name in SHOWN]


def test_a_line_without_a_colon_is_shown_with_what_is_expected() -> None:
    assert headers_of("\n A : b \n") == [["A", "b"]]
    for line in ("X-Limit 3", ": 3"):
        with pytest.raises(ValueError, match=f"a line of '{line}': expected a name, a colon and a value"):
            headers_of(f"A: b\n{line}")


@pytest.mark.parametrize(
    ("typed", "fault"),
    [
        ({"policies": "Limmit: 2"}, "Limmit of '2' is no policy: X-Limit may be meant"),
        ({"policies": "Nats-Schedule-Limit: 2"}, "Nats-Schedule-Limit of '2' is no policy: X-Limit may be meant"),
        ({"policies": "Zebra: 2"}, "Zebra of '2' is no policy: expected one of X-Anchor, X-Clock-Change, X-Consumer"),
        ({"policies": "Limit: 2\nX-Limit: 3"}, "X-Limit of '3' is given twice: X-Limit of '2' is too"),
        ({"set": "X-limit: 2"}, "a header 'X-limit: 2': expected this policy in the field of policies"),
    ],
)
def test_what_looks_like_a_policy_and_is_none_is_not_sent(typed: dict[str, Any], fault: str) -> None:
    for keys in (written(**typed).edit, written(**typed).addition):
        with pytest.raises(ValueError, match=fault):
            keys()
