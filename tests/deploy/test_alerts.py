"""The alert rules: Prometheus reads them, each fires when it has to, and none fires in what is ordinary."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.alert_cases import CASES as OF_ALL_SCHEDULES
from tests.deploy.alert_cases import STEP_SECONDS, Case, Series
from tests.deploy.alert_cases_policies import POLICIES
from tests.deploy.alert_rules import RULES, alerts, metrics_of
from tests.deploy.alert_scenes import MINUTES, ORDINARY, OUTAGES, Scene
from tests.harness.prometheus import promtool

SEVERITIES = {"critical", "warning"}
FIRES_AT_MINUTES = {
    "NatsSchedulerVersionsDiffer": 6 * 60 + 30,
    "NatsSchedulerFiresMissed": 50,
    "NatsSchedulerFiresSkipped": 50,
    "NatsSchedulerFiresTimedOut": 50,
    "NatsSchedulerPurgesFail": 50,
    "NatsSchedulerCanaryMissed": 50,
}
"""The minute at which an alert fires; all others do after half an hour."""
LONGEST_MINUTES = 7 * 60

CASES = [*OF_ALL_SCHEDULES, *POLICIES]
OF_CASES = [pytest.param(case, id=f"{case.alert}-{number}") for number, case in enumerate(CASES)]
QUIET = [
    pytest.param(case.alert, series, id=f"{case.alert}-{name.replace(' ', '-')}")
    for case in CASES
    for name, series in case.quiet.items()
]


def judged(
    folder: Path, rules: Path, series: Series, queries: Mapping[str, list[dict[str, Any]]], at_minutes: int
) -> str:
    """Run rules over series, and return what promtool says against the answers of some queries at that minute."""
    test = {
        "interval": f"{STEP_SECONDS}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": expr, "eval_time": f"{at_minutes}m", "exp_samples": samples} for expr, samples in queries.items()
        ],
    }
    file = folder / "alerts.test.yaml"
    whole = {"rule_files": [str(rules)], "evaluation_interval": f"{STEP_SECONDS}s", "tests": [test]}
    file.write_text(yaml.safe_dump(whole), "utf-8")
    code, said = promtool("test", "rules", file)
    return "" if code == 0 else said


def rule_of(folder: Path, alert: str) -> Path:
    """Return a file with the rule of one alert, of which a run takes a tenth of the time."""
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    (rule,) = [rule for group in groups for rule in group["rules"] if rule["alert"] == alert]
    file = folder / "alert.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "alert", "rules": [rule]}]}), "utf-8")
    return file


def firing(alert: str) -> str:
    """Return the selector of an alert that fires."""
    return f'ALERTS{{alertname="{alert}", alertstate="firing"}}'


@pytest.mark.server
def test_prometheus_reads_the_rules() -> None:
    code, said = promtool("check", "rules", RULES)
    assert code == 0, said
    assert f"{len(alerts())} rules found" in said


@pytest.mark.server
@pytest.mark.parametrize("case", OF_CASES)
def test_an_alert_fires(case: Case, tmp_path: Path) -> None:
    severity = alerts()[case.alert].severity
    labels = ", ".join(filter(None, [f'alertname="{case.alert}"', 'alertstate="firing"', case.labels]))
    sample = {"labels": f'ALERTS{{{labels}, severity="{severity}"}}', "value": 1}
    rule, at_minutes = rule_of(tmp_path, case.alert), FIRES_AT_MINUTES.get(case.alert, 30)
    assert judged(tmp_path, rule, case.fires, {firing(case.alert): [sample]}, at_minutes) == ""


@pytest.mark.server
@pytest.mark.parametrize(("alert", "series"), QUIET)
def test_an_alert_does_not_fire(alert: str, series: Series, tmp_path: Path) -> None:
    ever = f"count_over_time({firing(alert)}[{LONGEST_MINUTES}m])"
    at_minutes = LONGEST_MINUTES if alert == "NatsSchedulerVersionsDiffer" else 59
    assert judged(tmp_path, rule_of(tmp_path, alert), series, {ever: []}, at_minutes) == ""


@pytest.mark.server
@pytest.mark.parametrize("scene", [*ORDINARY, *OUTAGES], ids=lambda scene: scene.name.replace(" ", "-"))
def test_a_whole_deployment_fires_what_it_has_to_and_no_other_alert(scene: Scene, tmp_path: Path) -> None:
    ever = f'count by (alertname) (count_over_time(ALERTS{{alertstate="firing"}}[{MINUTES}m]))'
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(scene.alerts)]
    assert judged(tmp_path, RULES, scene.series(), {ever: samples}, MINUTES) == ""


def test_the_scenes_have_every_metric_of_the_rules() -> None:
    named = {name for alert in alerts().values() for name in metrics_of(alert.expr)}
    for scene in ORDINARY:
        assert named <= {name for series in scene.series() for name in metrics_of(series)}, scene.name
    assert all(scene.alerts == set() for scene in ORDINARY)
    assert all(scene.alerts for scene in OUTAGES)


def test_each_alert_has_series_with_which_it_fires_and_some_with_which_it_does_not() -> None:
    assert {case.alert for case in CASES} == set(alerts())
    assert all(case.quiet for case in CASES)


@pytest.mark.parametrize("name", alerts())
def test_an_alert_says_what_is_wrong_and_where_to_read_on(name: str) -> None:
    alert = alerts()[name]
    assert name.startswith("NatsScheduler")
    assert alert.severity in SEVERITIES
    assert set(alert.annotations) == {"summary", "description", "runbook"}
    assert not alert.annotations["summary"].endswith(".")
    assert alert.annotations["description"].endswith(".")


@pytest.mark.parametrize("case", OF_CASES)
def test_a_text_of_an_alert_names_labels_that_it_has(case: Case) -> None:
    texts = " ".join(alerts()[case.alert].annotations.values())
    used = set(re.findall(r"\$labels\.(\w+)", texts))
    given = set(re.findall(r'(\w+)="', case.labels))
    assert used <= given | ({"job"} if "{{ with $labels.job }}" in texts else set())
    assert given & {"stream", "instance", "job"} <= used or not given
