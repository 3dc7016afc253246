"""The pages that change schedules, beside a real sidecar: what they ask for is done, and nothing else is."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from html import unescape

import pytest
import pytest_asyncio

from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.web.rendering import address
from tests.harness.servers import V2_11, V2_15, server_binary
from tests.service.controlling import Controlled, controlled_on, far
from tests.web.browsing import TOKEN, Browsing, browsing
from tests.web.test_guard import CONTROL_TOKEN, controllers

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

WHO = {"author": "Ada", "reason": "stocktaking"}
FIELD = re.compile(r'<(?:input|textarea)[^>]* name="([^"]+)"(?:[^>]* value="([^"]*)")?')


@dataclass
class Scene:
    """A sidecar that serves the stream `O`, and the page with a login of one who may change schedules."""

    controlled: Controlled
    page: Browsing

    async def form(self, path: str) -> list[tuple[str, str]]:
        """Open a page, and return the fields of its form as a browser would send them."""
        text = await self.page.get(path)
        return fields_of(text)

    async def send(self, path: str, fields: list[tuple[str, str]], status: int = 200, **typed: str) -> str:
        """Send a form with what is typed into it, and return the page that answers."""
        sent = [*((name, value) for name, value in fields if name not in typed), *typed.items()]
        data: dict[str, list[str]] = {}
        for name, value in sent:
            data.setdefault(name, []).append(value)
        answer = await self.page.client.post(path, data=data)
        assert answer.status_code == status, (answer.status_code, answer.text[-3000:])
        return answer.text.replace("<wbr>", "")

    async def change(self, do: str, subject: str = "O.s", status: int = 200, **typed: str) -> str:
        """Change a schedule as a person would."""
        fields = await self.form(address("/change", do=do, stream="O", subject=subject))
        return await self.send("/change", fields, status, **{**WHO, **typed})


def fields_of(text: str) -> list[tuple[str, str]]:
    """Return the fields of the forms of a page with their values, but for that of the sign-out."""
    return [(name, unescape(value)) for name, value in FIELD.findall(text) if name != "leave"]


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
