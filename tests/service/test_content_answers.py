"""`content.get`: the body and all headers of a schedule and of its fires, and of no other message."""

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from nats_scheduler.runtime.asked import ServerAlone
from nats_scheduler.service.micro import ServiceError
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.conftest import StartServer
from tests.harness.account import account_on, in_seconds, sidecar_on
from tests.harness.servers import V2_11, V2_15
from tests.harness.waiting import eventually
from tests.service.asking import Asked, ask, at


@pytest.fixture(params=[V2_11, V2_15])
async def asked(request: pytest.FixtureRequest, start_server: StartServer) -> AsyncIterator[Asked]:
    server = await start_server(request.param)
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        asked = Asked(account, running, request.param)
        await asked.create("S")
        yield asked


async def held(asked: Asked, subject: str) -> None:
    """Wait until the sidecar knows what is on a subject."""

    async def is_known() -> bool:
        return isinstance(
            await ask(asked.account.connection, "schedules.get", {"stream": "S", "subject": subject}), dict
        )

    await eventually(is_known, describe=f"{subject} is known")


async def test_a_schedule_and_its_fire_with_body_and_all_headers(asked: Asked) -> None:
    body = json.dumps({"order": 7, "note": "<b>tea\u202e</b>"}).encode()
    sequence = await asked.schedule("S.s", f"@at {in_seconds(1)}", body=body, Kind="order", Kind2="b")
    await held(asked, "S.s")
    one = {"stream": "S", "subject": "S.s"}
    found = await asked.answer("content.get", **one)
    assert (found["subject"], found["sequence"], found["body"]) == ("S.s", sequence, body.decode())
    assert (found["body_bytes"], found["body_base64"], found["body_complete"]) == (len(body), None, True)
    sent = [(header["name"], header["value"]) for header in found["headers"] if header["sent"]]
    assert sent == [("Kind", "order"), ("Kind2", "b")]
    assert {"Nats-Schedule", "Nats-Schedule-Target"} <= {header["name"] for header in found["headers"]}
    [message] = await asked.account.wait_for("S", "S.out")
    fire = await asked.answer("content.get", **one, fire=message.sequence)
    assert (fire["subject"], fire["sequence"], fire["body"]) == ("S.out", message.sequence, body.decode())
    assert {"Kind", "Kind2"} < {header["name"] for header in fire["headers"]}
    assert all(header["sent"] for header in fire["headers"])


async def test_no_other_message_is_shown(asked: Asked) -> None:
    """Neither an ordinary one, nor a fire of another schedule, nor one in a stream that has no fires of it."""
    await asked.account.create("PRIVATE", allow_msg_schedules=None)
    secret = await asked.account.publish("PRIVATE.s", {"Kind": "key"}, b"secret")
    plain = await asked.account.publish("S.plain", {"Kind": "key"}, b"secret")
    await asked.schedule("S.other", f"@at {in_seconds(0.5)}", body=b"secret")
    [fired] = await asked.account.wait_for("S", "S.out")
    await asked.schedule("S.s", at(1))
    await held(asked, "S.s")
    one: dict[str, Any] = {"stream": "S", "subject": "S.s"}
    requests = [
        {"stream": "S", "subject": "S.plain"},
        {"stream": "PRIVATE", "subject": "PRIVATE.s"},
        {**one, "fire": plain},
        {**one, "fire": fired.sequence},
        {**one, "fire": 10_000},
        {**one, "fire": secret, "fire_stream": "PRIVATE"},
        {**one, "fire": 1, "fire_stream": "NONE"},
        {"stream": "PRIVATE", "subject": "S.s", "fire": secret},
    ]
    for request in requests:
        refused = await asked.refusal("content.get", **request)
        assert (refused.code, "secret" in refused.sentence) == (404, False), (request, refused)
    for wrong in ({"fire": 0}, {"fire": 1, "fire_stream": "S.PURGE"}, {"fire": 2**63}, {"fire_stream": ">"}):
        assert (await asked.refusal("content.get", **one, **wrong)).code == 400, wrong


async def test_the_operator_can_switch_it_off(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with sidecar_on(server.url, show_contents=False) as running, account_on(server.url) as account:
        asked = Asked(account, running)
        await asked.create("S")
        await asked.schedule("S.s", at(1), body=b"secret")
        for request in ({"stream": "S", "subject": "S.s"}, {"stream": "S", "subject": "S.s", "fire": 1}, {}):
            refused = await asked.refusal("content.get", **request)
            assert (refused.code, "show_contents is off" in refused.sentence) == (403, True)
        mine = f"content.get.{running.sidecar.instance}"
        assert (await asked.refusal(mine, stream="S", subject="S.s")).code == 403


async def test_where_the_server_fires_alone_it_is_read_from_the_server(start_server: StartServer) -> None:
    server = await start_server(V2_15)
    async with account_on(server.url) as account:
        await account.create("S")
        headers = {"Nats-Schedule": at(1), "Nats-Schedule-Target": "S.out"}
        await account.publish("S.s", headers, b"tea")
        soon = {"Nats-Schedule": f"@at {in_seconds(0.3)}", "Nats-Schedule-Target": "S.out"}
        await account.publish("S.soon", soon, b"milk")
        [fired] = await account.wait_for("S", "S.out")
        settings = partial(SidecarSettings, connection=ConnectionSettings(servers=(server.url,)))
        alone = ServerAlone(account.connection, settings())
        async with alone.opened():
            assert (await alone.answer("content.get", {"stream": "S", "subject": "S.s"}))["body"] == "tea"
            fire = {"stream": "S", "subject": "S.soon", "fire": fired.sequence}
            assert (await alone.answer("content.get", fire))["body"] == "milk"
        closed = ServerAlone(account.connection, settings(show_contents=False))
        async with closed.opened():
            with pytest.raises(ServiceError, match="show_contents is off"):
                await closed.answer("content.get", {"stream": "S", "subject": "S.s"})
