"""What is wrong with documents of a request is found before anything is done, and each problem has its place."""

import pytest

from nats_scheduler.service.file_requests import MAX_PROBLEMS, MAX_SCHEDULES, MAX_VALUES
from tests.conftest import StartServer
from tests.harness.account import account_on, sidecar_on
from tests.harness.servers import V2_11
from tests.service.controlling import (
    OF_DOCUMENTS,
    Controlled,
    Document,
    Refused,
    document,
    far,
    one,
    request,
    stored,
)

only_on_2_11 = pytest.mark.parametrize("controlled", [V2_11], indirect=True)


WRONG: list[tuple[str, Document, int, str]] = [
    ("export", {}, 400, "the key stream is missing"),
    ("export", {"stream": "NONE"}, 404, "stream 'NONE' is not served"),
    ("export", {"stream": "O", "subjects": "a b"}, 400, "a subject such as"),
    ("export", {"stream": "O", "owner": ""}, 400, "expected a text of 1 to 256 characters"),
    ("export", {"stream": "O", "cursor": "?"}, 400, "the cursor of another page"),
    ("export", {"stream": "O", "limit": 1_001}, 400, "limit of 1001"),
    ("diff", {}, 400, "the key documents is missing"),
    ("diff", {"documents": []}, 400, "documents of []"),
    ("diff", {"documents": {}}, 400, "documents of {}"),
    ("diff", {"documents": ["stream: O"]}, 400, "documents.0: a document: expected a map"),
    ("diff", {"documents": [document()], "owner": "a\nb"}, 400, "expected a text of 1 to 256 characters"),
    ("diff", {"documents": [document()], "dry_run": True}, 400, "the key 'dry_run' is unknown"),
    ("diff", {"documents": [document()], "prune": True}, 400, "expected owner, or owner in each document"),
    ("diff", {"documents": [document(one("O.a", ttl=1.5))]}, 400, "documents.0.schedules.0.ttl: O.a: ttl of 1.5"),
    ("diff", {"documents": [document(one("O.a", body=None))]}, 400, "body is empty"),
    ("diff", {"documents": [document(one("O.a"), one("O.a"))]}, 400, "is declared twice in stream O"),
    ("diff", {"documents": [{**document(), "stream": "NONE"}]}, 404, "documents.0.stream: stream 'NONE' is not served"),
    ("diff", {"documents": [document(one("$JS.API.INFO"))]}, 403, "is a request to the server"),
    ("diff", {"documents": [document(one("O.a", target="X"))]}, 422, "documents.0.schedules.0.target: O.a:"),
    ("diff", {"documents": [document(one("elsewhere"))]}, 422, "elsewhere is not a subject of stream O"),
    ("diff", {"documents": [document(one("O.*"))]}, 422, "no literal subject"),
    ("diff", {"documents": [document(one("O.plain"))]}, 422, "a message that is no schedule is stored there"),
    (
        "diff",
        {"documents": [document({"subject": "O.a", "headers": [{}] * MAX_VALUES})]},
        400,
        "more than 512 values",
    ),
    ("diff", {"documents": [document(**{f"k{number}": 1 for number in range(MAX_VALUES)})]}, 400, "more than 512"),
    ("diff", {"documents": [{}] * 65}, 400, "at most 64 items"),
    ("apply", {"documents": [document(one("O.a"))], "author": "a" * 257}, 400, "at most 256"),
]


async def test_a_wrong_request_is_refused_in_a_sentence_and_changes_nothing(controlled: Controlled) -> None:
    sequence = await controlled.account.publish("O.plain")
    for endpoint, body, code, part in WRONG:
        for name in ("diff", "apply") if endpoint == "diff" else (endpoint,):
            answer = await request(controlled.account.connection, name, body)
            assert isinstance(answer, Refused), (name, body, answer)
            assert (answer.code, part in answer.sentence) == (code, True), (name, body, answer)
    info = await controlled.account.api.stream("O")
    assert info is not None
    assert info["state"]["last_seq"] == sequence


async def test_all_problems_are_in_the_body_and_nothing_is_done(controlled: Controlled) -> None:
    wanted = [document(one("O.good"), one("O.a", every="5m"), one("O.b", ttl=True)), {"stream": 5}]
    answer = await request(controlled.account.connection, "apply", {"documents": wanted})
    assert isinstance(answer, Refused)
    assert (answer.code, answer.problems) == (
        400,
        (
            "documents.0.schedules.1.every: at and every: expected one of at, every, cron, lines, block_base64",
            "documents.0.schedules.2.ttl: ttl of True: expected a text such as '5m', or whole seconds",
            "documents.1.stream: stream of 5: expected text of one line; a number, or a word such as true, needs "
            "quotes to be text",
            "documents.1.schedules: schedules of None: expected a list of schedules",
        ),
    )
    assert "and 3 more, in the body" in answer.sentence
    wanted = [document(one("O.good"), one("O.a", at="soon"), one("O.b", target="X"))]
    answer = await request(controlled.account.connection, "apply", {"documents": wanted})
    assert isinstance(answer, Refused)
    assert (answer.code, answer.server_code, len(answer.problems)) == (422, 10189, 2)
    assert "documents.0.schedules.1.at: Nats-Schedule of '@at soon'" in answer.problems[0]
    assert await stored(controlled, "O") == {}


@only_on_2_11
async def test_of_very_many_problems_some_are_named(controlled: Controlled) -> None:
    body = b'{"documents": [{"stream": "O", "schedules": [%b]}]}' % b",".join([b"{}"] * MAX_SCHEDULES)
    answer = await request(controlled.account.connection, "apply", body)
    assert isinstance(answer, Refused)
    assert (answer.code, len(answer.problems)) == (400, MAX_PROBLEMS)
    assert "4,999 more" in answer.sentence
    body = b'{"documents": [{"stream": "O", "schedules": [%b]}]}' % b",".join([b"{}"] * 20_000)
    answer = await request(controlled.account.connection, "apply", body)
    assert isinstance(answer, Refused)
    assert (answer.code, answer.problems) == (
        400,
        ("documents.0.schedules: has more than 2,500 schedules: a request takes no more",),
    )


async def test_nothing_is_read_while_changes_are_not_allowed(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        await account.create("O")
        await running.ready("O")
        await account.publish("O.s", dict(far()), body=b"secret")
        for endpoint in OF_DOCUMENTS:
            body = {"stream": "O"} if endpoint == "export" else {"documents": [document(one("O.s"))]}
            answer = await request(account.connection, endpoint, body)
            assert isinstance(answer, Refused), answer
            assert (answer.code, "allow_control is off" in answer.sentence) == (403, True), answer
