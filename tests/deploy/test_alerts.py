"""The alert rules: Prometheus reads them, each fires when it has to, and not in what comes near."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.alert_cases import CASES, STEP_SECONDS, Case
from tests.deploy.monitoring import RULES, SCRAPES, alerts
from tests.harness.prometheus import promtool

pytestmark = pytest.mark.server

LONGEST_MINUTES = 7 * 60


def test_prometheus_reads_the_rules() -> None:
    code, said = promtool("check", "rules", RULES)
    assert code == 0, said
    assert f"{len(alerts())} rules found" in said


def test_prometheus_reads_the_example_of_its_configuration(tmp_path: Path) -> None:
    """Without the job for pods: a Prometheus may be built without Kubernetes, as Debian's is."""
    config = yaml.safe_load(SCRAPES.read_text("utf-8"))
    config["rule_files"] = [str(SCRAPES.parent / name) for name in config["rule_files"]]
    config["scrape_configs"] = [job for job in config["scrape_configs"] if "kubernetes_sd_configs" not in job]
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump(config), "utf-8")
    code, said = promtool("check", "config", file)
    assert code == 0, said


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_when_it_has_to_and_not_in_what_comes_near(case: Case, tmp_path: Path) -> None:
    firing = f'ALERTS{{alertname="{case.alert}", alertstate="firing"}}'
    severity = f'severity="{alerts()[case.alert].severity}"'
    sample = {"labels": f"{firing[:-1]}, {case.labels}, {severity}}}", "value": 1}
    expected = [(case.fires, firing, [sample], case.at_minutes)]
    for name, series in case.quiet.items():
        ever = f"count_over_time({firing}[{LONGEST_MINUTES}m])  # {name}"
        expected.append((series, ever, [], LONGEST_MINUTES if case.at_minutes > 60 else 59))
    tests: list[dict[str, Any]] = [
        {
            "interval": f"{STEP_SECONDS}s",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [{"expr": query, "eval_time": f"{minutes}m", "exp_samples": samples}],
        }
        for series, query, samples, minutes in expected
    ]
    file = tmp_path / "alerts.test.yaml"
    rules = {"rule_files": [str(rule_of(tmp_path, case.alert))], "evaluation_interval": f"{STEP_SECONDS}s"}
    file.write_text(yaml.safe_dump({**rules, "tests": tests}), "utf-8")
    code, said = promtool("test", "rules", file)
    assert code == 0, said


def rule_of(folder: Path, alert: str) -> Path:
    """Return a file with the rule of one alert, of which a run takes a tenth of the time."""
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    (rule,) = [rule for group in groups for rule in group["rules"] if rule["alert"] == alert]
    file = folder / "alert.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "alert", "rules": [rule]}]}), "utf-8")
    return file


def test_each_alert_has_a_case_and_names_only_labels_that_it_has() -> None:
    assert sorted(case.alert for case in CASES) == sorted(alerts())
    for case in CASES:
        alert = alerts()[case.alert]
        texts = " ".join(alert.annotations.values())
        used, given = (
            set(re.findall(find, text)) for find, text in ((r"\$labels\.(\w+)", texts), (r'(\w+)="', case.labels))
        )
        assert used <= given | ({"job"} if "{{ with $labels.job }}" in texts else set()), alert.name
        assert given & {"stream", "instance", "job"} <= used, alert.name
