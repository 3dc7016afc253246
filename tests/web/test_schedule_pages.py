"""The pages about one sidecar: the verdict, lists with search and pages, and the story of each schedule."""

import re
from html import unescape

import pytest

from nats_scheduler.schedule.instants import HOUR
from nats_scheduler.web.rendering import address
from tests.harness.account import in_seconds
from tests.web.browsing import browsing
from tests.web.conftest import Scene

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

SUBJECT = re.compile(r'<a class="subject(?: long)?" href="([^"]+)"><bdi>([^<]*)</bdi>')


def subjects(text: str) -> list[str]:
    """Return the subjects of the schedules that a page links to, in its order."""
    return [unescape(found) for _, found in SUBJECT.findall(text)]


async def test_times_are_by_the_clock_of_the_server(scene: Scene) -> None:
    async with browsing(scene.url, ahead=2 * HOUR) as page:
        await page.shows("/schedules?stream=O&filter=O.s.9", "in 8h")


async def test_a_jittered_schedule_shows_when_its_fire_is_sent(scene: Scene) -> None:
    headers = {"Nats-Schedule": "@every 9h", "Nats-Schedule-Target": "O.out", "Nats-Schedule-X-Jitter": "1h"}
    await scene.account.publish("O.jittered", headers)
    list_text = await scene.page.shows("/schedules?stream=O&filter=O.jittered", "O.jittered</bdi>")
    assert re.search(r">sent [^<]+, in (8|9)h", list_text)
    text = await scene.page.shows("/schedule?stream=O&subject=O.jittered", "Next:")
    assert re.search(r"</strong> UTC, sent at [-0-9 :.]+, in (8|9)h", text)


async def test_a_paused_schedule_is_shown_as_paused(scene: Scene) -> None:
    headers = {"Nats-Schedule-X-Paused": "@every 9h", "Nats-Schedule-Target": "O.out"}
    await scene.account.publish("O.paused", headers)
    list_text = await scene.page.shows("/schedules?stream=O&state=paused", "O.paused</bdi>")
    assert '<span class="state paused">paused</span>' in list_text
    text = await scene.page.shows("/schedule?stream=O&subject=O.paused", "It is paused since")
    assert "fires nothing until it is resumed" in text
    await scene.page.shows("/streams", ">1 paused</a>")


async def test_schedules_are_listed_soonest_first(scene: Scene) -> None:
    text = await scene.page.shows("/schedules?stream=O&filter=O.s.*", "O.s.1</bdi>")
    assert subjects(text) == ["O.s.1", "O.s.3", "O.s.5", "O.s.7", "O.s.9"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("kind=cron&filter=O.*", "O.cron"),
        ("target=O.morning", "O.cron"),
        ("state=waiting&filter=O.s.3", "O.s.3"),
    ],
)
async def test_schedules_are_searched(scene: Scene, query: str, found: str) -> None:
    assert subjects(await scene.page.shows(f"/schedules?stream=O&{query}", f"{found}</bdi>")) == [found]


async def test_a_search_without_a_result_says_so(scene: Scene) -> None:
    assert subjects(await scene.page.shows("/schedules?stream=O&state=ended", "No schedule is as you search.")) == []


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
    await scene.page.shows(f"/schedules?{query}", sentence, 'class="notice"')


async def test_pages_follow_each_other_by_cursor(scene: Scene) -> None:
    for number in range(60):
        at = in_seconds(100_000 + number)
        await scene.account.publish(f"O.many.{number}", {"Nats-Schedule": f"@at {at}", "Nats-Schedule-Target": "O.out"})
    await scene.page.shows("/schedules?stream=O&filter=O.many.59", "O.many.59</bdi>")
    first = await scene.page.shows("/schedules?stream=O&filter=O.many.*", "Next page", "O.many.49</bdi>")
    following = re.search(r'rel="next" href="([^"]+)"', first)
    assert following
    second = await scene.page.shows(unescape(following[1]), "O.many.59</bdi>")
    assert subjects(first) + subjects(second) == [f"O.many.{number}" for number in range(60)]
    assert "First page" in second
    assert "Next page" not in second


async def test_the_story_of_a_schedule(scene: Scene) -> None:
    await scene.page.shows(
        "/schedule?stream=O&subject=O.cron",
        "every weekday at 09:30 in Berlin",
        "Europe/Berlin",
        "09:30:00+0",
        scene.running.sidecar.instance,
        "No fire of it is stored.",
    )


async def test_changes_of_the_clock_stand_beside_the_fires_that_they_concern(scene: Scene) -> None:
    """The clock goes forward on the last Sunday of March: on one of these seven days."""
    cron = {"Nats-Schedule": "0 30 2 25-31 3 *", "Nats-Schedule-Time-Zone": "Europe/Berlin"}
    await scene.account.publish("O.spring", {**cron, "Nats-Schedule-Target": "O.out"})
    await scene.page.shows("/schedule?stream=O&subject=O.spring", ": the clock goes f")


async def test_the_policies_of_a_schedule(scene: Scene) -> None:
    headers = {"Nats-Schedule": "@every 9h", "Nats-Schedule-Target": "O.out"}
    policies = {"Nats-Schedule-X-Limit": "3", "Nats-Schedule-X-Note": "<b>ask Anna</b>"}
    await scene.account.publish("O.bounded", {**headers, **policies})
    await scene.page.shows("/schedule?stream=O&subject=O.bounded", "X-Limit</dt>", "&lt;b&gt;ask Anna&lt;/b&gt;")


async def test_a_fired_schedule_shows_when_and_how_late(scene: Scene) -> None:
    await scene.account.publish("O.every", {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "O.tick"})
    await scene.account.wait_for("O", "O.tick", 2)
    text = await scene.page.shows("/schedule?stream=O&subject=O.every", "O.tick</bdi>", 'data-key="fire-')
    assert re.search(r'class="late[^"]*">[0-9.,]+ m?s', text)
    await scene.page.shows("/fires?stream=O&filter=O.every", "O.every</bdi>")
    await scene.page.shows("/fires?filter=O.none", "Nothing like this has fired")
    await scene.page.shows("/", "O.every</bdi>", "Lateness in the last hour", "/min</span>")


async def test_the_reason_of_a_rejection(scene: Scene) -> None:
    await scene.page.shows("/schedule?stream=O&subject=O.invalid", "Rejected: it never fires", "@every soon")
    await scene.page.shows("/schedule?stream=O&subject=O.misnamed", "Nats-Schedul</bdi>")
    listed = await scene.page.shows("/rejected?stream=O", "O.invalid</bdi>", "O.misnamed</bdi>")
    assert subjects(listed) == ["O.invalid", "O.misnamed"]
    await scene.page.shows("/failures", "schedule rejected", "header misnamed", "O.invalid</bdi>")


async def test_an_instance_and_what_it_holds(scene: Scene) -> None:
    await scene.page.shows("/instances", scene.running.sidecar.instance, "64 shards", "(0–63)", "alive")
    await scene.page.shows("/streams", 'stream=O"', "emulated")


async def test_a_schedule_that_does_not_exist(scene: Scene) -> None:
    assert "has no schedule on" in await scene.page.get("/schedule?stream=O&subject=O.none", status=404)
    assert "No such page" in await scene.page.get("/nowhere", status=404)
    await scene.page.get("/schedule")


HOSTILE = [
    "O.h1.<script>alert(1)</script>",
    "O.h2.\"'&amp;",
    "O.h3.\u202eright-to-left",
    "O.h4./a/%2e%2e/?b#c",
    "O.h5.+;%",
    "O.h6." + "x" * 900,
]


@pytest.mark.parametrize("subject", HOSTILE)
async def test_a_hostile_subject_is_text_and_its_link_leads_to_it(scene: Scene, subject: str) -> None:
    pattern = {"Nats-Schedule": f"@at {in_seconds(5000)}", "Nats-Schedule-Target": subject.replace("O.h", "O.t", 1)}
    await scene.account.publish(subject, pattern)
    text = await scene.page.shows(f"/schedules?stream=O&filter={subject[:4]}.>", '<a class="subject')
    ((link, _),) = SUBJECT.findall(text)
    assert unescape(link) == address("/schedule", stream="O", subject=subject)
    story = await scene.page.shows(unescape(link), "Stored as")  # the sidecar found exactly this subject
    for page in (text, story, await scene.page.get("/")):
        assert "<script>alert" not in page
        assert "\u202e" not in page


async def test_all_is_well(scene: Scene) -> None:
    text = await scene.page.shows("/", "<title>All is well · Overview", "fired by 1 instance")
    assert 'href="/schedules?stream=O"' in text
    assert "O.s.1</bdi>" in text, "what fires next"
    assert "2 messages of stream O looked like a schedule and will never fire." in text


async def test_the_parts_that_change_are_the_same_as_on_the_page(scene: Scene) -> None:
    fragment = await scene.page.get("/", x_fragment="1")
    assert "<html" not in fragment
    assert 'id="live"' in fragment
    assert 'id="now"' in fragment
