"""The reference of files of schedules has every key; `tests/site/` follows the how-to about them."""

import re

from nats_scheduler.files.models import files_schema
from tests.house.sources import ROOT

REFERENCE = ROOT / "docs" / "reference" / "files.md"


def test_the_reference_has_every_key_of_a_file() -> None:
    page = REFERENCE.read_text("utf-8")
    document, schedule = (page.partition(f"\n## {title}\n")[2].partition("\n## ")[0] for title in TITLES)
    schema = files_schema()
    assert keys_in(document) == set(schema["properties"])
    assert keys_in(schedule) == set(schema["$defs"]["ScheduleModel"]["properties"])


TITLES = ("A document", "A schedule")


def keys_in(text: str) -> set[str]:
    """Return the keys in the first column of the table of a section."""
    return set(re.findall(r"^\| `([$\w]+)` \|", text, re.M))
