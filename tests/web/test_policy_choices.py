"""The policies that a person chooses from: all that there are, each written as a line that the parser reads."""

import re
from pathlib import Path

import pytest

from nats_scheduler.message.policies import POLICY_NAMES
from nats_scheduler.web.change_pages import policies_of
from nats_scheduler.web.policy_choices import POLICY_CHOICES, write_policy

REFERENCE = Path(__file__).parents[2] / "docs/reference/policies.md"

WRONG = {
    "X-Start": ("tomorrow", "is not a time: expected a time such as"),
    "X-Limit": ("1001", "expected 1 to 1,000"),
    "X-Note": ("n" * 257, "expected at most 256"),
}


def test_all_policies_may_be_chosen_in_the_order_of_the_documentation() -> None:
    assert set(POLICY_CHOICES) == set(POLICY_NAMES)
    rows = re.findall(r"^\| `(X-[\w-]+)` \|", REFERENCE.read_text("utf-8"), re.MULTILINE)
    assert list(POLICY_CHOICES) == [name for name in rows if name in POLICY_CHOICES]


@pytest.mark.parametrize("name", POLICY_CHOICES)
def test_a_policy_is_written_as_a_line(name: str) -> None:
    example = POLICY_CHOICES[name].example
    written = write_policy("", name, example)
    assert (written.lines, written.wrong) == (f"{name}: {example}", {})
    assert policies_of(written.lines) == ((name, example),)
    for wrong, expected in (("", POLICY_CHOICES[name].value), ("true\nX-Limit: 1", "one line")):
        lines, faults = write_policy("X-Note: kept", name, wrong)
        assert lines == "X-Note: kept"
        assert expected in faults["value"], (wrong, faults)


def test_a_wrong_value_is_refused_as_the_parser_refuses_it() -> None:
    for name, (value, fault) in WRONG.items():
        lines, faults = write_policy("X-Missed: all", name, value)
        assert (lines, fault in faults["value"]) == ("X-Missed: all", True)


def test_a_policy_replaces_its_own_line_and_no_other() -> None:
    lines = "note: first\n\nlimit: 3\nnonsense\nX-LIMIT: 4\nX-Owner: last"
    assert write_policy(lines, "X-Limit", "5").lines == "note: first\nX-Limit: 5\nnonsense\nX-Owner: last"
    assert write_policy(lines, "X-Jitter", "5s").lines.endswith("X-Owner: last\nX-Jitter: 5s")


def test_a_policy_that_is_none_is_named() -> None:
    for name in ("", "X-Limmit", "X-Paused", "x" * 1000):
        written = write_policy("X-Limit: 3", name, "5")
        assert written.lines == "X-Limit: 3"
        assert written.wrong["policy"].startswith(f"a policy of '{name[:40]}': expected one of X-Start, X-End,")
