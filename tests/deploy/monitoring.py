"""The lists of alerts and panels in docs/operating/monitoring.md, written by `python -m tests.deploy.monitoring`.

A test compares the page with what this module would write.
"""

import re

from tests.deploy.alert_rules import Alert, alerts
from tests.deploy.dashboard import board
from tests.deploy.files import ROOT

PAGE = ROOT / "docs" / "operating" / "monitoring.md"

BEGIN = "<!-- derived: begin {} (python -m tests.deploy.monitoring) -->"
END = "<!-- derived: end {} -->"


def derived_parts() -> dict[str, str]:
    """Return the derived parts of the page, by name."""
    rows = [
        f"| [{alert.name}](#{alert.name.lower()}) | {alert.severity} | {_wait(alert)} | {_plain(alert)} |"
        for alert in alerts().values()
    ]
    listed = ["| alert | severity | after | what it reports |", "|---|---|---|---|", *rows]
    shown = []
    for panel in board()["panels"]:
        if panel["type"] == "row":
            shown += ["", f"### {panel['title']}", ""]
        else:
            shown += [f"- **{panel['title']}**", *_sentences(panel["description"])]
    return {"alerts": "\n".join(listed), "panels": "\n".join(shown)}


def page_with(parts: dict[str, str]) -> str:
    """Return the page with its derived parts replaced."""
    text = PAGE.read_text("utf-8")
    for name, part in parts.items():
        before, _, rest = text.partition(BEGIN.format(name))
        after = rest.partition(END.format(name))[2]
        text = f"{before}{BEGIN.format(name)}\n\n{part}\n\n{END.format(name)}{after}"
    return text


def _wait(alert: Alert) -> str:
    return "at once" if alert.wait == "0s" else re.sub(r"(?<=\d)(?=[a-z])", " ", alert.wait).replace(" m", " min")


def _plain(alert: Alert) -> str:
    """Return the summary without what a template fills in."""
    text = re.sub(r"\{\{ with \$labels\.job \}\}.*?\{\{ end \}\}", "the job", alert.annotations["summary"])
    text = text.replace(" of {{ $labels.job }}", "").replace("{{ $labels.job }}", "the job")
    text = text.replace(" {{ $labels.stream }}", "").replace(" {{ $labels.instance }}", "")
    return re.sub(r"\{\{ \$value \}\}", "several", text).strip()


def _sentences(text: str) -> list[str]:
    return [f"  {sentence}" for sentence in re.split(r"(?<=\.) (?=[A-Z`])", text)]


if __name__ == "__main__":
    PAGE.write_text(page_with(derived_parts()), encoding="utf-8")
