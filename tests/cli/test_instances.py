"""The running sidecars as commands report them: who is alive, who owns and stands by what, and their settings.

It tests `runtime/fleet.py` too.
"""

from __future__ import annotations

import json
import re
from typing import Any

from nats_scheduler.engine.ownership.order import order_of
from nats_scheduler.engine.ownership.owners import GONE_AFTER_NS
from nats_scheduler.runtime.shared import SETTINGS, SHARED_SETTINGS, shared_settings
from nats_scheduler.schedule.instants import MINUTE
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.cli.prompt import NEVER, Prompt
from tests.harness.account import CLOCK, Account, sidecar_on
from tests.harness.waiting import eventually

KEY = f"$KV.nats_scheduler.{SETTINGS}"


async def listed(prompt: Prompt) -> dict[str, Any]:
    """Return the instances by their ids."""
    value = await prompt.document("instances")
    assert isinstance(parse_rfc3339(value["at"]), int)
    return {one["id"]: one for one in value["instances"]}


async def streams_listed(prompt: Prompt) -> dict[str, Any]:
    """Return the streams by their names."""
    return {one["stream"]: one for one in (await prompt.document("instances"))["streams"]}


async def test_each_is_listed_with_what_it_owns_and_stands_by(prompt: Prompt) -> None:
    began = CLOCK.now()
    async with sidecar_on(prompt.url) as one, sidecar_on(prompt.url) as other:
        ids = (one.sidecar.instance, other.sidecar.instance)
        await prompt.account.create("ORDERS")
        await one.ready("ORDERS")
        await other.ready("ORDERS")
        owner, standby = order_of("emulated.ORDERS", ids)

        async def are_listed() -> tuple[dict[str, Any], dict[str, Any]] | None:
            stream = (await streams_listed(prompt)).get("ORDERS", {})
            if (stream.get("owner"), stream.get("standbys")) != (owner, [standby]):
                return None
            found = await listed(prompt)
            since = [part["since"] for part in found[owner]["owns"]]
            return (stream, found) if since == [stream["owner_since"]] else None

        # It may change its owner while one of the two is listed.
        wanted = "the first in the order owns it, the other one stands by, and both lists say so"
        stream, found = await eventually(are_listed, describe=wanted)
        assert (stream["mode"], stream["lost_owner"], stream["lacks_standby"]) == ("emulated", None, False)
        assert stream["takeover_reason"] in ("first", "order", "not_ready"), "the first that has read it"
        assert [part["stream"] for part in found[owner]["owns"]] == ["ORDERS"]
        assert (found[owner]["stands_by"], found[standby]["owns"]) == ([], [])
        assert found[standby]["stands_by"] == [{"stream": "ORDERS", "mode": "emulated"}]
        for each in found.values():
            assert each["serves"] == ["emulated.ORDERS"]
            assert 0 <= each["age_nanoseconds"] < GONE_AFTER_NS
            since, heartbeat_at = parse_rfc3339(each["since"]), parse_rfc3339(each["last_heartbeat"])
            assert isinstance(since, int)
            assert isinstance(heartbeat_at, int)
            assert began - MINUTE < since <= heartbeat_at
        shown = (await prompt.shows("instances")).splitlines()
        assert [part.split() for part in re.split("  +", shown[0])] == [
            *(["instance"], ["state"], ["since", "(UTC)"], ["heartbeat"], ["owns"], ["stands", "by"], ["unable"]),
        ]
        rows = {line.split()[0]: line.split()[-3:] for line in shown[1:3]}
        assert rows == {owner: ["1", "0", "0"], standby: ["0", "1", "0"]}
        assert shown[3:5] == ["2 in all: 2 alive", ""]
        assert shown[5].split() == ["stream", "mode", "owner", "since", "(UTC)", "reason", "standbys"]
        assert (shown[6].split()[:3], shown[6].split()[-1]) == (["ORDERS", "emulated", owner], standby)
        assert "." not in shown[6].split()[3], "seconds"
        assert len(shown) == 7, "nothing is wrong"


async def test_one_that_is_silent_or_gone_is_told_from_one_that_lives(prompt: Prompt) -> None:
    assert "no sidecar lives on this account" in await prompt.shows("instances")
    async with sidecar_on(prompt.url):
        pass
    assert "no sidecar lives on this account" in await prompt.shows("instances"), "it left"
    account = prompt.account
    await account.publish("$KV.nats_scheduler.instance.abc", body=b'{"serves": null, "since": "soon"}')
    record = {"owner": "xyz", "since": "2026-03-01T12:00:00Z", "before": "abc", "reason": "idle"}
    await account.publish("$KV.nats_scheduler.owner.native.JOBS", body=json.dumps(record).encode())

    async def is_silent() -> dict[str, Any] | None:
        found = await listed(prompt)
        return found if found["abc"]["state"] == "silent" else None

    found = await eventually(is_silent, describe="who says nothing more is silent")
    assert (found["abc"]["since"], found["abc"]["serves"], found["abc"]["owns"]) == (None, None, [])
    unknown = dict.fromkeys(("since", "last_heartbeat", "age_nanoseconds", "serves"))
    about = {"since": "2026-03-01T12:00:00Z", "before": "abc", "reason": "idle"}
    owns = [{"stream": "JOBS", "mode": "native", **about}]
    assert found["xyz"] == {
        "id": "xyz",
        "state": "gone",
        **unknown,
        "unable": [],
        "owns": owns,
        "stands_by": [],
        "standbys": None,
    }
    jobs = (await streams_listed(prompt))["JOBS"]
    assert (jobs["owner"], jobs["lost_owner"], jobs["standbys"]) == (None, "xyz", [])
    shown = (await prompt.shows("instances")).splitlines()
    assert shown[-1] == "JOBS has no owner, since xyz is not alive: nothing fires its schedules"


async def test_a_stream_without_a_standby_is_shown_if_another_instance_could_be_it(prompt: Prompt) -> None:
    """The other one is forged: it is alive, and serves nothing."""
    async with sidecar_on(prompt.url) as running:
        await prompt.account.create("ORDERS")
        await running.ready("ORDERS")
        me = running.sidecar.instance

        async def is_shown() -> bool:
            await prompt.account.publish("$KV.nats_scheduler.instance.abc", body=b'{"serves": []}')
            line = f"ORDERS has no standby: if {me} goes, another instance has to read it first"
            return line in (await prompt.shows("instances")).splitlines()

        await eventually(is_shown, describe="it has no standby")


async def test_what_an_instance_cannot_serve_is_shown_with_the_reason(prompt: Prompt) -> None:
    async with sidecar_on(prompt.url):
        value = {"serves": ["emulated.JOBS"], "unable": {"emulated.JOBS": "may not\x1b[2J publish"}}
        await prompt.account.publish("$KV.nats_scheduler.instance.abc", body=json.dumps(value).encode())
        found = await listed(prompt)
        assert found["abc"]["unable"] == [{"stream": "JOBS", "reason": "may not\x1b[2J publish"}]
        shown = await prompt.shows("instances")
        assert "abc cannot serve JOBS: may not\\x1b[2J publish" in shown


# -- other commands --------------------------------------------------------------------------------------------


async def settings_published(account: Account, count: int) -> list[str]:
    """Wait until `count` sidecars have published their settings, and return their ids."""

    async def enough() -> list[str] | None:
        message = await account.api.message("KV_nats_scheduler", last_by_subj=KEY)
        found = sorted(json.loads(message.body or b"{}")) if message is not None else []
        return [*found, ""] if len(found) == count else None

    found: list[str] = await eventually(enough, describe=f"{count} sidecars publish their settings")
    return found[:-1]


async def test_a_sidecar_that_does_not_serve_a_stream_does_not_count_for_it(prompt: Prompt) -> None:
    async with sidecar_on(prompt.url):
        await prompt.account.create("NAMED", allow_msg_schedules=False)
        await settings_published(prompt.account, 1)
        env = {"NATS_SCHEDULER_PORTABLE_STREAMS": "NAMED"}
        document = await prompt.document("ls NAMED", env=env)
        problem = "no sidecar that is running serves the stream: nothing fires the schedules of NAMED"
        assert (document["streams"][0]["sidecars"], document["streams"][0]["problem"]) == (0, problem)
        warning = "portable_streams is set for this command, and the running sidecars have another value"
        assert document["warnings"] == [warning]
        assert f"nats-scheduler: warning: {warning}" in (await prompt.says("ls NAMED", env=env)).stderr


async def test_lists_go_by_the_settings_of_the_sidecar_that_runs(prompt: Prompt) -> None:
    restricted = {"allowed_targets": ("ORDERS=ORDERS.out",), "portable_streams": ("NAMED",)}
    async with sidecar_on(prompt.url, max_schedules=("*=9",), **restricted) as running:
        await prompt.account.create("ORDERS")
        await prompt.account.create("NAMED", allow_msg_schedules=False)
        await running.ready("ORDERS")
        await settings_published(prompt.account, 1)
        for name in ("out", "secret"):
            await prompt.schedule(f"ORDERS.s.{name}", NEVER, f"ORDERS.{name}")
        document = await prompt.document("ls")
        assert [one["stream"] for one in document["streams"]] == ["NAMED", "ORDERS"]
        assert [one["subject"] for one in document["schedules"]] == ["ORDERS.s.out"]
        assert [one["subject"] for one in document["invalid"]] == ["ORDERS.s.secret"]
        assert document["warnings"] == []
        assert [one["stream"] for one in (await prompt.document("stream ls"))["streams"]] == ["NAMED", "ORDERS"]
        async with sidecar_on(prompt.url, max_schedules=("*=2",), **restricted):
            await settings_published(prompt.account, 2)
            (warning,) = (await prompt.document("ls"))["warnings"]
            assert warning.startswith("the sidecars disagree about max_schedules: ")
            assert ("*=9" in warning, "*=2" in warning) == (True, True)


async def test_what_a_stranger_or_a_killed_sidecar_wrote_as_settings_is_told_or_removed(prompt: Prompt) -> None:
    account = prompt.account
    async with sidecar_on(prompt.url):
        await account.create("ORDERS")
        (name,) = await settings_published(account, 1)
        for value in ({"max_schedules": ["*=-5"]}, {"max_schedules": 7}, {"too_large": True}, 7):
            await account.publish(KEY, body=json.dumps({name: value}).encode())
            (warning,) = (await prompt.document("ls"))["warnings"]
            assert "publishes its settings in a form that this version cannot read" in warning
    await settings_published(account, 0)
    await account.publish(KEY, body=b'{"killed": {}}')
    async with sidecar_on(prompt.url):

        async def was_replaced() -> bool:
            return await settings_published(account, 1) != ["killed"]

        await eventually(was_replaced, describe="those of a killed sidecar are gone")


def test_no_secret_and_nothing_too_large_is_told() -> None:
    assert set(shared_settings(SidecarSettings())) == set(SHARED_SETTINGS)
    many = tuple(f"STREAM{number}=subject.{number}" for number in range(5_000))
    assert shared_settings(SidecarSettings.model_validate({"allowed_targets": many})) == {"too_large": True}
