"""A page whose changes the sidecars would refuse says so, and says nothing of what it does not know."""

from nats_scheduler.service.schemas import HealthAnswer
from nats_scheduler.web.control_check import MAX_NAMED, refusal_of


def health(name: str, *rules: str, allows: bool = False) -> HealthAnswer:
    """Return the answer of a sidecar."""
    return {
        **HealthAnswer(at="", instance=name, ready=True, reasons=[]),
        "allow_control": allows,
        "control_rules": list(rules),
    }


def test_each_sidecar_that_refuses_changes_is_named() -> None:
    allows, refuses = health("a", allows=True), health("b")
    assert refusal_of([allows], None) == ""
    assert refusal_of([refuses], None) == "Changes are refused by sidecar b: set allow_control there."
    assert refusal_of([allows, refuses], None) == "Changes are refused by sidecar b: set allow_control there."
    many = [health(str(number)) for number in range(MAX_NAMED + 2)]
    assert refusal_of(many, None) == "Changes are refused by sidecars 0, 1, 2 and 2 more: set allow_control there."


def test_a_rule_is_enough_if_one_sidecar_has_it() -> None:
    assert refusal_of([health("a", "shop"), health("b")], "shop") == ""
    sentence = "No sidecar has the rule 'shop' of web_control_rule: add it to control_rules of each sidecar."
    assert refusal_of([health("a", "stock"), health("b", allows=True)], "shop") == sentence


def test_what_is_not_known_is_not_said() -> None:
    older = HealthAnswer(at="", instance="a", ready=True, reasons=[])
    for rule in (None, "shop"):
        assert refusal_of([], rule) == ""
        assert refusal_of([older], rule) == ""
