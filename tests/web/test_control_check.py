"""A page whose changes the sidecars would refuse says so, and says nothing of what it does not know."""

from functools import partial

from nats_scheduler.service.schemas import HealthAnswer
from nats_scheduler.settings.control_rules import ControlRule
from nats_scheduler.web.control_check import MAX_NAMED, refusal_of
from tests.conftest import StartServer
from tests.harness.account import sidecar_on
from tests.harness.waiting import eventually
from tests.web.browsing import Browsing, browsing
from tests.web.test_request_checks import controllers

NOTICE = 'class="notice">Changes are refused by sidecar'


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


async def is_without(page: Browsing, text: str) -> bool:
    """Return whether the overview does not show a text."""
    return text not in await page.get("/")


async def test_the_page_says_it_as_long_as_it_is_so(start_server: StartServer) -> None:
    server = await start_server()
    rule = ControlRule(name="shop", streams=["S"], may=["pause"], subjects=["S.>"])
    async with (
        browsing(server.url, controllers=controllers()) as page,
        browsing(server.url) as reading,
        browsing(server.url, controllers=controllers(rule="shop")) as of_a_rule,
    ):
        for one in (page, of_a_rule):
            await one.shows("/", "No sidecar answers")
            assert "refused" not in await one.get("/")
        async with sidecar_on(server.url) as running:
            instance = running.sidecar.instance
            await page.shows("/schedules", f"{NOTICE} {instance}: set allow_control there.")
            await of_a_rule.shows("/", "No sidecar has the rule &#39;shop&#39; of web_control_rule")
            assert NOTICE not in await reading.shows("/", "All is well"), "it changes nothing anyway"
            async with sidecar_on(server.url, allow_control=True, control_rules=(rule,)) as second:
                await page.shows("/instances", f"{NOTICE} {instance}", second.sidecar.instance)
                await eventually(partial(is_without, of_a_rule, "of web_control_rule"))
        async with sidecar_on(server.url, allow_control=True):
            await eventually(partial(is_without, page, NOTICE))
