"""Streams that cannot have the flag, and the end of schedules where a configuration excludes them later."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from nats_scheduler.jetstream.errors import ApiError
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.harness.account import Account, sidecar_on
from tests.harness.watched import Watched


@pytest.mark.parametrize(
    ("config", "code"),
    [
        pytest.param({"mirror": {"name": "{origin}"}, "subjects": None}, 10186, id="mirror"),
        pytest.param({"sources": [{"name": "{origin}"}]}, 10187, id="sources"),
        pytest.param({"discard": "new"}, 10052, id="discard-new"),
        pytest.param({"deny_purge": True}, 10052, id="deny-purge"),
        pytest.param({"deny_purge": True, "allow_rollup_hdrs": False}, 10052, id="deny-purge-without-rollup"),
        pytest.param({"pedantic": True}, 10052, id="pedantic"),
        pytest.param({"allow_msg_counter": True}, 10052, id="counter"),
    ],
)
async def test_a_stream_that_cannot_have_the_flag_is_refused_with_the_servers_code_and_left_as_it_is(
    watched: Watched, config: Mapping[str, Any], code: int
) -> None:
    origin = f"{watched.name}-origin"
    await watched.account.create(origin, allow_msg_schedules=False)
    await watched.create(**json.loads(json.dumps(config).replace("{origin}", origin)))
    line = await watched.line("stream_refused", code=code)
    assert line["log_level"] == "warning"
    assert (await watched.config())["metadata"] == {}
    assert watched.name not in watched.sidecar.sidecar.served


REFUSED_CHANGES: tuple[dict[str, Any], ...] = (
    {"retention": "workqueue"},
    {"storage": "file"},
    {"mirror": {"name": "other"}},
    {"deny_delete": False},
    {"deny_purge": False},
    {"max_consumers": 0},
    {"subjects": ["$JS.API.>"]},
)


async def test_updates_that_the_server_refuses_do_not_flag_their_streams(watched: Watched) -> None:
    names = [f"{watched.name}-{number}" for number in range(len(REFUSED_CHANGES))]
    for name, change in zip(names, REFUSED_CHANGES, strict=True):
        plain = {"deny_delete": True, "deny_purge": True, "max_consumers": 3}
        made = await watched.account.create(name, allow_msg_schedules=False, **plain)
        with pytest.raises(ApiError):
            await watched.account.api.update_stream({**made["config"], "allow_msg_schedules": True, **change})
    for name in names:
        await watched.line("flag_not_in_force", stream=name)
        assert await watched.entry(name) is None
    assert not set(names) & set(watched.sidecar.sidecar.served)


LATER_FAULTS = [
    pytest.param({"discard": "new", "allow_msg_schedules": True}, 10052, id="discard-new"),
    pytest.param({"discard": "new"}, 10052, id="discard-new-without-the-flag"),
    pytest.param({"deny_purge": True, "allow_rollup_hdrs": False}, 10052, id="deny-purge"),
    pytest.param({"pedantic": True, "allow_msg_schedules": True}, 10052, id="pedantic"),
    pytest.param({"allow_msg_counter": True, "allow_msg_schedules": True}, 10052, id="counter"),
    pytest.param({"allow_msg_schedules": "yes"}, 10025, id="json"),
]


@pytest.mark.clause("stream-stays-on")
@pytest.mark.parametrize(("change", "code"), LATER_FAULTS)
async def test_a_change_that_a_newer_server_refuses_is_told_and_the_schedules_go_on(
    watched: Watched, change: dict[str, Any], code: int
) -> None:
    """There nothing changes; here the older server has made the change, but the schedules go on as they do there."""
    await watched.create()
    await watched.sidecar.ready(watched.name)
    await watched.rewrite(**change)
    await watched.line("stream_refused", code=code)
    await watched.fires()
    assert not any(line["event"] == "stream_not_served" for line in watched.said)


@pytest.mark.clause("stream-stays-on")
async def test_schedules_go_on_after_a_restart_too(
    emulated_server: EmbeddedServer, account: Account, swept: str, said: list[dict[str, Any]]
) -> None:
    async with sidecar_on(emulated_server.url) as running:
        first = Watched(account, running, swept, emulated_server.url, said)
        await first.create()
        await first.sidecar.ready(swept)
        await first.update(discard="new")
        await first.line("stream_refused", code=10052)
    said.clear()
    async with sidecar_on(emulated_server.url) as running:
        watched = Watched(account, running, swept, emulated_server.url, said)
        await watched.fires()
        await watched.line("stream_refused", code=10052)


@pytest.mark.clause("stream-sources")
async def test_a_stream_that_is_given_sources_is_not_served_until_they_are_gone(watched: Watched) -> None:
    """A schedule that was copied from another stream would fire here as well as there."""
    origin = f"{watched.name}-origin"
    await watched.account.create(origin, allow_msg_schedules=False)
    await watched.create()
    await watched.sidecar.ready(watched.name)
    await watched.rewrite(sources=[{"name": origin}])
    await watched.line("stream_refused", code=10187)
    await watched.line("stream_not_served")
    await watched.schedule("s", f"{watched.name}.out")
    await watched.rewrite(description="without sources")
    assert len(await watched.account.wait_for(watched.name, f"{watched.name}.out")) == 1


@pytest.mark.clause("stream-sealed")
async def test_a_sealed_stream_is_served_no_longer_and_not_refused(watched: Watched) -> None:
    await watched.create()
    await watched.sidecar.ready(watched.name)
    await watched.update(sealed=True)
    await watched.line("stream_not_served", reason="the stream is sealed")
    assert not any(line["event"] == "stream_refused" for line in watched.said)


@pytest.mark.clause("stream-json")
@pytest.mark.parametrize("value", ["yes", 1, []])
async def test_a_flag_that_is_neither_true_nor_false_is_refused_and_flags_nothing(watched: Watched, value: Any) -> None:
    await watched.create(allow_msg_schedules=value)
    line = await watched.line("stream_refused", code=10025)
    assert line["description"].startswith("invalid JSON: json: cannot unmarshal ")
    assert (await watched.config())["metadata"] == {}
    assert watched.name not in watched.sidecar.sidecar.served
