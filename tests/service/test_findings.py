"""The findings of a running sidecar: examined when they are asked for, at most once in five minutes.

It tests `doctor/sidecar_examination.py` too.
"""

from typing import Any

import pytest

from nats_scheduler.control.errors import DeadlineError
from nats_scheduler.message.findings import Code
from nats_scheduler.observe.documents import ReportDocument
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.service import last_examination
from nats_scheduler.service.last_examination import KEPT_SECONDS, RETRY_SECONDS, Examination, Examinations
from nats_scheduler.service.micro import ServiceError
from tests.conftest import StartServer
from tests.doctor.scenes import SCENES, unflagged
from tests.harness.account import Account, Running, account_on, sidecar_on
from tests.harness.permissions import permissions_of, shared_account, url_of
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually
from tests.service.asking import answered, ask

KEPT_NS, RETRY_NS = int(KEPT_SECONDS) * SECOND, int(RETRY_SECONDS) * SECOND

NOTHING: ReportDocument = {"worst": None, "findings": [], "unlisted": [], "counts": {}}

FROM_WITHIN = {
    Code.DORMANT,
    Code.COPIES_REMOVE_SCHEDULES,
    Code.EVICTS_SOON,
    Code.SCHEDULE_ENDS_EARLY,
    Code.SCHEDULE_REJECTED,
    Code.CALENDAR_MISSING,
    Code.HEADER_MISNAMED,
    Code.DEFECT_COPIES_STALL,
    Code.SHORT_DUPLICATE_WINDOW,
    Code.NO_GUARD,
    Code.AT_ONLY,
    Code.COPIED,
}
"""The findings of a sidecar by what it holds; all that have a scene, which the releases of a defect have not."""


def codes(answer: dict[str, Any]) -> set[str]:
    return {finding["code"] for finding in answer["findings"]}


async def has_read(account: Account, stream: str) -> None:
    """Wait until the sidecar has read all of a stream that is still stored."""

    async def is_read() -> bool:
        page = await ask(account.connection, "schedules.list", {"stream": stream, "limit": 1})
        state = (await account.api.stream(stream))["state"]
        return isinstance(page, dict) and (page["read_through"] >= state["last_seq"] or not state["messages"])

    await eventually(is_read, describe=f"all of {stream} is read")


async def examined_anew(account: Account, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(last_examination, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(last_examination, "RETRY_SECONDS", 0.0)
    return await answered(account.connection, "findings.list")


async def found_by(account: Account, stream: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    await has_read(account, stream)
    return await examined_anew(account, monkeypatch)


class Examiner:
    """An examination that counts how often it is made, and a clock."""

    def __init__(self) -> None:
        self.now = 0
        self.made = 0
        self.error: Exception | None = None
        self.is_whole = True
        self.defects: list[Exception] = []
        self.examinations = Examinations(lambda: self.now, self.defects.append)

    async def latest(self) -> int:
        """Return when the latest examination was made, which is its number."""
        return (await self.examinations.latest(self._examine)).at

    async def _examine(self) -> Examination:
        self.made += 1
        if self.error is not None:
            raise self.error
        return Examination(self.made, NOTHING, [], self.is_whole)


async def test_it_is_examined_once_in_five_minutes_and_only_when_asked() -> None:
    examiner, partly = Examiner(), Examiner()
    for now, made in ((0, 1), (KEPT_NS - 1, 1), (KEPT_NS, 2), (10 * KEPT_NS, 3), (10 * KEPT_NS, 3)):
        examiner.now = now
        assert await examiner.latest() == examiner.made == made
    partly.is_whole = False
    for now, made in ((0, 1), (RETRY_NS, 2)):
        partly.now = now
        assert await partly.latest() == made, "what was found before all was read is not kept for long"


async def test_a_failed_examination_is_an_error_and_is_not_repeated_at_once() -> None:
    examiner, defect = Examiner(), Examiner()
    examiner.error = DeadlineError("STREAM.LIST: no answer")
    for now, made in ((0, 1), (RETRY_NS - 1, 1), (RETRY_NS, 2)):
        examiner.now = now
        with pytest.raises(ServiceError, match=r"^the examination failed: STREAM.LIST: no answer$") as refused:
            await examiner.latest()
        assert (refused.value.code, examiner.made) == (503, made)
    examiner.error, examiner.now = None, 2 * RETRY_NS
    assert await examiner.latest() == 3
    defect.error = KeyError("defect")
    for _ in range(2):
        with pytest.raises(ServiceError, match="the log of the sidecar has the error"):
            await defect.latest()
    assert defect.defects == [defect.error]


# -- on a server -------------------------------------------------------------------------------------------------------


async def test_a_stream_that_nothing_fires_is_found(start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await unflagged(account, "LEFT")
        async with sidecar_on(server.url) as running:
            await running.told_of("schedules_unserved", stream="LEFT")
            found = await examined_anew(account, monkeypatch)
            (one,) = [one for one in found["findings"] if one["code"] == Code.SCHEDULES_UNSERVED]
            assert (one["stream"], one["subject"]) == ("LEFT", "LEFT.s")
            health = await answered(account.connection, "health.get")
            assert health["ready"]
            assert any("LEFT" in note for note in health["notes"]), "the page and top judge by it"


async def test_a_sidecar_finds_what_the_command_finds_about_a_stream(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each scene is a stream, on the server that it needs: one where something is wrong, and one where nothing is."""
    on_versions: dict[str, dict[str, tuple[Code, bool]]] = {}
    for number, code in enumerate(sorted(FROM_WITHIN)):
        scene = SCENES[code]
        on_versions.setdefault(scene.version, {})[f"W{number}"] = code, True
        on_versions.setdefault(scene.right_version or scene.version, {})[f"R{number}"] = code, False
    for version, streams in on_versions.items():
        server = await start_server(version)
        async with account_on(server.url) as account:
            for stream, (code, is_wrong) in streams.items():
                await (SCENES[code].wrong if is_wrong else SCENES[code].right)(account, stream)
            async with sidecar_on(server.url) as running:
                for stream in streams:
                    await running.ready(stream)
                    await has_read(account, stream)

                def calendars_are_known(running: Running = running) -> bool:
                    known = [one.engine.calendars for one in running.sidecar.served.values()]
                    return all(one.are_read or not one.are_named for one in known)

                await eventually(calendars_are_known, describe="the calendars are read")
                found = await examined_anew(account, monkeypatch)
        listed = {(one["code"], one["stream"]) for one in found["findings"]}
        for stream, (code, is_wrong) in streams.items():
            assert bool(listed & {(code, stream), (code, None)}) is is_wrong, (version, code, found)


async def test_the_least_permissions_are_enough(start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await start_server(V2_11, config=shared_account([permissions_of("2.11")]))
    async with account_on(url_of(server.url, "admin-0")) as account:
        await account.create("PLAIN", allow_msg_schedules=False)
        async with sidecar_on(url_of(server.url, "sidecar-0")) as running:
            await account.create("O")
            await running.ready("O")
            found = await found_by(account, "O", monkeypatch)
        assert codes(found) == set(), found
        assert running.told("permission_denied") == []
