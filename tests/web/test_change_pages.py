"""The pages that change schedules, beside a real sidecar: what they ask for is done, and nothing else is."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from html import unescape
from typing import Any

import httpx
import pytest
import pytest_asyncio

from nats_scheduler.observe.times import utc_text
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import HOUR, MINUTE
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.web.change_pages import MAX_SELECTED
from nats_scheduler.web.rendering import address
from tests.harness.account import CLOCK
from tests.harness.hiding import HIDES, HIDING, TARGET_HIDING_TTL
from tests.harness.servers import V2_11, V2_15, server_binary
from tests.service.controlling import Controlled, controlled_on, far
from tests.web.browsing import TOKEN, Browsing, browsing, fields_of
from tests.web.test_request_checks import CONTROL_TOKEN, controllers

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

NOTICE = re.compile(r'<p class="notice[^>]*>(.*)</p>')
WHO: dict[str, Any] = {"author": "Ada", "reason": "stocktaking"}


@dataclass
class Scene:
    """A sidecar that serves the stream `O`, and the page with a login of one who may change schedules."""

    controlled: Controlled
    page: Browsing
    result: str = ""
    """The address of the last result."""

    async def form(self, path: str) -> list[tuple[str, str]]:
        """Open a page, and return the fields of its form as a browser would send them."""
        text = await self.page.get(path)
        return fields_of(text)

    async def send(self, path: str, fields: list[tuple[str, str]], status: int = 200, **typed: Any) -> str:
        """Send a form with what is typed into it, and return the page that answers, or the one that it leads to."""
        sent = [*((name, value) for name, value in fields if name not in typed), *typed.items()]
        data: dict[str, list[str]] = {}
        for name, value in sent:
            data.setdefault(name, []).append(value)
        answer = await self.page.client.post(path, data=data)
        if answer.status_code == 303:
            self.result = answer.headers["location"]
            answer = await self.page.client.get(self.result)
        assert answer.status_code == status, (answer.status_code, NOTICE.findall(answer.text) or answer.text[-2000:])
        return answer.text.replace("<wbr>", "")

    async def change(self, do: str, subject: str = "O.s", status: int = 200, **typed: Any) -> str:
        """Change a schedule as a person would."""
        fields = await self.form(address("/change", do=do, stream="O", subject=subject))
        return await self.send("/change", fields, status, **{**WHO, **typed})


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[V2_11, V2_15])
async def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    server = EmbeddedServer(server_binary(request.param), tmp_path_factory.mktemp("control"))
    await server.start()
    try:
        async with (
            controlled_on(server, request.param) as controlled,
            browsing(server.url, token=TOKEN, controllers=controllers()) as page,
        ):
            await page.connected()
            entered = await page.client.post("/login", data={"token": CONTROL_TOKEN})
            assert entered.status_code == 303
            yield Scene(controlled, page)
    finally:
        await server.stop()


async def test_a_schedule_is_paused_and_resumed_by_whom_and_why(scene: Scene) -> None:
    added = await scene.controlled.change("add", headers=far())
    await scene.page.shows("/schedule?stream=O&subject=O.s", ">Pause</a>", "Next:")
    text = await scene.change("pause")
    assert "<strong>paused</strong>" in text
    stored = await scene.controlled.stored()
    assert stored.sequence > added["sequence"]
    assert b"Nats-Schedule-X-Paused" in stored.block
    assert "is paused already" in await scene.page.get(address("/change", do="pause", stream="O", subject="O.s"))
    await scene.page.shows("/schedule?stream=O&subject=O.s", ">Resume</a>")
    assert "<strong>resumed</strong>" in await scene.change("resume")


def at_any_time(text: str) -> str:
    """Return a page without what depends on when it was asked for: its clock, and how far fires are away."""
    return re.sub(r"<time>\d\d:\d\d:\d\d</time>|\bin \d+[dhms][\ddhms]*", "", text)


async def test_a_result_has_an_address_that_sends_nothing_again(scene: Scene) -> None:
    """It names the sequence of what was stored and the next fire, leads on, and is shown to nobody else."""
    await scene.controlled.change("add", "O.result", headers=far("O.result.out"))
    text = await scene.change("pause", "O.result")
    stored = await scene.controlled.stored("O.result")
    assert f"stored as sequence {stored.sequence}<" in text
    assert scene.result.startswith("/changed?result=")
    reloaded = [at_any_time(await scene.page.get(scene.result)) for _ in range(2)]
    assert reloaded == [at_any_time(text)] * 2, "a reload shows the same"
    assert (await scene.controlled.stored("O.result")).sequence == stored.sequence
    assert 'href="/schedule?stream=O&amp;subject=O.result">The schedule</a>' in text
    resumed = await scene.change("resume", "O.result")
    assert "Next fire: <strong" in resumed
    fired = await scene.change("fire", "O.result")
    fires = await scene.controlled.account.messages("O", "O.result.out")
    assert f"fire stored as sequence {fires[-1].sequence}<" in fired
    assert f"sequence {(await scene.controlled.stored('O.result')).sequence}<" not in fired
    record = "/changes?stream=O&filter=O.result"
    assert f'href="{record.replace("&", "&amp;")}">Record of changes</a>' in fired
    await scene.page.shows(record, "fired</td>", "resumed</td>", "paused</td>", "<bdi>stocktaking</bdi>")

    shown = scene.result
    kept = dict(scene.page.client.cookies)
    try:
        await scene.page.client.post("/login", data={"token": CONTROL_TOKEN})
        gone = await scene.page.get(shown, 410)
        assert "This result is not kept any more" in gone
        assert f'href="{record.replace("&", "&amp;")}">Record of changes</a>' in gone
        assert "stored as sequence" not in gone
        scene.page.client.cookies.clear()
        await scene.page.client.post("/login", data={"token": TOKEN})
        assert (await scene.page.client.get(shown)).status_code == 401, "nor to one who only reads"
    finally:
        scene.page.client.cookies = httpx.Cookies(kept)
    assert at_any_time(await scene.page.get(shown)) == at_any_time(fired)
    assert (await scene.page.client.post(shown)).status_code == 405


async def test_a_form_fires_once_however_often_it_is_sent(scene: Scene) -> None:
    await scene.controlled.change("add", "O.fire", headers=far("O.fired"))
    fields = await scene.form(address("/change", do="fire", stream="O", subject="O.fire"))
    assert "<strong>fired</strong>" in await scene.send("/change", fields, **WHO)
    assert "<strong>unchanged</strong>" in await scene.send("/change", fields, **WHO)
    assert await scene.controlled.account.number_on("O", "O.fired") == 1
    assert "<strong>removed</strong>" in await scene.change("remove", "O.fire")
    assert '<span class="alarm">refused</span>' in await scene.send("/change", fields, **WHO)


async def test_missed_fires_of_a_range_are_named_and_then_stored_once(scene: Scene) -> None:
    """Preview and result have the time of each; nothing is stored before, nor when the form is sent again."""
    first = CLOCK.now() // HOUR * HOUR - 2 * HOUR
    times = [first + number * MINUTE for number in range(4)]
    subject, target = "O.missed", "O.missed.out"
    await scene.controlled.change("add", subject, headers=minutely_since(first, target))
    await scene.controlled.change("pause", subject)
    path = address("/change", do="backfill", stream="O", subject=subject)
    shown = await scene.page.shows(f"/schedule?stream=O&subject={subject}", ">Store missed fires</a>", ">Resume</a>")
    assert f'href="{path.replace("&", "&amp;")}"' in shown
    fields = await scene.form(path)
    assert (dict(fields)["limit"], "one" in dict(fields)) == ("100", False)
    typed: dict[str, Any] = {"since": minute_of(times[0]), "until": minute_of(times[3])}
    preview = await scene.send("/change", fields, **typed, step="preview")
    assert "<strong>backfilled</strong>" in preview
    assert "<summary>4 fires</summary>" in preview
    assert [f">{utc_text(one)} UTC<" in preview for one in times] == [True] * 4
    assert {name: dict(fields_of(preview))[name] for name in typed} == typed
    assert "say who you are and why" in await scene.send("/change", fields_of(preview), 422, step="do")
    other: dict[str, Any] = {**typed, "until": minute_of(times[2]), "step": "do", **WHO}
    moved = await scene.send("/change", fields_of(preview), 422, **other)
    assert "look at what would be done, then do it" in moved
    assert "<summary>3 fires</summary>" in moved
    assert await scene.controlled.account.number_on("O", target) == 0
    done = await scene.send("/change", fields_of(preview), step="do", **WHO)
    assert "Store missed fires: 1 done, 0 refused" in done
    stored = await scene.controlled.account.messages("O", target)
    assert len(stored) == 4
    for at, one in zip(times, stored, strict=True):
        assert f'{utc_text(at)} UTC</span> <span class="soft">stored as sequence {one.sequence}<' in done
    again = await scene.send("/change", fields_of(preview), step="do", **WHO)
    assert ("<strong>unchanged</strong>" in again, "no fire is missing" in again) == (True, True)
    assert await scene.controlled.account.number_on("O", target) == 4
    await scene.page.shows(f"/changes?stream=O&filter={subject}", "backfilled</td>", "<bdi>stocktaking</bdi>")

    previewed = await scene.page.get(address("/change", do="backfill", stream="O", subject=subject, **typed))
    assert "no fire is missing" in previewed, "an address may have the range"
    changed = fields_of(previewed)
    await scene.controlled.change("edit", subject, body="another")
    conflict = await scene.send("/change", changed, step="do", **WHO)
    assert '<span class="alarm">refused</span>' in conflict


def minutely_since(first: int, target: str) -> list[list[str]]:
    """Return the headers of a schedule that a sidecar fires each minute, from an anchor (ns) on."""
    headers = {"": "@every 1m", "-Target": target, "-X-Anchor": format_rfc3339(first)}
    return [[f"X-Nats-Schedule{name}", value] for name, value in headers.items()]


def minute_of(at: int) -> str:
    """Return an instant (ns) as a person types it."""
    return format_rfc3339(at)[:16]


async def test_a_schedule_is_added_and_edited_with_what_the_server_would_say(scene: Scene) -> None:
    """A preview stores nothing, and shows the next fires or the refusal with its code; what is typed comes back."""
    new = await scene.form("/add?stream=O")
    typed = {"subject": "O.new", "pattern": "0 30 9 * * mon-fri", "target": "O.out", "body": "\r\nline\r\n", **WHO}
    wrong = await scene.send("/add", new, **{**typed, "pattern": "@every soon", "step": "preview"})
    assert "server code 10189" in wrong
    assert 'value="@every soon"' in wrong
    shown = await scene.send("/add", new, **{**typed, "step": "preview"})
    assert "It would be <strong>added</strong>" in shown
    assert "every weekday at 09:30" in shown
    assert shown.count(" UTC</span></li>") == 5
    assert await scene.controlled.last("O.new") is None
    refused = await scene.send("/add", new, 422, **{**typed, "step": "store", "reason": " "})
    assert "say why: it is recorded with the change" in refused
    assert "<strong>added</strong>" in await scene.send("/add", fields_of(refused), **{**typed, "step": "store"})
    stored = await scene.controlled.stored("O.new")
    assert (b"Nats-Schedule: 0 30 9 * * mon-fri" in stored.block, stored.body) == (True, b"\nline\n")

    fields = await scene.form("/edit?stream=O&subject=O.new")
    assert ("pattern", "0 30 9 * * mon-fri") in fields
    says_native = "The server itself fires the schedules of this stream"
    for path in ("/edit?stream=O&subject=O.new", "/change?do=pause&stream=O&subject=O.new"):
        assert (says_native in await scene.page.get(path)) == scene.controlled.is_native
    edit = {"ttl": "5m", "set": "Kind: order", "step": "store", **WHO}
    shown = await scene.send("/edit", fields, **{**edit, "step": "preview"})
    assert "<bdi>Nats-Schedule-TTL: 5m</bdi>" in shown
    assert "<bdi>Kind: order</bdi>" in shown
    assert "<strong>edited</strong>" in await scene.send("/edit", fields, **edit)
    stored = await scene.controlled.stored("O.new")
    assert all(line in stored.block for line in (b"Nats-Schedule-TTL: 5m", b"Kind: order", b"mon-fri"))
    assert stored.body == b"\nline\n", "the body that nobody touched stays"
    for do, more in (("add", {**typed, "source": HIDING["subjects"].source}), ("edit", {})):
        form = new if do == "add" else await scene.form("/edit?stream=O&subject=O.new")
        hiding = {**more, "target": HIDING["subjects"].target if do == "add" else TARGET_HIDING_TTL, "step": "store"}
        shown = unescape(await scene.send(f"/{do}", form, 422, **WHO | hiding))
        assert re.search(f"Nats-Schedule-Target{HIDES}", shown), shown
    part = await scene.page.client.post("/edit", data={**dict(fields), "step": "preview"}, headers={"X-Fragment": "1"})
    assert part.text.startswith('<div id="preview"'), "a script gets the preview alone"


async def test_of_two_who_edit_one_schedule_nobody_loses_words(scene: Scene) -> None:
    await scene.controlled.change("add", "O.two", headers=far("O.out"))
    ada, bob = [await scene.form("/edit?stream=O&subject=O.two") for _ in range(2)]
    assert "<strong>edited</strong>" in await scene.send("/edit", bob, target="O.bob", ttl="1m", step="store", **WHO)
    await scene.page.shows("/schedule?stream=O&subject=O.two", "Who changed it", "<bdi>stocktaking</bdi>")
    conflict = await scene.send("/edit", ada, 409, target="O.ada", step="store", **WHO)
    assert "It was edited by <bdi>Ada</bdi>: <bdi>stocktaking</bdi>." in conflict
    assert "Nothing is stored" in conflict
    assert '<input name="target" value="O.ada"' in conflict
    assert 'There now: <bdi class="code">O.bob</bdi>' in conflict
    assert '<input name="ttl" value="1m"' in conflict, "a field in which nothing was typed has what is stored now"
    again = [*fields_of(conflict)]
    assert "<strong>edited</strong>" in await scene.send("/edit", again, step="store", **WHO)
    block = (await scene.controlled.stored("O.two")).block
    assert b"Nats-Schedule-Target: O.ada" in block
    assert b"Nats-Schedule-TTL: 1m" in block

    new = await scene.form("/add?stream=O&subject=O.two")
    typed = {"pattern": "@every 1h", "target": "O.new", "step": "store", **WHO}
    taken = await scene.send("/add", new, 409, **typed)
    assert 'There now: <bdi class="code">O.ada</bdi>' in taken
    assert "<strong>edited</strong>" in await scene.send("/add", fields_of(taken), **{**typed, "replace": "1"})
    assert b"@every 1h" in (await scene.controlled.stored("O.two")).block


async def test_all_that_a_search_finds_is_changed_after_it_is_listed(scene: Scene) -> None:
    """What another client changes in between is refused, and so is what cannot be done; the rest is done."""
    for name in ("a", "b", "c", "d"):
        await scene.controlled.change("add", f"O.many.{name}", headers=far("O.out"))
    await scene.controlled.change("pause", "O.many.a")
    path = address("/change", do="pause", stream="O", filter="O.many.*")
    await scene.page.shows(
        "/schedules?stream=O&filter=O.many.*",
        f'"{path.replace("&", "&amp;")}"',
        ">Add a schedule<",
        "do=resume&amp;stream=O&amp;filter=O.many.%2A&amp;state=paused",
    )
    listed = await scene.page.shows(path, "O.many.d</bdi>", "is paused already")
    fields = fields_of(listed)
    assert [value.split()[1] for name, value in fields if name == "one"] == ["O.many.b", "O.many.c", "O.many.d"]
    await scene.controlled.change("edit", "O.many.c", set=[["Kind", "order"]])
    left = [one for one in fields if "O.many.d" not in one[1]]
    done = await scene.send("/change", left, **WHO)
    assert "Pause: 1 done, 1 refused" in done
    assert "and not" in done, "it has another sequence"
    paused = {name: b"X-Paused" in (await scene.controlled.stored(f"O.many.{name}")).block for name in "bcd"}
    assert paused == {"b": True, "c": False, "d": False}
    edit = await scene.form(address("/change", do="edit", stream="O", filter="O.many.*"))
    edit = [one for one in edit if one[0] != "one" or one[1].endswith((".c", ".d"))]
    typed = {"set": "Nats-Schedule-Target: O.moved", "unset": "Kind", **WHO}
    looked = await scene.send("/change", edit, 422, **typed)
    assert "look at what would be done, then do it" in looked
    assert "<strong>edited</strong>" in looked
    assert "Edit: 2 done, 0 refused" in await scene.send("/change", fields_of(looked), **typed)
    for name in "cd":
        block = (await scene.controlled.stored(f"O.many.{name}")).block
        assert (b"Nats-Schedule-Target: O.moved" in block, b"Kind" in block) == (True, False)
    assert "no schedule is selected" in await scene.send(
        "/change", [one for one in fields if one[0] != "one"], 422, **WHO
    )
    assert "No schedule is as you search" in await scene.page.get("/change?do=pause&stream=O&filter=O.none.*")


async def test_those_that_are_selected_in_the_list_are_changed_as_one_is(scene: Scene) -> None:
    """The list leads to the preview, which is confirmed; the form is for its login only."""
    for name in ("a", "b", "c"):
        await scene.controlled.change("add", f"O.chosen.{name}", headers=far("O.out"))
    path = "/schedules?stream=O&filter=chosen&order=subject"
    text = await scene.page.shows(path, "<strong>3 found</strong>", "Pause selected", "Fire now selected")
    fields = fields_of(text)
    boxes = re.findall(r'<input type="checkbox" form="chosen" name="one" value="([^"]+)"', text)
    assert [box.split()[1] for box in boxes] == [f"O.chosen.{name}" for name in "abc"]
    form = [(name, value) for name, value in fields if name in ("proof", "step", "chosen", "stream", "order")]
    form = [*dict(form).items(), ("filter", "chosen"), ("one", boxes[0]), ("one", boxes[2])]
    before = (await scene.controlled.stored("O.chosen.a")).sequence
    preview = await scene.send("/change", form, do="pause")
    assert (await scene.controlled.stored("O.chosen.a")).sequence == before, "a preview changes nothing"
    assert "O.chosen.b" not in preview
    assert 'href="/schedules?stream=O&amp;filter=chosen&amp;order=subject"' in preview
    assert "say who you are and why" in await scene.send("/change", fields_of(preview), 422, step="do")
    assert "Pause: 2 done, 0 refused" in await scene.send("/change", fields_of(preview), **WHO)
    paused = {name: b"X-Paused" in (await scene.controlled.stored(f"O.chosen.{name}")).block for name in "abc"}
    assert paused == {"a": True, "b": False, "c": True}
    none = [one for one in form if one[0] != "one"]
    assert "no schedule is selected" in await scene.send("/change", none, 422, do="remove")
    forged = [(name, "0" * 64 if name == "proof" else value) for name, value in form]
    assert "made for another login" in await scene.send("/change", forged, 403, do="remove")


async def test_the_proof_of_a_form_is_in_no_part_that_is_compressed(scene: Scene) -> None:
    text = await scene.page.get("/schedules?stream=O")
    proof = dict(fields_of(text))["proof"]
    assert proof
    for path in ("/schedules?stream=O", "/"):
        assert proof not in await scene.page.get(path, X_Fragment="1")


@pytest.mark.parametrize("scene", [V2_11], indirect=True)
async def test_a_page_changes_so_many_and_says_that_there_are_more(scene: Scene) -> None:
    for number in range(MAX_SELECTED + 1):
        await scene.controlled.account.publish(f"O.all.{number}", dict(far("O.out")))
    text = await scene.page.shows("/change?do=remove&stream=O&filter=O.all.*", "There are more schedules than these")
    fields = fields_of(text)
    assert len([name for name, _value in fields if name == "one"]) == MAX_SELECTED
    following = re.search(r'<a rel="next" href="([^"]+)"', text)
    assert following
    left = fields_of(await scene.page.get(unescape(following[1])))
    assert len({value for name, value in fields + left if name == "one"}) == MAX_SELECTED + 1


async def test_a_note_is_shown_before_an_edit_is_made(scene: Scene) -> None:
    await scene.controlled.change("add", "O.note", headers=far("O.out"))
    await scene.controlled.change("pause", "O.note")
    fields = [one for one in await scene.form("/edit?stream=O&subject=O.note") if one[0] != "notes"]
    edit = {"target": "O.noted", "step": "store", **WHO}
    asked = await scene.send("/edit", fields, 422, **edit)
    assert "read the notes of the preview, then store it" in asked
    assert '<p class="notice">it is paused, and stays so</p>' in asked
    assert b"O.out" in (await scene.controlled.stored("O.note")).block
    assert "<strong>edited</strong>" in await scene.send("/edit", fields_of(asked), **edit)
    assert b"O.noted" in (await scene.controlled.stored("O.note")).block
    missing = await scene.page.get("/edit?stream=O&subject=O.none", 404)
    assert "has no schedule on" in missing


async def test_characters_that_are_not_shown_come_back_as_they_are(scene: Scene) -> None:
    subject, body = 'O.odd.\u202e<b>"&amp;', "\n one\n\ttwo\n"
    new = await scene.form("/add?stream=O")
    typed = {"subject": subject, "pattern": "0 0 9 * * *", "target": "O.out", "body": body, "step": "store"}
    typed["policies"] = "X-Note: first\nX-Owner: second"
    refused = await scene.send("/add", new, 422, **typed, reason="why")
    assert "It fires <strong>every day at 09:00" in refused
    assert dict(fields_of(refused))["body"] == body
    await scene.send("/add", fields_of(refused), step="store", **WHO)
    edit = await scene.form(address("/edit", stream="O", subject=subject))
    await scene.send("/edit", edit, **{**WHO, "target": "O.other", "step": "store"})
    stored = await scene.controlled.stored(subject)
    assert stored.body == body.encode()
    assert all(one in stored.block for one in (b"-X-Note: first", b"-X-Owner: second", b"-Target: O.other"))
    assert "<strong>removed</strong>" in await scene.change("remove", subject)
