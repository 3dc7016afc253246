"""The pages that change schedules, beside a real sidecar: what they ask for is done, and nothing else is."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from html import unescape
from typing import Any

import httpx
import pytest
import pytest_asyncio

from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.web.rendering import address
from tests.harness.hiding import HIDES, TARGET_HIDING_TTL
from tests.harness.servers import V2_15, server_binary
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
        return fields_of(await self.page.shows(path, 'name="proof"'))  # none while its connection is made again

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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    server = EmbeddedServer(server_binary(V2_15), tmp_path_factory.mktemp("control"))
    await server.start()
    try:
        async with (
            controlled_on(server, V2_15) as controlled,
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


async def test_a_result_has_an_address_that_sends_nothing_again(scene: Scene) -> None:
    """It names the sequence of what was stored, and is shown to nobody else."""
    await scene.controlled.change("add", "O.result", headers=far("O.result.out"))
    text = await scene.change("pause", "O.result")
    stored = await scene.controlled.stored("O.result")
    assert f"stored as sequence {stored.sequence}<" in text
    assert scene.result.startswith("/changed?result=")
    assert f"stored as sequence {stored.sequence}<" in await scene.page.get(scene.result), "a reload shows the same"
    assert (await scene.controlled.stored("O.result")).sequence == stored.sequence
    record = "/changes?stream=O&filter=O.result"
    await scene.page.shows(record, "paused</td>", "<bdi>stocktaking</bdi>")
    kept = dict(scene.page.client.cookies)
    try:
        await scene.page.client.post("/login", data={"token": CONTROL_TOKEN})
        gone = await scene.page.get(scene.result, 410)
        assert "This result is not kept any more" in gone
        assert "stored as sequence" not in gone
    finally:
        scene.page.client.cookies = httpx.Cookies(kept)


async def test_a_form_fires_once_however_often_it_is_sent(scene: Scene) -> None:
    await scene.controlled.change("add", "O.fire", headers=far("O.fired"))
    fields = await scene.form(address("/change", do="fire", stream="O", subject="O.fire"))
    assert "<strong>fired</strong>" in await scene.send("/change", fields, **WHO)
    assert "<strong>unchanged</strong>" in await scene.send("/change", fields, **WHO)
    assert await scene.controlled.account.number_on("O", "O.fired") == 1
    assert "<strong>removed</strong>" in await scene.change("remove", "O.fire")
    assert '<span class="alarm">refused</span>' in await scene.send("/change", fields, **WHO)


async def test_a_schedule_is_added_and_edited_with_what_the_server_says(scene: Scene) -> None:
    """A preview stores nothing, and shows the next fires or the refusal with its code; what is typed comes back."""
    new = await scene.form("/add?stream=O")
    typed = {"subject": "O.new", "pattern": "0 30 9 * * mon-fri", "target": "O.out", "body": "\r\nline\r\n", **WHO}
    wrong = await scene.send("/add", new, **{**typed, "pattern": "@every soon", "step": "preview"})
    assert "server code 10189" in wrong
    assert 'value="@every soon"' in wrong
    shown = await scene.send("/add", new, **{**typed, "step": "preview"})
    assert "It would be <strong>added</strong>" in shown
    assert "every weekday at 09:30" in shown
    assert await scene.controlled.last("O.new") is None
    refused = await scene.send("/add", new, 422, **{**typed, "step": "store", "reason": " "})
    assert "say why: it is recorded with the change" in refused
    assert "<strong>added</strong>" in await scene.send("/add", fields_of(refused), **{**typed, "step": "store"})
    stored = await scene.controlled.stored("O.new")
    assert (b"Nats-Schedule: 0 30 9 * * mon-fri" in stored.block, stored.body) == (True, b"\nline\n")

    fields = await scene.form("/edit?stream=O&subject=O.new")
    assert "The server itself fires the schedules of this stream" in await scene.page.get(
        "/edit?stream=O&subject=O.new"
    )
    edit = {"ttl": "5m", "set": "Kind: order", "step": "store", **WHO}
    assert "<strong>edited</strong>" in await scene.send("/edit", fields, **edit)
    stored = await scene.controlled.stored("O.new")
    assert all(line in stored.block for line in (b"Nats-Schedule-TTL: 5m", b"Kind: order", b"mon-fri"))
    assert stored.body == b"\nline\n", "the body that nobody touched stays"
    hiding = {"target": TARGET_HIDING_TTL, "step": "store", **WHO}
    shown = unescape(await scene.send("/edit", await scene.form("/edit?stream=O&subject=O.new"), 422, **hiding))
    assert re.search(f"Nats-Schedule-Target{HIDES}", shown), shown


async def test_of_two_who_edit_one_schedule_nobody_loses_words(scene: Scene) -> None:
    await scene.controlled.change("add", "O.two", headers=far("O.out"))
    ada, bob = [await scene.form("/edit?stream=O&subject=O.two") for _ in range(2)]
    assert "<strong>edited</strong>" in await scene.send("/edit", bob, target="O.bob", ttl="1m", step="store", **WHO)
    await scene.page.shows("/schedule?stream=O&subject=O.two", "Who changed it", "<bdi>stocktaking</bdi>")
    conflict = await scene.send("/edit", ada, 409, target="O.ada", step="store", **WHO)
    assert "It was edited by <bdi>Ada</bdi>: <bdi>stocktaking</bdi>." in conflict
    assert '<input name="target" value="O.ada"' in conflict
    assert 'There now: <bdi class="code">O.bob</bdi>' in conflict
    assert '<input name="ttl" value="1m"' in conflict, "a field in which nothing was typed has what is stored now"
    assert "<strong>edited</strong>" in await scene.send("/edit", fields_of(conflict), step="store", **WHO)
    block = (await scene.controlled.stored("O.two")).block
    assert b"Nats-Schedule-Target: O.ada" in block
    assert b"Nats-Schedule-TTL: 1m" in block


async def test_all_that_a_search_finds_is_changed_after_it_is_listed(scene: Scene) -> None:
    """What another client changes in between is refused, and so is what cannot be done; the rest is done."""
    for name in ("a", "b", "c", "d"):
        await scene.controlled.change("add", f"O.many.{name}", headers=far("O.out"))
    await scene.controlled.change("pause", "O.many.a")
    path = address("/change", do="pause", stream="O", filter="O.many.*")
    await scene.page.shows("/schedules?stream=O&filter=O.many.*", f'"{path.replace("&", "&amp;")}"', ">Add a schedule<")
    listed = await scene.page.shows(path, "O.many.d</bdi>", "is paused already")
    fields = fields_of(listed)
    assert [value.split()[1] for name, value in fields if name == "one"] == ["O.many.b", "O.many.c", "O.many.d"]
    await scene.controlled.change("edit", "O.many.c", set=[["Kind", "order"]])
    left = [one for one in fields if "O.many.d" not in one[1]]
    done = await scene.send("/change", left, **WHO)
    assert "Pause: 1 done, 1 refused" in done
    paused = {name: b"X-Paused" in (await scene.controlled.stored(f"O.many.{name}")).block for name in "bcd"}
    assert paused == {"b": True, "c": False, "d": False}
    edit = await scene.form(address("/change", do="edit", stream="O", filter="O.many.*"))
    edit = [one for one in edit if one[0] != "one" or one[1].endswith((".c", ".d"))]
    typed = {"set": "Nats-Schedule-Target: O.moved", **WHO}
    looked = await scene.send("/change", edit, 422, **typed)
    assert "look at what would be done, then do it" in looked
    assert "Edit: 2 done, 0 refused" in await scene.send("/change", fields_of(looked), **typed)
    none = [one for one in fields if one[0] != "one"]
    assert "no schedule is selected" in await scene.send("/change", none, 422, **WHO)


async def test_the_proof_of_a_form_is_in_no_part_that_is_compressed(scene: Scene) -> None:
    text = await scene.page.get("/schedules?stream=O")
    proof = dict(fields_of(text))["proof"]
    assert proof
    for path in ("/schedules?stream=O", "/"):
        assert proof not in await scene.page.get(path, X_Fragment="1")


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
