"""The pages about one sidecar: the verdict, lists with search and pages, and the story of each schedule."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from html import unescape

import pytest
import pytest_asyncio

from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import HOUR
from nats_scheduler.web.rendering import address
from tests.harness.account import Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.servers import V2_11, server_binary
from tests.web.browsing import Browsing, browsing

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

HOURS = (5, 3, 9, 1, 7)
"""The hours after which the schedules `O.s.<hours>` fire."""
SUBJECT = re.compile(r'<a class="subject(?: long)?" href="([^"]+)"><bdi>([^<]*)</bdi>')
EVERY = "@every 9h"


@dataclass
class Scene:
    """A sidecar that serves the stream `O`, and the page."""

    url: str
    account: Account
    running: Running
    page: Browsing

    async def add(self, subject: str, pattern: str = EVERY, target: str = "O.out", **policies: str) -> None:
        """Publish a schedule."""
        more = {f"Nats-Schedule-{name.replace('_', '-')}": value for name, value in policies.items()}
        await self.account.publish(subject, {"Nats-Schedule": pattern, "Nats-Schedule-Target": target, **more})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """Five schedules of one fire, one by cron, one message that is rejected and one that is misnamed.

    All tests of the module share it: what one adds has a subject that no other test looks for.
    """
    server = EmbeddedServer(server_binary(V2_11), tmp_path_factory.mktemp("scene"))
    await server.start()
    try:
        async with sidecar_on(server.url) as running, account_on(server.url) as account, browsing(server.url) as page:
            await account.create("O", allow_msg_ttl=True)
            made = Scene(server.url, account, running, page)
            for hours in HOURS:
                await made.add(f"O.s.{hours}", f"@at {in_seconds(3600 * hours)}")
            await made.add("O.cron", "0 30 9 * * mon-fri", "O.morning", Time_Zone="Europe/Berlin")
            await made.add("O.invalid", "@every soon")
            await account.publish("O.misnamed", {"Nats-Schedul": "@every 1s"})
            await running.ready("O")
            await page.shows("/", "6 schedules in 1 stream", "served by 1 instance")
            yield made
    finally:
        await server.stop()


def subjects(text: str) -> list[str]:
    """Return the subjects of the schedules that a page links to, in its order."""
    return [unescape(found) for _, found in SUBJECT.findall(text)]


async def test_all_is_well(scene: Scene) -> None:
    text = await scene.page.shows("/", "<title>All is well · Overview", "served by 1 instance")
    assert 'href="/schedules?stream=O"' in text
    assert "O.s.1</bdi>" in text, "what fires next"
    assert "2 messages of stream O looked like a schedule and will never fire." in text
    await scene.page.shows("/instances", scene.running.sidecar.instance, "the first owner", "alive")
    await scene.page.shows("/streams", 'stream=O"', "emulated")
    fragment = await scene.page.get("/", x_fragment="1")
    assert ("<html" in fragment, 'id="live"' in fragment, 'id="now"' in fragment) == (False, True, True)


async def test_schedules_are_searched_and_listed_soonest_first(scene: Scene) -> None:
    found = {
        "filter=O.s.*": ["O.s.1", "O.s.3", "O.s.5", "O.s.7", "O.s.9"],
        "kind=cron&filter=O.*": ["O.cron"],
        "target=O.morning": ["O.cron"],
        "state=waiting&filter=O.s.3": ["O.s.3"],
    }
    for query, listed in found.items():
        assert subjects(await scene.page.shows(f"/schedules?stream=O&{query}", f"{listed[0]}</bdi>")) == listed
    assert subjects(await scene.page.shows("/schedules?stream=O&state=ended", "No schedule is as you search.")) == []
    await scene.page.shows("/schedules?stream=O&filter=reminder", "<code>*.reminder</code> finds more")


async def test_what_cannot_be_searched_is_said(scene: Scene) -> None:
    for query, sentence in (
        ("stream=O&filter=a..b", "a subject such as &#39;orders.&gt;&#39; is expected"),
        ("stream=O&state=sleeping", "state"),
        ("stream=NONE", "is not served"),
        ("stream=O&cursor=%ff", "the cursor of another page is expected"),
    ):
        await scene.page.shows(f"/schedules?{query}", sentence, 'class="notice"')
    assert "has no schedule on" in await scene.page.get("/schedule?stream=O&subject=O.none", status=404)
    assert "No such page" in await scene.page.get("/nowhere", status=404)
    await scene.page.get("/schedule")


async def test_pages_follow_each_other_by_cursor(scene: Scene) -> None:
    for number in range(60):
        await scene.add(f"O.many.{number}", f"@at {in_seconds(100_000 + number)}")
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
        *("every weekday at 09:30 in Berlin", "Europe/Berlin", "09:30:00+0"),
        *(scene.running.sidecar.instance, "No fire of it is stored."),
    )
    async with browsing(scene.url, ahead=2 * HOUR) as page:  # times are by the clock of the server
        await page.shows("/schedules?stream=O&filter=O.s.9", "in 8h")


async def test_what_is_special_about_a_schedule_is_on_its_page(scene: Scene) -> None:
    await scene.add("O.bounded", X_Limit="3", X_Note="<b>ask Anna</b>")
    await scene.page.shows("/schedule?stream=O&subject=O.bounded", "X-Limit</dt>", "&lt;b&gt;ask Anna&lt;/b&gt;")

    # The clock goes forward on the last Sunday of March: on one of these seven days.
    await scene.add("O.clock.spring", "0 30 2 25-31 3 *", Time_Zone="Europe/Berlin")
    await scene.page.shows("/schedule?stream=O&subject=O.clock.spring", ": the clock goes f")

    await scene.add("O.jittered", X_Jitter="1h")
    list_text = await scene.page.shows("/schedules?stream=O&filter=O.jittered", "O.jittered</bdi>")
    assert re.search(r">sent [^<]+, in (8|9)h", list_text)
    text = await scene.page.shows("/schedule?stream=O&subject=O.jittered", "Next:")
    assert re.search(r"</strong> UTC, sent at [-0-9 :.]+, in (8|9)h", text)

    await scene.account.publish("O.paused", {"Nats-Schedule-X-Paused": EVERY, "Nats-Schedule-Target": "O.out"})
    list_text = await scene.page.shows("/schedules?stream=O&state=paused", "O.paused</bdi>")
    assert '<span class="state paused">paused</span>' in list_text
    text = await scene.page.shows("/schedule?stream=O&subject=O.paused", "It is paused since")
    assert "fires nothing until it is resumed" in text
    await scene.page.shows("/streams", ">1 paused</a>")


async def test_a_fired_schedule_shows_when_and_how_late(scene: Scene) -> None:
    await scene.add("O.every", "@every 1s", "O.tick")
    await scene.account.wait_for("O", "O.tick", 2)
    text = await scene.page.shows("/schedule?stream=O&subject=O.every", "O.tick</bdi>", 'data-key="fire-')
    assert re.search(r'class="late[^"]*">[0-9.,]+ m?s', text)
    await scene.page.shows("/fires?stream=O&filter=O.every", "O.every</bdi>")
    await scene.page.shows("/fires?filter=O.none", "Nothing like this has fired")
    await scene.page.shows("/", "O.every</bdi>", "Lateness in the last hour", "/min</span>")


async def test_the_reason_of_a_rejection(scene: Scene) -> None:
    await scene.page.shows("/schedule?stream=O&subject=O.invalid", "Rejected: it never fires", "@every soon")
    await scene.page.shows("/schedule?stream=O&subject=O.misnamed", "Nats-Schedul is no header of a schedule")
    listed = await scene.page.shows("/rejected?stream=O", "O.invalid</bdi>", "O.misnamed</bdi>")
    assert subjects(listed) == ["O.invalid", "O.misnamed"]
    await scene.page.shows("/failures", "schedule rejected", "header misnamed", "O.invalid</bdi>")


HOSTILE = (
    *("O.h1.<script>alert(1)</script>", "O.h2.\"'&amp;", "O.h3.\u202eright-to-left"),
    *("O.h4./a/%2e%2e/?b#c", "O.h5.+;%", "O.h6." + "x" * 900),
)


async def test_a_hostile_subject_is_text_and_its_link_leads_to_it(scene: Scene) -> None:
    for subject in HOSTILE:
        await scene.add(subject, f"@at {in_seconds(5000)}", subject.replace("O.h", "O.t", 1))
        text = await scene.page.shows(f"/schedules?stream=O&filter={subject[:4]}.>", '<a class="subject')
        ((link, _),) = SUBJECT.findall(text)
        assert unescape(link) == address("/schedule", stream="O", subject=subject)
        story = await scene.page.shows(unescape(link), "Stored as")  # the sidecar found exactly this subject
        for page in (text, story, await scene.page.get("/")):
            assert "<script>alert" not in page
            assert "\u202e" not in page
