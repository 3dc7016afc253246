"""The pages about one sidecar: the verdict, lists with search and pages, each schedule.

It tests `web/content_page.py` and `web/charts.py` too.
"""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from html import unescape

import pytest
import pytest_asyncio

from nats_scheduler.runtime.embedded import EmbeddedServer
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
            made = Scene(account, running, page)
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


async def test_the_overview_says_that_all_is_well(scene: Scene) -> None:
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
        "filter=.s.&order=subject": ["O.s.1", "O.s.3", "O.s.5", "O.s.7", "O.s.9"],
        "filter=ron&target=morn": ["O.cron"],
    }
    for query, listed in found.items():
        assert subjects(await scene.page.shows(f"/schedules?stream=O&{query}", f"{listed[0]}</bdi>")) == listed
    await scene.page.shows("/schedules?stream=O&filter=s.", "<strong>5 found</strong> among ", "soonest first")


async def test_what_cannot_be_searched_is_said(scene: Scene) -> None:
    for query, sentence in (
        ("stream=O&filter=*..b", "a subject such as &#39;orders.&gt;&#39; is expected"),
        ("stream=NONE", "is not served"),
        ("stream=O&cursor=%ff", "the cursor of another page is expected"),
    ):
        await scene.page.shows(f"/schedules?{query}", sentence, 'class="notice"')
    assert "has no schedule on" in await scene.page.get("/schedule?stream=O&subject=O.none", status=404)
    assert "No such page" in await scene.page.get("/nowhere", status=404)
    await scene.page.get("/schedule")


async def test_a_fired_schedule_shows_when_and_how_late(scene: Scene) -> None:
    await scene.add("O.every", "@every 1s", "O.tick")
    await scene.account.wait_for("O", "O.tick", 2)
    text = await scene.page.shows("/schedule?stream=O&subject=O.every", "O.tick</bdi>", 'data-key="fire-')
    assert re.search(r'class="late[^"]*">[0-9.,]+ m?s', text)
    await scene.page.shows("/fires?stream=O&filter=O.every", "O.every</bdi>")
    await scene.page.shows("/", "O.every</bdi>", "Lateness in the last hour", "/min</span>")


async def test_a_rejection_is_shown_with_its_reason(scene: Scene) -> None:
    await scene.page.shows("/schedule?stream=O&subject=O.invalid", "Rejected: it never fires", "@every soon")
    await scene.page.shows("/schedule?stream=O&subject=O.misnamed", "Nats-Schedul is no header of a schedule")
    listed = await scene.page.shows("/rejected?stream=O", "O.invalid</bdi>", "O.misnamed</bdi>")
    assert subjects(listed) == ["O.invalid", "O.misnamed"]
    await scene.page.shows("/failures", "schedule rejected", "header misnamed", "O.invalid</bdi>")


async def test_what_is_sent_is_a_page_of_its_own(scene: Scene) -> None:
    headers = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "O.sent", "Kind": "<i>order\u202e</i>"}
    await scene.account.publish("O.sending", headers, b'{"order":{"id":"<b>"}}')
    text = await scene.page.shows("/content?stream=O&subject=O.sending", "What O.sending sends", "22 bytes", "JSON")
    assert "<bdi>    &#34;id&#34;: &#34;&lt;b&gt;&#34;</bdi>" in text
    assert re.search(r"<bdi>&lt;i&gt;order\\u202e&lt;/i&gt;</bdi></td><td[^>]*>yes</td>", text)
    [message] = await scene.account.wait_for("O", "O.sent")
    story = await scene.page.shows(
        "/schedule?stream=O&subject=O.sending", f'fire={message.sequence}&amp;fire_stream=O"'
    )
    assert 'href="/content?stream=O&amp;subject=O.sending"' in story
    assert "order" not in story, "the page of the schedule shows no body"
    fire = await scene.page.get(f"/content?stream=O&subject=O.sending&fire={message.sequence}&fire_stream=O")
    for shown in (f"Fire {message.sequence} of <bdi>O.sending", "O.sent</bdi>", "Nats-Scheduler</bdi>"):
        assert shown in fire


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
