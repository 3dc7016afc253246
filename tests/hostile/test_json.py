"""JSON of strangers is read as the server reads it, or not at all, and never raises."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.control.errors import NoAnswerError
from nats_scheduler.control.transport import request_json
from nats_scheduler.engine.inputs import NOTHING_SETTLED, Checkpoint, Refused, Stored, Unknown
from nats_scheduler.jetstream.publish import outcome_of
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.jetstream.request_watch import ConfigRequested, MessageRemovalRequested, Request, RequestWatch
from nats_scheduler.message.foreign_json import STREAM_CONFIG_TYPES, stored_message
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.checkpoints import read_checkpoint
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.schedule.instants import DAY
from tests.conftest import SharedServer
from tests.harness.account import Account, account_on
from tests.harness.servers import V2_11
from tests.hostile.effort import examples

pytestmark = pytest.mark.clause("hostile-json")

DOCUMENTS = {
    "nothing": b"",
    "a number": b"1",
    "a list": b"[]",
    "null": b"null",
    "not UTF-8": b"\xff\xfe\x00",
    "UTF-16": '{"name":"S"}'.encode("utf-16"),
    "a lonely brace": b"{",
    "deep lists": b'{"a":' + b"[" * 200_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a huge number": b'{"a":' + b"9" * 5_000 + b"}",
    "NaN": b'{"a":NaN}',
    "infinity": b'{"a":-Infinity}',
    "two documents": b"{}{}",
    "control characters": b'{"a":"\x00"}',
}

_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_keys = st.sampled_from(
    [*STREAM_CONFIG_TYPES, "error", "err_code", "code", "seq", "message", "time", "hdrs", "data", "duplicate", "filter"]
)
odd_objects = st.dictionaries(_keys, _values, max_size=6)


@pytest.mark.slow
@examples(150)
@given(odd_objects)
def test_answers_of_any_shape_are_outcomes_or_errors_of_our_own(answer: dict[str, Any]) -> None:
    body = json.dumps(answer).encode()
    assert isinstance(outcome_of("S", b"", body), Stored | Refused | Unknown | None)
    assert isinstance(stored_message(answer), StoredMessage | None)


class Requests:
    """The requests that a watch reads; the server at the other end is real."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.seen: list[Request] = []
        RequestWatch(account.connection, "$TEST.API", self.seen.append)

    async def after(self, request: str, body: bytes) -> list[Request]:
        """Ask, and return what was seen of it."""
        self.seen.clear()
        heard = asyncio.Event()
        number = self._account.connection.subscribe("$TEST.after", lambda *_message: heard.set())
        assert self._account.connection.publish(f"$TEST.API.{request}", body)
        assert self._account.connection.publish("$TEST.after", b"")
        async with asyncio.timeout(10):
            await heard.wait()
        self._account.connection.unsubscribe(number)
        return list(self.seen)


async def test_requests_that_the_server_refuses_are_passed_over(shared_server: SharedServer) -> None:
    odd: dict[str, list[Any]] = {
        "name": ["T", ["S"]],
        "metadata": [[], {"a": 1}],
        "subjects": ["s.>", [1]],
        "max_msgs": ["many", 1.5, 1 << 63],
        "sealed": [1],
        "mirror": ["M"],
        "sources": [{}],
    }
    async with account_on((await shared_server(V2_11)).url) as account:
        requests = Requests(account)
        wrong = [{"name": "S", field: value} for field, values in odd.items() for value in values]
        documents = [json.dumps(body).encode() for body in ({}, *wrong)]
        documents += filter(None, DOCUMENTS.values())
        for document in documents:
            for kind in ("CREATE", "UPDATE"):
                assert await requests.after(f"STREAM.{kind}.S", document) == [], document[:200]
        for document in (*filter(None, DOCUMENTS.values()), b'{"seq":[1]}'):
            assert await requests.after("STREAM.MSG.DELETE.S", document) == []
        long = "S" * 256
        assert await requests.after(f"STREAM.CREATE.{long}", json.dumps({"name": long}).encode()) == []


async def test_the_fields_of_a_request_may_be_of_either_case(shared_server: SharedServer) -> None:
    async with account_on((await shared_server(V2_11)).url) as account:
        requests = Requests(account)
        body = b'{"NAME":"S","Allow_Msg_Schedules":true,"max_age":null}'
        config = {"name": "S", "allow_msg_schedules": True}
        assert await requests.after("STREAM.CREATE.S", body) == [ConfigRequested("S", config, True)]


async def test_a_purge_that_cannot_be_read_may_have_purged_everything(
    shared_server: SharedServer, stream_name: str
) -> None:
    """The server obeys a request to purge that is no JSON: so the watch must not pass it over."""
    async with account_on((await shared_server(V2_11)).url) as account:
        requests = Requests(account)
        odd = [b"\xff", b"null", b"1", *filter(None, DOCUMENTS.values())]
        for document in [*odd, b'{"filter":7}', b'{"filter":["a"]}', b'{"filter":""}', b'{"filter":null}']:
            assert await requests.after("STREAM.PURGE.S", document) == [MessageRemovalRequested("S")]
        assert await requests.after("STREAM.PURGE.S", b'{"Filter":"a.*"}') == [MessageRemovalRequested("S", "a.*")]
        longer_than_any = json.dumps({"filter": "a." * 100_000 + ">"}).encode()
        assert await requests.after("STREAM.PURGE.S", longer_than_any) == [MessageRemovalRequested("S")]
        await account.create(stream_name)
        for document in (b"\xff", b'{"filter":null}'):
            await account.publish(f"{stream_name}.s")
            answer = await account.connection.request(f"$JS.API.STREAM.PURGE.{stream_name}", document)
            assert json.loads(answer.body)["purged"] == 1


GOOD = {"created": "2026-11-20T00:00:00Z", "through": 5, "sequence": 50, "unsettled": [7]}
"""A checkpoint."""


class Api:
    """What the server says of the stream whose checkpoints are read."""

    async def stream(self, name: str) -> Any:
        return {"config": {"name": name}, "created": GOOD["created"], "state": {"first_seq": 1, "last_seq": 50}}


async def test_what_no_sidecar_can_have_written_counts_as_absent(shared_server: SharedServer, stream_name: str) -> None:
    now = SystemClock().now()
    broken: dict[str, list[Any]] = {
        "through": ["5", None, 1.5, True, now + 2 * DAY, 10**400],
        "sequence": [-1, [], "50"],
        "unsettled": [7, {}, [[1]], ["1"]],
        "owed": [7, [7], [[7]], [[7, 5, 5]], [["7", 5]], [[7, now + 2 * DAY]]],
        "stored_by": ["5", [], 1.5, True],
        "calendars": [[], 7, ["work"], {"work": "5"}, {"work": None}],
    }
    async with account_on((await shared_server(V2_11)).url) as account:
        registry, told = Registry(account.connection, account.api, stream_name), list[str]()
        registry.broken = lambda key, _reason: told.append(key)
        await registry.open()
        for document in filter(None, DOCUMENTS.values()):
            if len(document) <= 60_000:
                told.clear()
                await account.connection.request(f"$KV.{stream_name}.stream.S", document)
                assert (await registry.get("stream.S"), told) == (None, ["stream.S"])
        key = f"checkpoint.S.{Mode.EMULATED}"
        for field, value in [(field, value) for field, values in broken.items() for value in values]:
            told.clear()
            await registry.put(key, {**GOOD, field: value})
            found = await read_checkpoint(registry, Api(), "S", Mode.EMULATED, now)
            assert found == NOTHING_SETTLED, (field, value)
            assert told == [key], (field, value)
        told.clear()
        await registry.put(key, GOOD)
        checkpoint = await read_checkpoint(registry, Api(), "S", Mode.EMULATED, now)
        assert (checkpoint, told) == (Checkpoint(5, 50, frozenset({7})), [])


async def test_an_answer_that_is_none_is_an_error_of_ours(shared_server: SharedServer) -> None:
    async with account_on((await shared_server(V2_11)).url) as account:
        connection, documents = account.connection, list(DOCUMENTS.values())

        def answer(_subject: bytes, reply: bytes, _block: bytes, body: bytes) -> None:
            connection.publish(reply.decode(), documents[int(body)])

        connection.subscribe("odd", answer)
        for number in range(len(documents)):
            with pytest.raises(NoAnswerError):
                await request_json(connection, "odd", number)
