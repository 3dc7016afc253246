"""The list of alerts in docs/operating/monitoring.md, written by `python -m tests.deploy.monitoring`.

A test compares the page with what this module would write.
"""

import re

from tests.deploy.alert_rules import Alert, alerts
from tests.deploy.files import ROOT

PAGE = ROOT / "docs" / "operating" / "monitoring.md"

BEGIN = "<!-- derived: begin alerts (python -m tests.deploy.monitoring) -->"
END = "<!-- derived: end alerts -->"


def derived_part() -> str:
    """Return the table of the alerts."""
    rows = [
        f"| [{alert.name}](#{alert.name.lower()}) | {alert.severity} | {_wait(alert)} | {_plain(alert)} |"
        for alert in alerts().values()
    ]
    return "\n".join(["| alert | severity | after | what it reports |", "|---|---|---|---|", *rows])


def page_with(part: str) -> str:
    """Return the page with its derived part replaced."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{part}\n\n{END}{after}"


def _wait(alert: Alert) -> str:
    return "at once" if alert.wait == "0s" else re.sub(r"(?<=\d)(?=[a-z])", " ", alert.wait).replace(" m", " min")


def _plain(alert: Alert) -> str:
    """Return the summary without what a template fills in."""
    text = re.sub(r"\{\{ with \$labels\.job \}\}.*?\{\{ end \}\}", "the job", alert.annotations["summary"])
    text = text.replace(" of {{ $labels.job }}", "").replace("{{ $labels.job }}", "the job")
    text = text.replace(" {{ $labels.stream }}", "").replace(" {{ $labels.instance }}", "")
    return re.sub(r"\{\{ \$value \}\}", "several", text).strip()


if __name__ == "__main__":
    PAGE.write_text(page_with(derived_part()), encoding="utf-8")
