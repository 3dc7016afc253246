"""The schema and the reference page of the settings are those of the models."""

from __future__ import annotations

import re
from pathlib import Path

from nats_scheduler.settings.load import load_settings
from tests.settings.reference import PAGE, derived_part, page_with


def test_the_reference_page_says_what_the_models_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_with(derived_part()), "python -m tests.settings.reference"


def test_the_example_on_the_reference_page_can_be_used(tmp_path: Path) -> None:
    found = re.search(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    (tmp_path / "sidecar.creds").write_text("")
    (tmp_path / "streams").mkdir()
    path = tmp_path / "settings.json"
    path.write_text(found[1].replace("/etc/nats-scheduler", str(tmp_path)))
    settings = load_settings({}, {"XDG_CONFIG_HOME": str(tmp_path)}, path)
    assert settings.metrics_port == 9464
