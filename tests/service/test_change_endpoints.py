"""The endpoints that change schedules on real servers: what they do, what they refuse, and that nothing is lost."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.control.errors import DeadlineError, NoAnswerError, SchedulerError, UnknownOutcomeError
from nats_scheduler.message.headers import header_value
from nats_scheduler.runtime.sidecar import SENDING_STANDSTILL_LIMIT_NS
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.service.change_endpoints import CODES, ChangeRequest, FireRequest, refusal_of
from nats_scheduler.service.micro import OUTCOME
from tests.conftest import StartServer
from tests.harness.account import CLOCK, account_on, sidecar_on
from tests.harness.processes import sidecar
from tests.harness.servers import V2_11, V2_15
from tests.harness.waiting import eventually, instant_reached
from tests.service.controlling import ENDPOINTS, Controlled, Refused, controlled_on, far, request


@pytest.fixture(params=[V2_11, V2_15])
async def controlled(request: pytest.FixtureRequest, start_server: StartServer) -> AsyncIterator[Controlled]:
    async with controlled_on(await start_server(request.param), request.param) as controlled:
        yield controlled


async def test_a_schedule_is_added_paused_resumed_edited_and_removed(controlled: Controlled) -> None:
    body = b"\x00\xff binary"
    headers = [*far(), ["Greeting", "hej, åäö"]]
    wanted: dict[str, Any] = {"headers": headers, "body_base64": base64.b64encode(body).decode()}
    api = controlled.account.api
    await eventually(lambda: api.stream("nats_scheduler_failures"))
    would = await controlled.change("add", **wanted, author="nobody", dry_run=True)
    assert (would["change"], would["dry_run"], await controlled.last()) == ("added", True, None)
    added = await controlled.change("add", **wanted, author="ada", reason="as agreed")
    stored = await controlled.stored()
    assert (added["change"], added["sequence_before"], added["sequence"]) == ("added", None, stored.sequence)
    assert (added["author"], added["reason"], added["dry_run"]) == ("ada", "as agreed", False)
    assert (stored.body, header_value(stored.block, b"Greeting")) == (body, "hej, åäö".encode())
    again = await controlled.change("add", **wanted)
    assert (again["change"], again["sequence"], again["changed"]) == ("unchanged", stored.sequence, None)
    assert added["changed"] is not None
    paused = await controlled.change("pause", expected=stored.sequence)
    assert (paused["change"], paused["sequence_before"]) == ("paused", stored.sequence)
    assert paused["sequence"] > stored.sequence
    kept = await controlled.stored()
    assert header_value(kept.block, b"Nats-Schedule") is None
    assert header_value(kept.block, b"Nats-Schedule-X-Paused") is not None
    resumed = await controlled.change("resume")
    assert (resumed["change"], resumed["sequence_before"]) == ("resumed", paused["sequence"])
    edited = await controlled.change("edit", set=[["Greeting", "hello"]], body="text")
    assert edited["change"] == "edited"
    last = await controlled.stored()
    assert (last.sequence, last.body) == (edited["sequence"], b"text")
    assert header_value(last.block, b"Greeting") == b"hello"
    assert header_value(last.block, b"Nats-Schedule-Target") == b"O.out"
    removed = await controlled.change("remove", expected=edited["sequence"])
    assert (removed["change"], removed["sequence_before"], removed["sequence"]) == ("removed", last.sequence, None)
    assert (await controlled.refusal("remove")).code == 404

    subject = "nats_scheduler.advisory.schedule_changed.O.O.s"
    advisories = await controlled.account.wait_for("nats_scheduler_failures", subject)
    first = json.loads(advisories[0].body or b"")
    expected = {"author": "ada", "reason": "as agreed", "change": "added", "sequence": added["sequence"]}
    assert expected.items() <= first.items(), "who did it and why is an advisory, but not what would have been done"


# -- what is refused -------------------------------------------------------------------------------------------


async def test_nothing_is_changed_unless_the_setting_is_on(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        await account.create("O")
        await running.ready("O")
        sequence = await account.publish("O.s", dict(far()))
        for endpoint in ENDPOINTS:
            for body in ({"stream": "O", "subject": "O.s"}, b"not json"):
                answer = await request(account.connection, endpoint, body)
                assert isinstance(answer, Refused), answer
                assert (answer.code, "allow_control is off" in answer.sentence) == (403, True), answer
        last = await account.api.message("O", last_by_subj="O.s")
        assert last is not None
        assert last.sequence == sequence


RANGE = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"}
WRONG: list[tuple[str, object, int, str]] = [
    ("pause", {"subject": "O.s"}, 400, "the key stream is missing"),
    ("pause", {"stream": "O", "subject": "O.*"}, 400, "a subject without wildcards"),
    ("pause", {"stream": "O", "subject": "O.s", "expectd": 1}, 400, "the key 'expectd' is unknown"),
    ("pause", {"stream": "O", "subject": "O.s", "author": "a" * 257}, 400, "at most 256"),
    ("pause", {"stream": "NONE", "subject": "O.s"}, 404, "stream 'NONE' is not served"),
    ("pause", {"stream": "O", "subject": "O.none"}, 404, "no schedule"),
    ("pause", {"stream": "O", "subject": "O.plain"}, 404, "no schedule"),
    ("resume", {"stream": "O", "subject": "O.s"}, 422, "is not paused"),
    ("add", {"stream": "O", "subject": "O.s", "headers": [["a", "b\r\nc: d"]]}, 400, "without line breaks"),
    ("add", {"stream": "O", "subject": "O.s", "headers": [["a b", "c"]]}, 400, "a name of a header"),
    ("add", {"stream": "O", "subject": "O.s", "headers": [], "body": "", "body_base64": ""}, 400, "either body or"),
    ("add", {"stream": "O", "subject": "O.s", "headers": [], "body_base64": "="}, 400, "base64 with padding"),
    ("add", {"stream": "O", "subject": "O.s", "headers": []}, 422, "no Nats-Schedule"),
    ("add", {"stream": "O", "subject": "O.s", "headers": far("O.other")}, 409, "another schedule"),
    ("add", {"stream": "O", "subject": "elsewhere", "headers": far()}, 422, "not a subject of stream O"),
    ("edit", {"stream": "O", "subject": "O.s", "unset": ["Nats-Schedule"]}, 422, "it would be no schedule"),
    ("add", {"stream": "O", "subject": "O.s", "headers": [["a", ""]] * 1001}, 400, "at most 1000 items"),
    ("edit", b'{"stream": "O", "subject": "O.s", "body": "\\ud800"}', 400, "in UTF-8"),
    ("edit", b'{"stream": "O", "subject": "O.s", "body": "\xff"}', 400, "in UTF-8"),
    ("fire", {"stream": "O", "subject": "O.s", "fire_time": "now"}, 400, "fire_time of 'now': a time such as"),
    ("backfill", {"stream": "O", "subject": "O.s", **RANGE}, 422, "one fire time"),
    ("remove", b"[]", 400, "a JSON object"),
    ("remove", b"x" * 70_000, 400, "at most 65536"),
]


async def test_a_wrong_request_is_refused_in_a_sentence_and_changes_nothing(controlled: Controlled) -> None:
    sequence = await controlled.account.publish("O.s", dict(far()))
    await controlled.account.publish("O.plain")
    for endpoint, body, code, part in WRONG:
        answer = await request(controlled.account.connection, endpoint, body)
        assert isinstance(answer, Refused), (endpoint, body, answer)
        assert (answer.code, part in answer.sentence) == (code, True), (endpoint, body, answer)
    wrong = [["Nats-Schedule", "@every soon"], ["Nats-Schedule-Target", "O.out"]]
    refused = await controlled.refusal("add", "O.new", headers=wrong)
    assert (refused.code, refused.server_code) == (422, 10189), "what would be rejected"
    assert "server code 10189" in refused.sentence
    refused = await controlled.refusal("edit", set=[["Nats-Schedule-Target", "elsewhere"]])
    assert (refused.code, refused.server_code) == (422, 10190)
    info = await controlled.account.api.stream("O")
    assert info is not None
    assert info["state"]["last_seq"] == sequence + 1


async def test_another_version_than_expected_is_a_conflict(controlled: Controlled) -> None:
    added = (await controlled.change("add", headers=far()))["sequence"]
    edited = (await controlled.change("edit", body="newer"))["sequence"]
    other = {"headers": far("O.other")}
    refused: list[tuple[str, dict[str, Any]]] = [
        *((endpoint, {"expected": added}) for endpoint in ("pause", "remove", "fire")),
        ("edit", {"expected": added, "body": "lost"}),
        ("add", other),
        *(("add", {**other, "replace": True, "expected": version}) for version in (0, added)),
    ]
    for endpoint, more in refused:
        answer = await controlled.refusal(endpoint, **more)
        assert (answer.code, answer.last_sequence) == (409, edited), (endpoint, more)
    wanted: dict[str, Any] = {**other, "replace": True, "expected": edited}
    assert (await controlled.change("add", **wanted))["change"] == "edited"
    assert (await controlled.change("add", **wanted))["change"] == "unchanged", "a second time"
    first = await controlled.change("add", "O.new", headers=far(), expected=0)
    assert (first["change"], first["sequence_before"]) == ("added", None)


async def test_the_sidecar_publishes_nothing_but_schedules_of_the_stream(controlled: Controlled) -> None:
    """Its user may more than the requester: to the server's API, to the bucket, and to roll the stream up."""
    await controlled.account.create("KEPT", subjects=["kept"])
    await controlled.account.publish("O.other", body=b"stays")
    api, bucket, service = "$JS.API.STREAM.DELETE.KEPT", "$KV.nats_scheduler.stream.X", "nats_scheduler.v1.health.get"
    for subject in (api, bucket, "kept", service):
        refused = await controlled.refusal("add", subject, headers=far())
        assert refused.code in (403, 422), subject
    assert await controlled.account.api.stream("KEPT") is not None
    refused = await controlled.refusal("add", headers=[*far(), ["Nats-Rollup", "all"]])
    assert (refused.code, refused.server_code) == (422, 10192)
    await controlled.change("add", headers=far())
    refused = await controlled.refusal("edit", set=[["Nats-Rollup", "all"]])
    assert (refused.code, refused.server_code) == (422, 10192)
    assert (await controlled.stored("O.other")).body == b"stays"


def test_a_fire_that_may_be_stored_is_only_safe_to_repeat_with_its_time() -> None:
    unknown, not_done = UnknownOutcomeError("no answer"), NoAnswerError("no answer")
    fire = FireRequest(stream="O", subject="O.s")
    timed = FireRequest.model_validate({"stream": "O", "subject": "O.s", "fire_time": "2026-01-01T00:00:00Z"})
    pausing = ChangeRequest(stream="O", subject="O.s")
    assert "may store a second fire" in refusal_of(unknown, fire).sentence
    safe = (refusal_of(not_done, fire), refusal_of(unknown, timed), refusal_of(unknown, pausing))
    assert {(one.code, one.sentence) for one in safe} == {(503, "no answer; asking again is safe")}
    marked = [(OUTCOME, b"unknown") in one.headers for one in safe]
    assert marked == [False, True, True], "a program reads there whether nothing was done"


def test_each_error_of_an_operation_has_a_code() -> None:
    def kinds(parent: type[SchedulerError]) -> set[type[SchedulerError]]:
        return {parent}.union(*map(kinds, parent.__subclasses__()))

    of_operations = {kind for kind in kinds(SchedulerError) if kind.__module__ == SchedulerError.__module__}
    assert [kind for kind in of_operations - {SchedulerError} if not issubclass(kind, tuple(CODES))] == []


@pytest.mark.parametrize("controlled", [V2_11], indirect=True)
async def test_a_draining_sidecar_refuses_and_changes_nothing(controlled: Controlled) -> None:
    added = await controlled.change("add", headers=far())
    asked = asyncio.create_task(controlled.refusal("remove"))
    controlled.running.sidecar.stop()  # nothing has been sent yet
    refused = await asked
    assert (refused.code, "asking again is safe" in refused.sentence) == (503, True)
    assert (await controlled.stored()).sequence == added["sequence"]


async def test_a_sidecar_that_stood_still_does_no_old_request(start_server: StartServer, tmp_path: Path) -> None:
    """The requester got no answer, and may have asked another sidecar since."""
    server = await start_server(V2_11)
    body = {"stream": "O", "subject": "O.s"}
    async with account_on(server.url) as account:
        with sidecar("run", "--allow-control", "-s", server.url, folder=tmp_path) as process:
            await process.wait_for_line("instances_alive")
            await account.create("O")
            await process.wait_for_line("stream_ready.*stream=O")
            sequence = await account.publish("O.s", dict(far()))
            process.pause()
            with pytest.raises(DeadlineError):
                await request(account.connection, "pause", body, deadline=0.5)
            await instant_reached(CLOCK.now() + SENDING_STANDSTILL_LIMIT_NS + SECOND, CLOCK.now)
            process.resume()
            await process.wait_for_line("stood still")
            await process.wait_for_line("stream_ready.*stream=O", count=2)
            would = await request(account.connection, "pause", {**body, "dry_run": True})
            assert isinstance(would, dict), would
            assert would["sequence_before"] == sequence
