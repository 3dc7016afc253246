"""The endpoints for documents of schedules on real servers: export, diff and apply, and that no edit is lost."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from nats_scheduler.control import plan as applying
from nats_scheduler.control.changes import Change
from nats_scheduler.message.headers import header_value
from nats_scheduler.service import schedule_files
from nats_scheduler.service.file_requests import MAX_VALUES, plans_of
from tests.conftest import StartServer
from tests.harness.account import WAIT_SECONDS, account_on, sidecar_on
from tests.harness.blocks import block_to_send
from tests.harness.servers import V2_10, V2_11, V2_14, V2_15
from tests.harness.waiting import eventually
from tests.service.controlling import (
    NEVER,
    Controlled,
    Document,
    Refused,
    document,
    far,
    one,
    request,
    stored,
)

on_all = pytest.mark.parametrize("controlled", [V2_10, V2_11, V2_14, V2_15], indirect=True)
only_on_2_11 = pytest.mark.parametrize("controlled", [V2_11], indirect=True)


async def is_read(controlled: Controlled, stream: str = "O") -> None:
    """Wait until the sidecar has read all that is stored in a stream."""
    info = await controlled.account.api.stream(stream)
    assert info is not None
    await eventually(
        lambda: controlled.running.sidecar.served[stream].last_read >= info["state"]["last_seq"],
        within_seconds=WAIT_SECONDS,
    )


async def exported(controlled: Controlled, stream: str = "O", **keys: Any) -> list[Document]:
    """Return the documents of all pages of an export."""
    await is_read(controlled, stream)
    documents: list[Document] = []
    cursor = None
    while True:
        page = await controlled.ask("export", stream=stream, cursor=cursor, **keys)
        documents += page["documents"]
        cursor = page["cursor"]
        if cursor is None:
            return documents


def subjects(documents: list[Document]) -> list[str]:
    return [schedule["subject"] for one in documents for schedule in one["schedules"]]


# -- round trip ----------------------------------------------------------------------------------------------------


@on_all
async def test_what_is_exported_is_applied_to_an_empty_stream_byte_for_byte(controlled: Controlled) -> None:
    account = controlled.account
    headers = {"Nats-Schedule": f"@at {NEVER}", "Nats-Schedule-Target": "P.out"}
    await account.publish("P.plain", body=b"no schedule")
    await account.publish_block("P.text", block_to_send(headers | {"Greeting": "hej åäö"}), "größer\n".encode())
    await account.publish_block("P.bytes", block_to_send(headers), b"\x00\xff")
    await account.publish_block("P.policy", block_to_send(headers | {"Nats-Schedule-X-Owner": "ops"}), b"")
    double = b"NATS/1.0\r\nA: 1\r\nNats-Schedule: @every 5m\r\nA:  2\r\nNats-Schedule-Target: P.out\r\nB:\xff\r\n\r\n"
    await account.publish_block("P.odd", double, b"x" * 1_000)
    paused = {"Nats-Schedule-X-Paused": f"@at {NEVER}", "Nats-Schedule-Target": "P.out"}
    await account.publish_block("P.paused", block_to_send(paused), b"paused")
    before = await stored(controlled, "P")
    documents = await exported(controlled, "P", limit=2)
    assert subjects(documents) == ["P.bytes", "P.odd", "P.paused", "P.policy", "P.text"]
    assert len(documents) == 3, "three pages"
    assert await exported(controlled, "P", limit=2) == documents, "the same schedules give the same pages"

    await account.api.call("STREAM.PURGE.P", {})
    await is_read(controlled, "P")
    assert subjects(await exported(controlled, "P")) == []
    applied = await controlled.ask("apply", documents=documents, author="ada", reason="moved")
    assert [(one["subject"], one["change"], one["author"]) for one in applied["changes"]] == [
        (subject, "added", "ada") for subject in subjects(documents)
    ]
    assert (applied["errors"], applied["left"]) == ([], 0)
    del before["P.plain"]
    assert await stored(controlled, "P") == before
    again = await controlled.ask("apply", documents=documents)
    assert (again["changes"], again["errors"], again["left"]) == ([], [], 0)
    assert [one["unchanged"] for one in again["streams"]] == [5]


async def test_an_export_has_what_was_asked_for_and_leaves_out_what_cannot_be_applied(controlled: Controlled) -> None:
    prefix = "X-" if controlled.is_native else ""  # a native server refuses what is invalid
    wrong = {f"{prefix}Nats-Schedule": "@every soon", f"{prefix}Nats-Schedule-Target": "O.out"}
    await controlled.account.publish("O.wrong", wrong)
    await controlled.change("add", "O.\x7f", headers=far())
    await controlled.change("add", "O.long", headers=far(), body="x" * 60_000)
    many = [[f"H-{number}", "x"] for number in range(MAX_VALUES // 3)]
    await controlled.change("add", "O.many", headers=[*far(), *many])
    await controlled.change("add", "O.mine", headers=[*far(), ["Nats-Schedule-X-Owner", "me"]])
    await controlled.change("add", "O.theirs", headers=[*far(), ["Nats-Schedule-X-Owner", "them"]])
    await is_read(controlled)
    page = await controlled.ask("export", stream="O")
    assert subjects(page["documents"]) == ["O.mine", "O.theirs"]
    left = {one["subject"]: one["reason"] for one in page["left_out"]}
    assert list(left) == ["O.long", "O.many", "O.wrong", "O.\x7f"]
    assert "too long for a request" in left["O.long"]
    assert "'@every soon'" in left["O.wrong"]
    assert "control characters" in left["O.\x7f"]
    (mine,) = (await controlled.ask("export", stream="O", owner="me"))["documents"]
    assert (mine["owner"], subjects([mine])) == ("me", ["O.mine"])
    assert "policies" not in mine["schedules"][0]
    named = await controlled.ask("export", stream="O", subjects="O.th*")
    assert subjects(named["documents"]) == []
    named = await controlled.ask("export", stream="O", subjects="*.theirs")
    assert subjects(named["documents"]) == ["O.theirs"]


@only_on_2_11
async def test_each_page_fits_into_a_request_and_all_of_them_have_each_schedule_once(controlled: Controlled) -> None:
    for number in range(9):
        await controlled.change("add", f"O.{number}", headers=far(), body="\x01" + str(number) * 14_000)
    documents = await exported(controlled)
    assert subjects(documents) == [f"O.{number}" for number in range(9)]
    assert len(documents) == 3, "a page has three of them"
    await controlled.account.api.call("STREAM.PURGE.O", {})
    for page in documents:
        applied = await controlled.ask("apply", documents=[page], author="a" * 256, reason="b" * 256)
        assert len(applied["changes"]) == len(page["schedules"])


# -- diff and apply ------------------------------------------------------------------------------------------------


async def test_a_diff_says_what_apply_does_and_changes_nothing(controlled: Controlled) -> None:
    await controlled.ask("apply", documents=[document(one("O.a"), one("O.b"), one("O.c"), owner="me")])
    await is_read(controlled)
    before = await stored(controlled, "O")
    wanted = {"documents": [document(one("O.a", "new"), one("O.b"), one("O.d", paused=True), owner="me")]}
    plan = await controlled.ask("diff", **wanted, prune=True)
    steps = [(step["subject"], step["action"]) for step in plan["steps"]]
    assert steps == [("O.a", "replace"), ("O.c", "remove"), ("O.d", "add")]
    assert plan["steps"][0]["differences"] == [{"name": "body", "old": ["body"], "new": ["new"]}]
    (stream,) = plan["streams"]
    assert stream == {"stream": "O", "owner": "me", "unchanged": 1, "ended": [], "unlisted": 0}
    assert (plan["differences"], plan["cursor"]) == (True, None)
    assert await stored(controlled, "O") == before
    kept = await controlled.ask("diff", **wanted)
    assert kept["streams"][0]["unlisted"] == 1
    applied = await controlled.ask("apply", **wanted, prune=True)
    done = [(change["subject"], change["change"]) for change in applied["changes"]]
    assert done == [("O.a", "edited"), ("O.c", "removed"), ("O.d", "added")]
    after = await controlled.ask("diff", **wanted, prune=True)
    assert (after["differences"], after["steps"]) == (False, [])


async def test_only_what_carries_the_label_is_pruned(controlled: Controlled) -> None:
    for subject, owner in (("O.mine", "me"), ("O.paused", "me"), ("O.theirs", "them"), ("O.none", "")):
        more = [["Nats-Schedule-X-Owner", owner]] if owner else []
        await controlled.change("add", subject, headers=[*far(), *more])
    await controlled.change("pause", "O.paused")
    await is_read(controlled)
    applied = await controlled.ask("apply", documents=[document(one("O.new"))], owner="me", prune=True)
    done = [(change["subject"], change["change"]) for change in applied["changes"]]
    assert done == [("O.mine", "removed"), ("O.new", "added"), ("O.paused", "removed")]
    assert set(await stored(controlled, "O")) == {"O.new", "O.theirs", "O.none"}
    refused = await request(controlled.account.connection, "apply", {"documents": [document()], "prune": True})
    assert isinstance(refused, Refused)
    assert (refused.code, "expected owner, or owner in each document" in refused.sentence) == (400, True)


async def test_documents_of_several_streams_and_owners_are_applied_at_once(controlled: Controlled) -> None:
    mine, theirs = document(one("O.a"), owner="me"), document(one("O.b"), owner="them")
    other = {**document(one("P.a"), one("Q.a")), "stream": "P"}
    applied = await controlled.ask("apply", documents=[theirs, other, mine])
    done = [(change["stream"], change["subject"]) for change in applied["changes"]]
    assert sorted(done) == [("O", "O.a"), ("O", "O.b"), ("P", "P.a"), ("P", "Q.a")]
    again = await controlled.ask("diff", documents=[theirs, other, mine], prune=False)
    assert not again["differences"]
    takes = [document(one("O.b", "mine now"), owner="me")]
    answer = await request(controlled.account.connection, "apply", {"documents": takes})
    assert isinstance(answer, Refused)
    assert (answer.code, answer.problems) == (
        422,
        (
            "documents.0.schedules.0: it belongs to the owner 'them': "
            "expected this owner here, or --take-over (take_over)",
        ),
    )
    taken = await controlled.ask("apply", documents=takes, take_over=True)
    assert [change["change"] for change in taken["changes"]] == ["edited"]


async def test_a_concurrent_edit_is_kept_and_reported_and_the_others_are_done(
    controlled: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other client is as fast as it can be: it edits between the plan and the change."""
    await controlled.ask("apply", documents=[document(one("O.a"), one("O.b"), one("O.c"))])
    wanted = [document(one("O.a", "new"), one("O.b", "new"), one("O.c", "new"))]
    theirs: dict[str, Any] = {}

    async def interrupted(*arguments: Any) -> Any:
        plans = await plans_of(*arguments)
        theirs.update(await controlled.change("edit", "O.b", body="theirs"))
        return plans

    with monkeypatch.context() as patched:
        patched.setattr(schedule_files, "plans_of", interrupted)
        applied = await controlled.ask("apply", documents=wanted)
    assert [change["subject"] for change in applied["changes"]] == ["O.a", "O.c"]
    (error,) = applied["errors"]
    assert (error["subject"], error["code"], error["err_code"], error["sequence"]) == (
        "O.b",
        409,
        10071,
        theirs["sequence"],
    )
    assert (await stored(controlled, "O"))["O.b"][1] == b"theirs"
    again = await controlled.ask("apply", documents=wanted)
    assert [(change["subject"], change["sequence_before"]) for change in again["changes"]] == [
        ("O.b", theirs["sequence"])
    ]


async def test_many_at_once_apply_the_same_and_nothing_is_stored_twice(controlled: Controlled) -> None:
    documents = [document(*(one(f"O.{number}") for number in range(40)))]
    answers = await asyncio.gather(*(controlled.ask("apply", documents=documents) for _ in range(4)))
    kinds = [change["change"] for answer in answers for change in answer["changes"]]
    assert (kinds.count("added"), {*kinds} - {"added", "unchanged"}) == (40, set())
    assert [answer["errors"] for answer in answers] == [[]] * 4
    assert len(await controlled.account.messages("O", ">")) == 40


async def test_each_change_is_recorded_with_its_author(controlled: Controlled) -> None:
    await controlled.ask("apply", documents=[document(one("O.a"), one("O.b"))], author="ada", reason="as agreed")
    kept = "nats_scheduler.advisory.schedule_changed.O.>"
    messages = await controlled.account.wait_for("nats_scheduler_failures", kept, 2)
    recorded = [json.loads(message.body or b"") for message in messages]
    assert {(one["schedule"], one["author"], one["reason"], one["change"]) for one in recorded} == {
        ("O.a", "ada", "as agreed", "added"),
        ("O.b", "ada", "as agreed", "added"),
    }


# -- limits --------------------------------------------------------------------------------------------------------


async def finished_by_repeating(
    controlled: Controlled, documents: list[Document], count: int, begin: Callable[[], object] = lambda: None
) -> int:
    """Apply until nothing is left, and call `begin` before each request; return the number of requests."""
    added, requests = 0, 0
    while True:
        begin()
        answer = await controlled.ask("apply", documents=documents)
        requests += 1
        added += len(answer["changes"])
        assert (answer["errors"], added + answer["left"]) == ([], count)
        if not answer["left"]:
            return requests


async def test_what_the_time_is_too_short_for_is_left_and_the_same_request_goes_on(
    controlled: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is over as soon as some changes were begun, however fast the machine is."""
    limit = schedule_files.BEGIN_LIMIT_SECONDS

    def carrying_out(*arguments: Any) -> Any:
        change, begun = applying.carrying_out(*arguments), 0

        async def begin(subject: str) -> Change:
            nonlocal begun
            begun += 1
            if begun == 20:
                monkeypatch.setattr(schedule_files, "BEGIN_LIMIT_SECONDS", -1.0)
            return await change(subject)

        return begin

    monkeypatch.setattr(schedule_files, "carrying_out", carrying_out)
    count = 60
    documents = [document(*(one(f"O.{number}") for number in range(count)))]
    requests = await finished_by_repeating(
        controlled, documents, count, lambda: monkeypatch.setattr(schedule_files, "BEGIN_LIMIT_SECONDS", limit)
    )
    assert requests > 1
    assert len(await controlled.account.messages("O", ">")) == count


async def test_what_an_answer_has_no_room_for_is_left_too(start_server: StartServer) -> None:
    server = await start_server(V2_11, config="max_payload: 16384\n")
    async with sidecar_on(server.url, allow_control=True) as running, account_on(server.url) as account:
        await account.create("O")
        await running.ready("O")
        count, controlled = 60, Controlled(server, account, running, V2_11)
        documents = [document(*(one(f"O.{number}") for number in range(count)))]
        assert await finished_by_repeating(controlled, documents, count) > 1
        assert sorted(subjects(await exported(controlled))) == sorted(subjects(documents))


@only_on_2_11
async def test_a_change_that_does_not_end_within_the_limit_is_reported_as_unknown(
    controlled: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = asyncio.Event()

    def carrying_out(*_arguments: Any) -> Any:
        async def change(_subject: str) -> None:
            await hanging.wait()

        return change

    monkeypatch.setattr(schedule_files, "carrying_out", carrying_out)
    monkeypatch.setattr(schedule_files, "BEGIN_LIMIT_SECONDS", 3.0)
    monkeypatch.setattr(schedule_files, "CHANGE_LIMIT_SECONDS", 3.5)
    answer = await controlled.ask("apply", documents=[document(*(one(f"O.{number}") for number in range(20)))])
    assert {(error["code"], "it may be done or not" in error["message"]) for error in answer["errors"]} == {(503, True)}
    assert (answer["changes"], len(answer["errors"]) + answer["left"]) == ([], 20)


@only_on_2_11
async def test_the_steps_of_a_diff_are_on_pages_that_an_answer_has_room_for(controlled: Controlled) -> None:
    for number in range(4):
        headers = {"Nats-Schedule": f"@at {NEVER}", "Nats-Schedule-Target": "O.out"}
        await controlled.account.publish(f"O.{number}", headers, body=b"x" * 400_000)
    wanted = [document(*(one(f"O.{number}") for number in range(4)))]
    found, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        answer = await controlled.ask("diff", documents=wanted, cursor=cursor)
        found += [step["subject"] for step in answer["steps"]]
        cursor, pages = answer["cursor"], pages + 1
    assert (found, pages) == ([f"O.{number}" for number in range(4)], 2)


async def test_a_change_of_the_body_alone_keeps_the_fire_times(controlled: Controlled) -> None:
    every = {"subject": "O.s", "every": "1h", "target": "O.out"}
    added = await controlled.ask("apply", documents=[document({**every, "body": "old"})])
    edited = await controlled.ask("apply", documents=[document({**every, "body": "new"})])
    assert edited["changes"][0]["sequence_before"] == added["changes"][0]["sequence"]
    last = await controlled.last()
    assert last is not None
    assert (header_value(last.block, b"Nats-Schedule-X-Anchor") is None) is controlled.is_native
    again = await controlled.ask("apply", documents=[document({**every, "body": "new"})])
    assert again["changes"] == []
