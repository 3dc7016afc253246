"""Fires are publishes that others see and may answer: only the stream's own answer counts."""

import json
from typing import Any

import pytest

from nats_scheduler.engine.events import FireReadBack, FireRefused, FireStored, FireUnknown
from nats_scheduler.jetstream.connection import frame
from tests.e2e.conftest import Served
from tests.harness.account import WAIT_SECONDS, Account, in_seconds
from tests.harness.blocks import block_to_send
from tests.harness.flagged import FlaggedStream
from tests.harness.waiting import eventually
from tests.harness.watched import Watched

ANSWERS = [
    b'{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 9"}}',
    b'{"error":{"code":503,"err_code":10077,"description":"full"},"stream":"OTHER","seq":0}',
    b'{"error":"busy"}',
    b'{"stream":"OTHER","seq":7}',
    b"thanks",
]


def answer_at_once(account: Account, subject: str, body: bytes) -> None:
    """Answer whatever is published to a subject, as a service does."""

    def sink(_subject: bytes, reply: bytes, _block: bytes, _body: bytes) -> None:
        account.connection.write(frame(reply.decode(), "", b"", body))

    account.connection.subscribe(subject, sink)


@pytest.mark.parametrize("body", ANSWERS)
async def test_the_answer_of_a_core_subscriber_is_passed_over(served: Served, body: bytes) -> None:
    answer_at_once(served.account, served.subject("out"), body)
    await served.account.connection.request_json("$JS.API.INFO")  # the subscription is in place
    await served.schedule("s", f"@at {in_seconds(0.3)}")
    await eventually(
        lambda: served.sidecar.of(served.name, FireStored), within_seconds=WAIT_SECONDS, describe="the fire is stored"
    )
    assert not served.sidecar.of(served.name, FireRefused)
    assert not served.sidecar.of(served.name, FireUnknown)
    assert len(await served.messages("out")) == 1


async def test_where_the_stream_acknowledges_nothing_a_strangers_refusal_repeats_nothing(watched: Watched) -> None:
    name = watched.name
    stream = FlaggedStream(watched.account, name)
    answer_at_once(watched.account, stream.subject("out"), ANSWERS[0])
    published: list[bytes] = []
    watched.account.connection.subscribe(
        stream.subject("out"), lambda _subject, _reply, block, _body: published.append(block)
    )
    await watched.account.create(name, no_ack=True)
    await watched.sidecar.ready(name)
    lines = block_to_send(stream.headers(f"@at {in_seconds(0.5)}"))
    watched.account.connection.write(frame(stream.subject("s"), "", lines, b"body"))
    await stream.wait_for("out")
    await eventually(
        lambda: watched.sidecar.of(name, FireReadBack), within_seconds=WAIT_SECONDS, describe="the fire is seen"
    )
    assert (len(published), watched.sidecar.of(name, FireRefused)) == (1, [])


async def test_every_answer_of_a_server_names_the_stream(account: Account, swept: str) -> None:
    config: dict[str, Any] = {"allow_msg_schedules": False, "max_msg_size": 1_000, "allow_rollup_hdrs": False}
    await account.create(swept, **config)
    guard = {"Nats-Expected-Last-Subject-Sequence": "9"}
    publishes: list[tuple[dict[str, str], bytes]] = [
        ({}, b"x"),
        ({}, b"x" * 2_000),
        ({"Nats-Rollup": "sub"}, b""),
        (guard, b""),
        ({"Nats-Expected-Stream": "OTHER"}, b""),
        ({"Nats-Msg-Id": "a"}, b""),
        ({"Nats-Msg-Id": "a"}, b""),
    ]

    async def named(headers: dict[str, str], body: bytes) -> tuple[str, bool]:
        answer = await account.connection.request(f"{swept}.a", body, block_to_send(headers) if headers else b"")
        told = json.loads(answer.body)
        return told.get("stream"), "error" in told

    answers = [await named(*publish) for publish in publishes]
    for more in ({"max_msgs": 1, "discard": "new"}, {"sealed": True}):
        await account.api.call(
            f"STREAM.UPDATE.{swept}", {"name": swept, "subjects": [f"{swept}.>"], "storage": "memory", **config, **more}
        )
        answers.append(await named({}, b"x"))
    assert answers == [(swept, failed) for failed in (False, True, True, True, True, False, False, True, True)]
