"""The configuration for three teams in `docs/operating/security.md`, on a real server: each team has its own only."""

import json
import re
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from nats_scheduler.control.errors import ForbiddenError
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.load import load_settings
from tests.conftest import StartServer
from tests.harness.account import DRAIN_NS, Account, account_on, sidecar_with
from tests.harness.permissions import DOCUMENT, PASSWORD, Permission, allowing, permissions_of, url_of, without
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually
from tests.service.controlling import Refused, far, request
from tests.site.blocks import blocks_of

FILES = {one.file: one.text for one in blocks_of(DOCUMENT) if one.section.startswith("### Three teams") and one.file}
TEAMS = ("billing", "orders", "stock")
CONTROL = "nats_scheduler.control.v1"
SCHEDULER = f"user: scheduler, password: {PASSWORD}"


def configuration() -> str:
    """Return the configuration of a server with passwords, and with the permissions that the page names elsewhere."""
    both = {*permissions_of("2.11"), *permissions_of("portable"), *permissions_of("native")}
    targets = [Permission("publish", subject, ()) for subject in ("teams.>", "mail.billing")]
    limited = allowing([*without(without(both, "orders.>"), "jobs.>"), *targets])
    filled = re.sub(r"\$\w+_PASSWORD", PASSWORD, FILES["teams.conf"])
    assert SCHEDULER in filled
    return filled.replace(SCHEDULER, f"{SCHEDULER}, permissions: {limited}")


async def test_each_team_has_its_own_and_nothing_of_another(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11, config=configuration())
    file = tmp_path / "sidecar.json"
    file.write_text(FILES["sidecar.json"])
    settings = load_settings({}, {"XDG_CONFIG_HOME": str(tmp_path)}, file)
    scheduler = ConnectionSettings(servers=(url_of(server.url, "scheduler"),))
    settings = settings.model_copy(update={"connection": scheduler, "drain_timeout": DRAIN_NS})
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(account_on(url_of(server.url, "owner")))
        running = await stack.enter_async_context(sidecar_with(settings))
        await owner.create("MAIL", subjects=["mail.*"], allow_msg_schedules=False)
        await owner.create(**json.loads(FILES["teams.json"]))
        await running.ready("TEAMS")
        await running.healthy()
        for name, other in zip(TEAMS, (*TEAMS[1:], TEAMS[0]), strict=True):
            config = json.loads(FILES["billing.json"].replace("billing", name))
            await owner.api.call(f"CONSUMER.DURABLE.CREATE.TEAMS.{name}", {"stream_name": "TEAMS", "config": config})
            user = account_on(url_of(server.url, name), inbox_prefix=f"_INBOX.{name}")
            team = await stack.enter_async_context(user)
            received: list[str] = []

            def take(subject: bytes, *_: bytes, received: list[str] = received) -> None:
                received.append(subject.decode())

            team.connection.subscribe(f"deliver.{name}", take)
            own = {"stream": "TEAMS", "subject": f"teams.{name}.schedules.x", "headers": far(f"teams.{name}.due.x")}
            for endpoint, asked in (("add", own), ("fire", {"stream": "TEAMS", "subject": own["subject"]})):
                answer = await request(team.connection, endpoint, asked, by=name)
                assert isinstance(answer, dict), answer
            await eventually(partial(received.__eq__, [f"teams.{name}.due.x"]))
            for endpoint, body in (
                ("add", {**own, "headers": far(f"teams.{other}.due.x")}),
                ("add", {**own, "subject": f"teams.{other}.schedules.x"}),
                ("remove", {"stream": "TEAMS", "subject": f"teams.{other}.schedules.x"}),
                ("list", {"stream": "TEAMS", "filter": ">"}),
            ):
                refused = await request(team.connection, endpoint, body, by=name)
                assert isinstance(refused, Refused), (endpoint, body)
                assert (refused.code, refused.sentence.startswith(f"rule {name!r}, clause ")) == (403, True), refused
            await may_publish_nowhere_else(team, name)
        assert running.told("permission_denied") == []


async def may_publish_nowhere_else(team: Account, name: str) -> None:
    """Require that the server refuses all else to the user of a team."""
    for subject in (
        *(f"{CONTROL}.for.{other}.schedules.pause" for other in TEAMS if other != name),
        *(f"teams.{any_team}.{what}.x" for any_team in TEAMS for what in ("schedules", "due")),
        *(f"{CONTROL}.schedules.pause", f"{CONTROL}.for.{name}x.schedules.pause", "nats_scheduler.v1.schedules.list"),
        *("$SRV.INFO", "$JS.API.INFO", "$JS.API.STREAM.MSG.GET.TEAMS", f"$JS.API.CONSUMER.MSG.NEXT.TEAMS.{name}"),
        *(f"$JS.ACK.TEAMS.{name}.1.1.1.1.1", "prices.gold", "mail.billing"),
    ):
        with pytest.raises(ForbiddenError):
            await team.connection.request(subject, b"{}")
