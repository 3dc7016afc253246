"""Whatever headers a team asks for within its rule (`service.rules`), its schedules fire on its own targets only.

A server and a sidecar find the headers of a schedule in their own ways. What is drawn here is refused, or is read by
whatever fires it as the rule has read it.
"""

from random import Random
from typing import Any

import pytest

from nats_scheduler.settings.control_rules import ControlRule
from tests.conftest import StartServer
from tests.harness.account import account_on, sidecar_on
from tests.harness.seeds import draws, generator
from tests.harness.servers import V2_11, V2_15
from tests.harness.waiting import eventually
from tests.service.controlling import far, request

RULE = ControlRule(
    name="a",
    streams=("T",),
    subjects=("t.a.schedules.>",),
    targets=("t.a.due.*",),
    targets_elsewhere=("mail.a",),
    sources=("t.prices.*",),
    changes_per_minute=60_000,
)
REQUESTS = 60
VICTIM = "t.b.schedules.s"
KEPT = {"t.b.due": 1, VICTIM: 1, "t.prices.gold": 1}
"""The messages of others."""
PARTS = ("", "-Target", "-Source", "-Rollup", "-TTL", "-Time-Zone", "-X-Target", "-X-Missed", "-Next", "r", "-Junk")
NAMES = [f"{prefix}Nats-Schedule{part}" for prefix in ("", "X-") for part in PARTS]
NAMES += ["Nats-Rollup", "Nats-TTL", "Nats-Msg-Id", "Nats-Expected-Stream", "Nats-Trace-Dest", "Nats-Marker-Reason"]
VALUES = ["t.b.due", VICTIM, "mail.b", "t.a.due.x", "mail.a", "t.prices.gold", "sub", "all", "purge", "once", "1h", ""]
VALUES += ["@at 2020-01-01T00:00:00Z", "UTC", "$JS.API.STREAM.PURGE.T", "t.a.due.>", "T"]


def drawn_header(draw: Random) -> list[str]:
    """Draw a header: one of a schedule, one that hides another by its value, or one of the publisher's own."""
    name, value = draw.choice(NAMES), draw.choice(VALUES)
    hidden = draw.choice(NAMES)
    form = draw.randrange(8)
    if form == 0:
        return ["A", draw.choice([f"{hidden}{hidden}", f"{hidden}: {value}", f"{hidden}:", hidden])]
    if form == 1:
        return [draw.choice([name.lower(), name.upper(), f"A-{name}", f"{name}-"]), value]
    if form == 2:
        return [name, draw.choice([f"{value} ", f"\t{value}", f"{value}\0", f"{value}é"])]
    return ["Greeting", value] if form == 3 else [name, value]


def drawn_headers(draw: Random, number: int) -> list[list[str]]:
    """Draw the headers of a schedule that fires at once, with some others between, before and behind its own."""
    prefix = draw.choice(["", "X-"])
    place = ["-X-Target", "mail.a"] if prefix and draw.randrange(4) == 0 else ["-Target", f"t.a.due.{number}"]
    headers = [[f"{prefix}Nats-Schedule", "@at 2020-01-01T00:00:00Z"], [f"{prefix}Nats-Schedule{place[0]}", place[1]]]
    if draw.randrange(8) == 0:
        headers.pop(draw.randrange(2))
    if draw.randrange(4) == 0:
        spelling = f"{draw.choice(['', 'X-'])}Nats-Schedule"
        cancel, twin = {"r": VICTIM, "-Next": "purge"}, {"": "@at 2020-01-01T00:00:00Z", "-Target": "t.b.due"}
        pair = [[f"{spelling}{part}", value] for part, value in draw.choice([cancel, twin]).items()]
        headers = draw.choice([[*headers, *pair], [*pair, *headers]])
    for _ in range(draw.randrange(4)):
        headers.insert(draw.randrange(len(headers) + 1), drawn_header(draw))
    return headers


@pytest.mark.parametrize("version", [V2_11, V2_15])
async def test_a_schedule_of_a_team_fires_on_its_own_targets_alone(start_server: StartServer, version: str) -> None:
    draw, accepted = generator(__name__), 0
    server = await start_server(version)
    async with (
        sidecar_on(server.url, control_rules=(RULE,), allowed_targets_elsewhere=("T=mail.>",)) as running,
        account_on(server.url) as owner,
    ):
        await owner.create("MAIL", subjects=["mail.>"], allow_msg_schedules=False, allow_rollup_hdrs=True)
        await owner.create("T", subjects=["t.>"], allow_msg_ttl=True, allow_rollup_hdrs=True)
        await running.ready("T")
        await running.healthy()
        for subject in ("t.b.due", "t.prices.gold"):
            await owner.publish(subject)
        await owner.publish(VICTIM, dict(far("t.b.due")))
        for number in range(draws(REQUESTS)):
            body: dict[str, Any] = {"stream": "T", "subject": f"t.a.schedules.{number}"}
            headers = drawn_headers(draw, number)
            if draw.randrange(3) == 0:
                added = await request(owner.connection, "add", {**body, "headers": far("t.a.due.x")}, by="a")
                assert isinstance(added, dict), added
                answer = await request(owner.connection, "edit", {**body, "set": headers}, by="a")
                await request(owner.connection, "fire", body, by="a")
                await request(owner.connection, "remove", body, by="a")
            else:
                answer = await request(owner.connection, "add", {**body, "headers": headers}, by="a")
            accepted += isinstance(answer, dict)
        assert accepted > REQUESTS // 8

        async def have_fired() -> bool:
            return await owner.number_on("T", "t.a.schedules.>") == 0

        await eventually(have_fired, describe="all that is stored fires once, and is gone")
        for stream, kept, own in (("T", KEPT, "t.a.due."), ("MAIL", {}, "mail.a")):
            found = {subject: number async for subject, number in owner.api.subject_counts(stream, ">")}
            assert {one: number for one, number in found.items() if not one.startswith(own)} == kept
