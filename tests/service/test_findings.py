"""The findings of a running sidecar: examined when they are asked for, at most once in five minutes."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from nats_scheduler.doctor.finding import Code
from nats_scheduler.doctor.sidecar import examine_sidecar
from nats_scheduler.jetstream.errors import JetStreamError, NoAnswerError
from nats_scheduler.observe.documents import ReportDocument
from nats_scheduler.runtime.asked import Examinable
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.service import port as examinations
from nats_scheduler.service.micro import ServiceError
from nats_scheduler.service.port import KEPT_NS, RETRY_NS, Examination, Examinations
from nats_scheduler.service.turns import Turns
from nats_scheduler.settings.connection import ConnectionSettings
from nats_scheduler.settings.sidecar import SidecarSettings
from tests.conftest import StartServer
from tests.doctor.examined import FLAG, findings_on
from tests.doctor.scenes import SCENES, schedule
from tests.e2e.test_denials import limited_to
from tests.harness.account import (
    CLOCK,
    WAIT_SECONDS,
    Account,
    Running,
    account_on,
    in_seconds,
    sidecar_on,
    sidecar_with,
)
from tests.harness.permissions import permissions_of, shared_account, url_of
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import eventually
from tests.service.asking import Refusal, answered, ask

NOTHING: ReportDocument = {"worst": None, "findings": [], "unlisted": [], "counts": {}}

FROM_WITHIN = {
    Code.DORMANT,
    Code.COPIES_REMOVE_SCHEDULES,
    Code.EVICTS_SOON,
    Code.ENDS_BEFORE_FIRE,
    Code.SCHEDULE_INVALID,
    Code.CALENDAR_MISSING,
    Code.HEADERS_MISNAMED,
    Code.DEFECT_COPIES_STALL,
    Code.SHORT_DUPLICATE_WINDOW,
    Code.NO_GUARD,
    Code.AT_ONLY,
    Code.COPIED,
}
"""The findings of a sidecar by what it holds; all that have a scene, which the releases of a defect have not."""


def codes(answer: dict[str, Any]) -> set[str]:
    return {finding["code"] for finding in answer["findings"]}


async def found_by(account: Account, stream: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Examine anew until the sidecar has read all of a stream that is still stored."""
    monkeypatch.setattr(examinations, "KEPT_NS", 0)
    monkeypatch.setattr(examinations, "RETRY_NS", 0)

    async def has_read_it() -> bool:
        page = await ask(account.connection, "schedules.list", {"stream": stream, "limit": 1})
        state = (await account.api.stream(stream))["state"]
        return isinstance(page, dict) and (page["read_through"] >= state["last_seq"] or not state["messages"])

    await eventually(has_read_it, within_seconds=WAIT_SECONDS, describe=f"all of {stream} is read")
    return await answered(account.connection, "findings.list")


def calendars_are_known(running: Running) -> bool:
    """Return whether the calendars are read, if the schedules of stream `O` name any."""
    calendars = running.sidecar._services.by_name["O"].engine.calendars
    return calendars.are_read or not calendars.are_named


# -- how often ---------------------------------------------------------------------------------------------------------


class Examiner:
    """An examination that counts how often it is made, and a clock."""

    def __init__(self) -> None:
        self.now = 0
        self.made = 0
        self.error: Exception | None = None
        self.is_whole = True
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.examinations = Examinations(lambda: self.now)

    async def latest(self) -> Examination:
        return await self.examinations.latest(self._examine)

    async def _examine(self) -> Examination:
        self.made += 1
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        return Examination(self.made, NOTHING, [], self.is_whole)


async def test_it_is_examined_once_in_five_minutes_and_only_when_asked() -> None:
    examiner = Examiner()
    for now, made in ((0, 1), (KEPT_NS - 1, 1), (KEPT_NS, 2), (10 * KEPT_NS, 3), (10 * KEPT_NS, 3)):
        examiner.now = now
        assert (await examiner.latest()).at == examiner.made == made


async def begun(examiner: Examiner) -> None:
    await eventually(lambda: examiner.made, within_seconds=WAIT_SECONDS, describe="the examination has begun")


async def test_two_requests_at_once_examine_once() -> None:
    examiner = Examiner()
    examiner.may_end.clear()
    requests = [asyncio.create_task(examiner.latest()) for _ in range(5)]
    await begun(examiner)
    examiner.may_end.set()
    assert [one.at for one in await asyncio.gather(*requests)] == [1] * 5


async def test_while_it_is_examined_again_others_get_what_was_found_last() -> None:
    examiner = Examiner()
    await examiner.latest()
    examiner.now, examiner.made = KEPT_NS, 0
    examiner.may_end.clear()
    again = asyncio.create_task(examiner.latest())
    await begun(examiner)
    assert (await examiner.latest()).at == 1
    examiner.made = 7
    examiner.may_end.set()
    assert (await again).at == (await examiner.latest()).at == 7


async def test_a_failed_examination_is_an_error_and_is_not_repeated_at_once() -> None:
    examiner = Examiner()
    examiner.error = NoAnswerError("STREAM.LIST: no answer")
    for now, made in ((0, 1), (RETRY_NS - 1, 1), (RETRY_NS, 2)):
        examiner.now = now
        with pytest.raises(ServiceError, match=r"^the examination failed: STREAM.LIST: no answer$") as refused:
            await examiner.latest()
        assert (refused.value.code, examiner.made) == (503, made)
    examiner.error, examiner.now = None, 2 * RETRY_NS
    assert (await examiner.latest()).at == 3


async def test_what_was_found_before_all_was_read_is_not_kept_for_long() -> None:
    examiner = Examiner()
    examiner.is_whole = False
    assert (await examiner.latest()).at == 1
    examiner.now = RETRY_NS
    assert (await examiner.latest()).at == 2


async def test_a_request_that_is_cancelled_leaves_the_next_one_to_examine() -> None:
    examiner = Examiner()
    examiner.may_end.clear()
    cancelled = asyncio.create_task(examiner.latest())
    await begun(examiner)
    cancelled.cancel()
    await asyncio.wait((cancelled,))
    examiner.may_end.set()
    assert (await examiner.latest()).at == 2


async def test_a_defect_is_raised_once_and_an_error_until_the_retry() -> None:
    examiner = Examiner()
    examiner.error = KeyError("defect")
    with pytest.raises(KeyError):
        await examiner.latest()
    with pytest.raises(ServiceError, match="the log of the sidecar has the error"):
        await examiner.latest()


async def test_what_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examinations, "LIMIT_SECONDS", 0.01)
    with pytest.raises(ServiceError, match="it was not finished within"):
        await Examinations(lambda: 0).latest(lambda: asyncio.get_running_loop().create_future())


# -- on a server -------------------------------------------------------------------------------------------------------


async def test_a_finding_appears_and_is_gone_with_the_next_examination(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await start_server(V2_11)
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        await account.create("O")
        await running.ready("O")
        await account.publish("O.s", {"Nats-Schedule": "@every soon", "Nats-Schedule-Target": "O.out"})
        found = await found_by(account, "O", monkeypatch)
        assert (found["worst"], found["counts"]["error"], found["omitted"]) == ("error", 1, 0)
        (finding,) = found["findings"]
        command = [one for one in await findings_on(server, "O") if one.code is Code.SCHEDULE_INVALID]
        assert [(finding["code"], finding["what"], finding["command"])] == [
            (one.code.value, one.what, one.command) for one in command
        ], "the command finds the same"
        assert any("permissions" in one["what"] for one in found["unexamined"])
        monkeypatch.setattr(examinations, "KEPT_NS", KEPT_NS)
        await account.publish("O.s", {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": "O.out"})
        kept = await answered(account.connection, "findings.list")
        assert (kept["at"], codes(kept)) == (found["at"], {"schedule_invalid"}), "it was examined a moment ago"
        assert codes(await found_by(account, "O", monkeypatch)) == set()


@pytest.mark.parametrize("code", sorted(FROM_WITHIN))
async def test_a_sidecar_finds_what_the_command_finds_about_a_stream(
    start_server: StartServer, code: Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = SCENES[code]
    for version, build, is_wrong in ((scene.version, scene.wrong, True), (scene.right_version, scene.right, False)):
        server = await start_server(version or scene.version)
        async with account_on(server.url) as account:
            await build(account, "O")
            async with sidecar_on(server.url) as running:
                await running.ready("O")
                await eventually(
                    partial(calendars_are_known, running),
                    within_seconds=WAIT_SECONDS,
                    describe="the calendars are read",
                )
                found = await found_by(account, "O", monkeypatch)
        of_code = [one for one in found["findings"] if one["code"] == code]
        assert bool(of_code) is is_wrong, found
        assert {one["stream"] for one in of_code} <= {"O", None}


async def test_many_findings_are_counted_and_the_first_are_listed(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await start_server(V2_11)
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        await account.create("O", max_age=3_600 * SECOND)
        await running.ready("O")
        for number in range(25):
            await account.publish(f"O.late.{number}", schedule("O"))
            await account.publish(f"O.wrong.{number}", schedule("O", "@every soon"))
        found = await found_by(account, "O", monkeypatch)
    assert found["counts"]["error"] == 50
    assert {one["code"]: one["number"] for one in found["unlisted"]} == {
        "ends_before_fire": 15,
        "schedule_invalid": 15,
    }
    assert len(found["findings"]) == 20


async def test_refused_fires_and_the_permission_that_is_missing_are_found(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await start_server(V2_11, config=shared_account([limited_to(V2_11, "nothing")]))
    admin = url_of(server.url, "admin-0")
    async with account_on(admin) as account, sidecar_on(url_of(server.url, "sidecar-0")) as running:
        await account.create("O", metadata=FLAG)
        await running.ready("O")
        assert not refusals(await found_by(account, "O", monkeypatch))
        await account.publish("O.s", schedule("O", f"@at {in_seconds(0.5)}"))

        async def found() -> dict[str, Any] | None:
            answer = await answered(account.connection, "findings.list")
            return answer if refusals(answer) == {"fires_refused", "permission_missing"} else None

        answer = await eventually(found, within_seconds=WAIT_SECONDS, describe="the refusal is found")
        (missing,) = [one for one in answer["findings"] if one["code"] == "permission_missing"]
        assert missing["what"] == "this user may not publish to O.out"
        assert answer["counts"]["error"] == 2


def refusals(answer: dict[str, Any]) -> Collection[str]:
    return codes(answer) & {"fires_refused", "permission_missing"}


async def test_each_sidecar_finds_the_refused_fires_of_the_other(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url) as one, sidecar_on(server.url) as other:
        info = await account.create("O", max_age=3_600 * SECOND)
        for running in (one, other):
            await running.ready("O")
        await account.api.update_stream({**info["config"], "max_msg_size": 400})
        for number in range(30):
            await account.publish(f"O.s.{number}", schedule("O", f"@at {in_seconds(0.1)}"), b"x" * 300)
        await found_by(account, "O", monkeypatch)
        for running in (one, other):
            endpoint = f"findings.list.{running.sidecar.instance}"

            async def finds_all(endpoint: str = endpoint) -> bool:
                answer = await answered(account.connection, endpoint)
                listed = [finding for finding in answer["findings"] if finding["code"] == "fires_refused"]
                unlisted = [more["number"] for more in answer["unlisted"] if more["code"] == "fires_refused"]
                return (len(listed), unlisted) == (10, [20])

            await eventually(finds_all, within_seconds=WAIT_SECONDS, describe="all 30 schedules are counted")


@pytest.mark.parametrize(("mode", "version"), [("2.10", V2_10), ("2.11", V2_11), ("native", V2_15)])
async def test_the_least_permissions_are_enough(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch, mode: str, version: str
) -> None:
    server = await start_server(version, config=shared_account([permissions_of(mode)]))
    async with account_on(url_of(server.url, "admin-0")) as account:
        await account.create("PLAIN", allow_msg_schedules=False)
        async with sidecar_on(url_of(server.url, "sidecar-0")) as running:
            await account.create("O")
            await running.ready("O")
            found = await found_by(account, "O", monkeypatch)
        assert codes(found) <= {"no_guard"}, found
        assert running.told("permission_denied") == []


@dataclass
class FastClock:
    """The clock of a machine that is some seconds ahead."""

    ahead: int

    def now(self) -> int:
        return CLOCK.now() + self.ahead

    def monotonic(self) -> int:
        return CLOCK.monotonic()


async def test_a_wrong_clock_of_the_sidecars_machine_is_found(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await start_server(V2_11)
    settings = SidecarSettings(connection=ConnectionSettings(servers=(server.url,)))
    async with sidecar_with(settings, FastClock(60 * SECOND)) as running, account_on(server.url) as account:
        await account.create("O")
        await running.ready("O")
        found = await found_by(account, "O", monkeypatch)
    (clock,) = [one for one in found["findings"] if one["code"] == "clock_off"]
    assert "s ahead of that of the server" in clock["what"]


async def test_an_examination_that_fails_is_refused_in_a_sentence(start_server: StartServer) -> None:
    made = 0

    async def fail(examinable: Examinable, turns: Turns) -> Examination:
        nonlocal made
        made += 1
        if made == 1:
            raise NoAnswerError("STREAM.LIST: no answer within 5 s")
        return await examine_sidecar(examinable, turns)

    server = await start_server(V2_11)
    settings = SidecarSettings(connection=ConnectionSettings(servers=(server.url,)))
    async with sidecar_with(settings, examine=fail) as running, account_on(server.url) as account:
        await running_service(account)
        refused = await ask(account.connection, "findings.list")
        assert refused == Refusal(503, "the examination failed: STREAM.LIST: no answer within 5 s")
        assert (await ask(account.connection, "findings.list")) == refused
        assert made == 1
        assert running.told("request_failed") == []


async def running_service(account: Account) -> None:
    """Wait until the service answers."""

    async def answers() -> bool:
        try:
            return (await ask(account.connection, "health.get")) is not None
        except JetStreamError:  # nothing subscribes to the subject yet
            return False

    await eventually(answers, within_seconds=WAIT_SECONDS, describe="the service answers")


async def test_an_answer_that_is_too_long_omits_the_least_findings(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await start_server(V2_11, config="max_payload: 8000\n")
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        await account.create("O", max_age=3_600 * SECOND, duplicate_window=SECOND)
        await running.ready("O")
        for number in range(10):
            await account.publish(f"O.late.{number}", schedule("O"))
            await account.publish(f"O.wrong.{number}", schedule("O", "@every soon"))
        found = await found_by(account, "O", monkeypatch)
    assert found["omitted"] == 21 - len(found["findings"]) > 0
    assert codes(found) <= {"ends_before_fire", "schedule_invalid"}, "the worst come first"
