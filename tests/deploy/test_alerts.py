"""The alert rules: Prometheus reads them, each fires when it has to, and none fires in what is ordinary."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.alert_cases import CASES, STEP_SECONDS, Case, Series
from tests.deploy.alert_scenes import MINUTES, ORDINARY, OUTAGES, Scene
from tests.deploy.monitoring import RULES, alerts, metrics_of
from tests.harness.prometheus import promtool

SEVERITIES = {"critical", "warning"}
LONGEST_MINUTES = 7 * 60


class Judged:
    """Rules, and tests of them that promtool runs together."""

    def __init__(self, folder: Path, rules: Path) -> None:
        self._file = folder / "alerts.test.yaml"
        self._whole = {"rule_files": [str(rules)], "evaluation_interval": f"{STEP_SECONDS}s"}
        self._tests: list[dict[str, Any]] = []

    def add(self, series: Series, query: str, samples: list[dict[str, Any]], at_minutes: int) -> None:
        """Expect this answer to a query at that minute, over series of its own."""
        self._tests.append(
            {
                "interval": f"{STEP_SECONDS}s",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [{"expr": query, "eval_time": f"{at_minutes}m", "exp_samples": samples}],
            }
        )

    def faults(self) -> str:
        """Return what promtool says against the expectations."""
        self._file.write_text(yaml.safe_dump({**self._whole, "tests": self._tests}), "utf-8")
        code, said = promtool("test", "rules", self._file)
        return "" if code == 0 else said


def rule_of(folder: Path, alert: str) -> Path:
    """Return a file with the rule of one alert, of which a run takes a tenth of the time."""
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    (rule,) = [rule for group in groups for rule in group["rules"] if rule["alert"] == alert]
    file = folder / "alert.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "alert", "rules": [rule]}]}), "utf-8")
    return file


@pytest.mark.server
def test_prometheus_reads_the_rules() -> None:
    code, said = promtool("check", "rules", RULES)
    assert code == 0, said
    assert f"{len(alerts())} rules found" in said


@pytest.mark.server
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_when_it_has_to_and_not_in_what_comes_near(case: Case, tmp_path: Path) -> None:
    firing = f'ALERTS{{alertname="{case.alert}", alertstate="firing"}}'
    severity = f'severity="{alerts()[case.alert].severity}"'
    sample = {"labels": f"{firing[:-1]}, {case.labels}, {severity}}}", "value": 1}
    judged = Judged(tmp_path, rule_of(tmp_path, case.alert))
    judged.add(case.fires, firing, [sample], case.at_minutes)
    for name, series in case.quiet.items():
        ever = f"count_over_time({firing}[{LONGEST_MINUTES}m])  # {name}"
        judged.add(series, ever, [], LONGEST_MINUTES if case.at_minutes > 60 else 59)
    assert judged.faults() == ""


@pytest.mark.server
@pytest.mark.parametrize("scene", [*ORDINARY, *OUTAGES], ids=lambda scene: scene.happens.__name__)
def test_a_whole_deployment_fires_what_it_has_to_and_no_other_alert(scene: Scene, tmp_path: Path) -> None:
    ever = f'count by (alertname) (count_over_time(ALERTS{{alertstate="firing"}}[{MINUTES}m]))'
    judged = Judged(tmp_path, RULES)
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(scene.alerts)]
    judged.add(scene.series(), ever, samples, MINUTES)
    assert judged.faults() == ""


def test_the_cases_and_scenes_have_every_alert_and_every_metric_of_the_rules() -> None:
    assert [case.alert for case in CASES] == list(dict.fromkeys(case.alert for case in CASES))
    assert {case.alert for case in CASES} == set(alerts())
    named = {name for alert in alerts().values() for name in metrics_of(alert.expr)}
    for scene in ORDINARY:
        assert named <= {name for series in scene.series() for name in metrics_of(series)}, scene.happens
    assert all(scene.alerts == set() for scene in ORDINARY)
    assert all(scene.alerts for scene in OUTAGES)


def test_an_alert_says_what_is_wrong_and_where_to_read_on_with_labels_that_it_has() -> None:
    for case in CASES:
        alert = alerts()[case.alert]
        assert alert.name.startswith("NatsScheduler")
        assert alert.severity in SEVERITIES
        assert set(alert.annotations) == {"summary", "description", "runbook"}, alert.name
        assert not alert.annotations["summary"].endswith("."), alert.name
        assert alert.annotations["description"].endswith("."), alert.name
        texts = " ".join(alert.annotations.values())
        used, given = (
            set(re.findall(find, text)) for find, text in ((r"\$labels\.(\w+)", texts), (r'(\w+)="', case.labels))
        )
        assert used <= given | ({"job"} if "{{ with $labels.job }}" in texts else set()), alert.name
        assert given & {"stream", "instance", "job"} <= used, alert.name
