"""The lists of schedules, and the page of one: search, pages, and the story of each schedule."""

import re
from html import unescape

import pytest

from nats_scheduler.web.links import address
from tests.harness.account import in_seconds
from tests.web.conftest import Scene

SUBJECT = re.compile(r'<a class="subject" href="([^"]+)"><bdi>([^<]*)</bdi>')


def subjects(text: str) -> list[str]:
    """Return the subjects of the schedules that a page links to, in its order."""
    return [unescape(found) for _, found in SUBJECT.findall(text)]


async def test_schedules_are_listed_soonest_first(scene: Scene) -> None:
    text = await scene.page.get("/schedules?stream=O&filter=O.s.*")
    assert subjects(text) == ["O.s.1", "O.s.3", "O.s.5", "O.s.7", "O.s.9"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("kind=cron", ["O.cron"]),
        ("target=O.morning", ["O.cron"]),
        ("state=overdue", []),
        ("state=waiting&filter=O.s.3", ["O.s.3"]),
    ],
)
async def test_schedules_are_searched(scene: Scene, query: str, found: list[str]) -> None:
    text = await scene.page.get(f"/schedules?stream=O&{query}")
    assert subjects(text) == found
    assert ("No schedule is as you search." in text) == (not found)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("stream=O&filter=a..b", "a subject such as &#39;orders.&gt;&#39; is expected"),
        ("stream=O&state=sleeping", "state"),
        ("stream=NONE", "is not served"),
        ("stream=O&cursor=%ff", "the cursor of another page is expected"),
    ],
)
async def test_what_cannot_be_searched_is_said(scene: Scene, query: str, sentence: str) -> None:
    assert sentence in await scene.page.get(f"/schedules?{query}")


async def test_pages_follow_each_other_by_cursor(scene: Scene) -> None:
    for number in range(60):
        at = in_seconds(100_000 + number)
        await scene.account.publish(f"O.many.{number}", {"Nats-Schedule": f"@at {at}", "Nats-Schedule-Target": "O.out"})
    await scene.page.shows("/", "66 schedules")
    first = await scene.page.get("/schedules?stream=O&filter=O.many.*")
    following = re.search(r'rel="next" href="([^"]+)"', first)
    assert following
    second = await scene.page.get(unescape(following[1]))
    assert subjects(first) + subjects(second) == [f"O.many.{number}" for number in range(60)]
    assert "First page" in second
    assert "Next page" not in second


async def test_the_story_of_a_schedule(scene: Scene) -> None:
    text = await scene.page.get("/schedule?stream=O&subject=O.cron")
    assert "every weekday at 09:30 in Berlin" in text
    assert "Europe/Berlin" in text
    assert "09:30:00+0" in text
    assert scene.running.sidecar.instance in text
    assert "No fire of it is stored." in text


async def test_changes_of_the_clock_are_told_beside_the_fires_that_they_concern(scene: Scene) -> None:
    for name, minute in (("often", "0 */20 1-3 28-29 3 *"), ("twice", "0 30 2 * 10 *")):
        cron = {"Nats-Schedule": minute, "Nats-Schedule-Time-Zone": "Europe/Berlin"}
        await scene.account.publish(f"O.{name}", {**cron, "Nats-Schedule-Target": "O.out"})
    await scene.page.shows("/", "8 schedules")
    text = await scene.page.get("/schedule?stream=O&subject=O.often")
    assert "the clock goes" in text


async def test_a_fired_schedule_shows_when_and_how_late(scene: Scene) -> None:
    await scene.account.publish("O.every", {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "O.tick"})
    await scene.account.wait_for("O", "O.tick", 2)
    text = await scene.page.shows("/schedule?stream=O&subject=O.every", "Last fires", "O.tick</bdi>", 'data-key="fire-')
    assert re.search(r'class="late[^"]*">[0-9.,]+ m?s', text)


async def test_the_reason_of_a_rejection(scene: Scene) -> None:
    invalid = await scene.page.get("/schedule?stream=O&subject=O.invalid")
    assert "Rejected: it never fires" in invalid
    assert "@every soon" in invalid
    misnamed = await scene.page.get("/schedule?stream=O&subject=O.misnamed")
    assert "Nats-Schedul</bdi>" in misnamed
    listed = await scene.page.get("/rejected?stream=O")
    assert subjects(listed) == ["O.invalid", "O.misnamed"]


async def test_a_schedule_that_does_not_exist(scene: Scene) -> None:
    assert "has no schedule on" in await scene.page.get("/schedule?stream=O&subject=O.none", status=404)
    assert "No such page" in await scene.page.get("/nowhere", status=404)
    await scene.page.get("/schedule")


HOSTILE = [
    "O.h.<script>alert(1)</script>",
    "O.h.\"'&amp;",
    "O.h.\u202eright-to-left",
    "O.h./a/%2e%2e/?b#c",
    "O.h.+;%",
    "O.h." + "x" * 900,
]


@pytest.mark.parametrize("subject", HOSTILE)
async def test_a_hostile_subject_is_text_and_its_link_leads_to_it(scene: Scene, subject: str) -> None:
    at = in_seconds(5000)
    pattern = {"Nats-Schedule": f"@at {at}", "Nats-Schedule-Target": subject.replace("O.h", "O.t", 1)}
    await scene.account.publish(subject, pattern)
    await scene.page.shows("/", "7 schedules")
    text = await scene.page.get("/schedules?stream=O&filter=O.h.>")
    ((link, _),) = SUBJECT.findall(text)
    assert unescape(link) == address("/schedule", stream="O", subject=subject)
    story = await scene.page.get(unescape(link))
    assert "It is rejected" not in story
    assert "Stored as" in story, "the sidecar found exactly this subject"
    for page in (text, story, await scene.page.get("/")):
        assert "<script>alert" not in page
        assert "\u202e" not in page
