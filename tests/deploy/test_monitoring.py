"""docs/operating/monitoring.md: a runbook for each alert; what the page, the rules and the dashboard name is there."""

import re
import shlex
from pathlib import Path

import click
import pytest

from nats_scheduler.doctor.finding import Code
from nats_scheduler.settings.fields import setting_fields
from tests.deploy.alert_rules import REFERENCE, alerts, metrics_of, reference
from tests.deploy.dashboard import board, queries
from tests.deploy.files import ROOT
from tests.deploy.monitoring import PAGE, derived_part, page_with
from tests.deploy.test_commands import understood
from tests.house.log_events import advisories, log_events
from tests.house.test_documents import anchors, shell_blocks

TEXT = PAGE.read_text("utf-8")
RUNBOOKS = dict(re.findall(r"^### (NatsScheduler\w+)\n\n(.*?)(?=^##)", TEXT, re.M | re.S))
PARTS = ("- **Users notice**: ", "- **Look at**: ", "- **Do**: ")

STREAMS_OF_OURS = {"nats_scheduler_failures", "nats_scheduler_canary"}
OF_OTHERS = {"allow_msg_schedules", "max_age", "deny_delete", "rule_files", "max_msgs", "max_bytes"}
"""Words of NATS and of Prometheus with an underscore."""


def test_the_alerts_of_the_page_are_those_of_the_rules() -> None:
    assert page_with(derived_part()) == TEXT, "python -m tests.deploy.monitoring"


def test_each_alert_has_a_runbook_and_each_runbook_an_alert() -> None:
    assert list(RUNBOOKS) == list(alerts())


@pytest.mark.parametrize("name", alerts())
def test_a_runbook_stands_where_the_alert_says(name: str) -> None:
    path, _, anchor = alerts()[name].annotations["runbook"].partition("#")
    assert ROOT / path == PAGE
    assert anchor == name.lower()
    assert anchor in anchors(PAGE)


@pytest.mark.parametrize("name", alerts())
def test_a_runbook_says_what_users_notice_what_to_look_at_and_what_to_do(name: str) -> None:
    begins = [RUNBOOKS[name].find(part) for part in PARTS]
    assert 0 < begins[0] < begins[1] < begins[2]
    assert "`" in RUNBOOKS[name][begins[1] :], "what to type, or the name of a line or a panel"


def test_every_metric_that_is_named_exists() -> None:
    named = {alert.name: metrics_of(alert.expr) for alert in alerts().values()}
    named |= {name: metrics_of(expr) for name, expr in queries()}
    named |= {variable["name"]: metrics_of(str(variable["query"])) for variable in board()["templating"]["list"]}
    named["page"] = metrics_of(TEXT) - STREAMS_OF_OURS
    assert {name: metrics - reference() for name, metrics in named.items() if metrics - reference()} == {}


def test_every_label_that_a_rule_or_a_query_groups_by_is_one_of_the_reference() -> None:
    page = REFERENCE.read_text("utf-8")
    known = {"job", "instance", "le"}
    for labels in re.findall(r"^\| `\w+` \| \w+ \| ([^|]*)\|", page, re.M):
        known |= set(re.findall(r"`(\w+)`", labels))
    used = set()
    for expr in [*(alert.expr for alert in alerts().values()), *(expr for _name, expr in queries())]:
        for labels in re.findall(r"\b(?:by|on|without)\s*\(([^)]*)\)", expr):
            used |= {label.strip() for label in labels.split(",")}
        used |= set(re.findall(r'(\w+)=~?"', expr)) - {"alertname", "alertstate"}
    assert used <= known


def test_every_word_of_ours_that_the_page_names_exists() -> None:
    stems = {name.removeprefix("nats_scheduler_") for name in reference()}
    ours = {*log_events(), *advisories(), *setting_fields(), *(code.value for code in Code), *stems, *reference()}
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", TEXT))
    assert named - ours - OF_OTHERS - STREAMS_OF_OURS == set()


def test_every_panel_that_a_runbook_names_exists() -> None:
    titles = {panel["title"] for panel in board()["panels"]}
    named = {title for text in RUNBOOKS.values() for title in re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)", text)}
    assert named
    assert named - titles == set()


def commands(document: Path) -> list[str]:
    """List the commands of ours that a page asks its reader to type, in a block or in a sentence."""
    lines = [line for block in shell_blocks(document) for line in block.splitlines()]
    inline = re.findall(r"`(nats-scheduler [a-z][^`]*)`", document.read_text("utf-8"))
    return [line for line in (*lines, *inline) if line.startswith("nats-scheduler ")]


@pytest.mark.parametrize("command", sorted(set(commands(PAGE))))
def test_a_command_of_the_page_is_one_of_the_program(command: str) -> None:
    words = shlex.split(command)[1:]
    try:
        understood(words)
    except click.MissingParameter:
        assert "`" + command + "`" in TEXT, "only a sentence may leave out what a command is about"
