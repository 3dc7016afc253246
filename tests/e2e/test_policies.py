"""Policies on real servers: what a sidecar does with them, and what a server that fires itself does.

A paused schedule is fired by nothing, whatever restarts, and resumed it fires again.
"""

import asyncio
import json
import struct
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from nats_scheduler.cli.main import main
from nats_scheduler.engine.events import (
    ClockChangeSkipped,
    Ending,
    FinishUnknown,
    FireLostToReplacement,
    FireNotDone,
    FiresMissed,
    FiresSkipped,
    FireTimedOut,
)
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.jitter import delay_of
from nats_scheduler.message.paused import paused_block, resumed_block
from nats_scheduler.message.spread import offset_of
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.days import day_text
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, account_on, in_seconds, midday_zone, sidecar_on
from tests.harness.advisories import HeardAdvisories
from tests.harness.flagged import FlaggedStream, Served, fire_time_of
from tests.harness.permissions import PASSWORD, url_of
from tests.harness.servers import V2_10, V2_11, V2_12, V2_15
from tests.harness.waiting import eventually, instant_reached
from tests.harness.workers import Worker

WORKERS = "workers"
OUTAGE_NS = 4 * SECOND


def on_days_of_today() -> dict[str, tuple[str, dict[str, str]]]:
    """Return patterns that fire each second of today, three times: in each second week, and moved from yesterday."""
    zone, today = midday_zone()
    _year, month, day = day_text(today - 1).split("-")
    more = {"Time-Zone": zone, "X-Limit": "3"}
    return {
        "nth": ("* * * * * *", {**more, "X-Every": f"2w from {day_text(today)}"}),
        "moved": (
            f"* * * {int(day)} {int(month)} *",
            {**more, "X-Except": day_text(today - 1), "X-Excepted": "next"},
        ),
    }


async def test_limits_ends_anchors_and_jitters_hold_and_the_schedules_are_removed_at_their_end(served: Served) -> None:
    """A machine that is paused may miss fires; a limit counts their times all the same."""
    now = CLOCK.now() // SECOND * SECOND
    anchor, end = now + 2 * SECOND, now + 5 * SECOND + SECOND // 2
    bounds = {"X-Anchor": format_rfc3339(anchor), "X-End": format_rfc3339(end)}
    limited = await served.schedule("limit", "@every 1s", target="limited", more={"X-Limit": "3", "X-Note": "a test"})
    await served.schedule("end", "@every 3s", target="ended", more=bounds)
    for rest, (pattern, more) in on_days_of_today().items():
        await served.schedule(rest, pattern, target=f"{rest}.out", more=more)
    late = await served.schedule("late", "@every 2s", target="jittered", more={"X-Jitter": "1500ms", "X-Limit": "2"})
    for rest in ("limit", "end", "nth", "moved", "late"):
        await served.gone(rest)
    fires = {rest: await served.messages(rest) for rest in ("limited", "ended", "nth.out", "moved.out", "jittered")}
    times = {rest: [fire_time_of(one) for one in found] for rest, found in fires.items()}
    last = times["limited"][-1]
    assert set(times["limited"]) <= {last - step * SECOND for step in range(3)}
    assert len(times["limited"]) == len(set(times["limited"]))
    assert b"Nats-Schedule-Next: purge\r\n" in fires["limited"][-1].block
    assert all(b"nats-scheduler:%d:" % limited in one.block for one in fires["limited"])
    assert not any(b"X-Limit" in one.block or b"X-Note" in one.block for one in fires["limited"])
    for rest in ("nth.out", "moved.out"):
        assert b"Nats-Schedule-Next: purge\r\n" in fires[rest][-1].block
    assert set(times["ended"]) <= {anchor, anchor + 3 * SECOND}
    assert max(times["ended"]) == anchor + 3 * SECOND
    for fire, time in zip(fires["jittered"], times["jittered"], strict=True):
        assert fire.stored_at >= time + delay_of(served.subject("late"), late, time, 3 * SECOND // 2)


async def test_a_spread_schedule_comes_at_its_offset_and_an_edit_keeps_it(served: Served) -> None:
    """What the header of a fire names is when the next one comes."""
    offset = offset_of(served.subject("spread"), 8 * SECOND)
    found: list[int] = []
    for body in (b"one", b"two"):
        more = {"X-Spread": "8s", "X-Limit": "2"}
        stored = await served.schedule("spread", "* * * * * *", target="spread-fires", more=more, body=body)
        await served.gone("spread")
        fires = [one for one in await served.messages("spread-fires") if b"nats-scheduler:%d:" % stored in one.block]
        times = [fire_time_of(one) for one in fires]
        assert all(one.stored_at >= time for one, time in zip(fires, times, strict=True))
        assert b"Nats-Schedule-Next: purge\r\n" in fires[-1].block
        found += times
    assert {time % SECOND for time in found} == {offset % SECOND}


async def test_beside_a_server_that_fires_by_itself_only_the_portable_spelling_has_policies(
    native_server: EmbeddedServer, stream_name: str
) -> None:
    """The server keeps what it ignores to itself; the syntax of a portable pattern is one that no server reads."""
    async with sidecar_on(native_server.url) as running, account_on(native_server.url) as account:
        await account.create(stream_name)
        await running.ready(stream_name)
        stream = FlaggedStream(account, stream_name)
        await stream.schedule("own", f"@at {in_seconds(0.5)}", more={"X-End": "2020-01-01T00:00:00Z", "X-Unknown": "1"})
        for rest, pattern, more in (
            ("every", "@every 1s", {"X-Limit": "2"}),
            ("spread", "* * * * * *", {"X-Limit": "2", "X-Spread": "9s"}),
            ("quartz", "* * * 1-30,L * ? *", {"X-Limit": "2", "X-Syntax": "quartz"}),
            *((rest, *said) for rest, said in on_days_of_today().items()),
        ):
            headers = stream.headers(pattern, f"{rest}.out", more)
            await stream.publish(rest, {f"X-{name}": value for name, value in headers.items()})
        [own] = await stream.wait_for("out")
        for rest in ("every", "spread", "quartz", "nth", "moved"):
            await stream.gone(rest)
            fires = await stream.wait_for(f"{rest}.out")
            assert len(fires) <= 3
            assert b"X-Nats-Schedule-Next: purge\r\n" in fires[-1].block
            assert not any(b"X-Syntax" in one.block for one in fires)
            offset = offset_of(stream.subject(rest), 9 * SECOND) if rest == "spread" else 0
            assert {fire_time_of(one) % SECOND for one in fires} == {offset % SECOND}
        assert b"Nats-Schedule-Next: purge\r\n" in own.block
        assert b"X-End" not in own.block
        assert b"X-Unknown" not in own.block
        await account.api.call(f"STREAM.DELETE.{stream_name}")


# -- changes of the clock --------------------------------------------------------------------------------------------

GAP, FOLD = (0, 3_600), (4, 0)
"""Offsets (s) before and after a change of the clock."""


def changing_zone(change: int, offsets: tuple[int, int]) -> bytes:
    """Return the data of a zone whose offset changes at a second."""
    header = struct.pack(">4sc15x6l", b"TZif", b"\0", 0, 0, 0, 1, 2, 4)
    types = struct.pack(">lBBlBB", offsets[0], 0, 0, offsets[1], 0, 0)
    return header + struct.pack(">lB", change, 1) + types + b"ABC\0"


@pytest.mark.parametrize("version", [V2_10, V2_11, V2_12, V2_15])
async def test_times_that_a_clock_skips_or_shows_twice_fire_as_their_policy_says(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """The clocks are those of zones of our own: one goes forward and one back, while the sidecar runs."""
    monkeypatch.setenv("ZONEINFO", str(tmp_path))
    server, scenes = await start_server(version), {}
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        await account.create("S")
        await running.ready("S")
        stream, change = FlaggedStream(account, "S"), CLOCK.now() // SECOND + 7
        for name, offsets in (("gap", GAP), ("fold", FOLD)):
            (tmp_path / f"{name}-{change}").write_bytes(changing_zone(change, offsets))
        twice = [change - 2, change + 2]
        for value, zone, fires in (
            ("skip,both", "gap", []),
            ("after,first", "gap", [change]),
            ("after,both", "fold", twice),
            ("first", "fold", twice[:1]),
            ("last", "fold", twice[1:]),
        ):
            rest = f"{zone}.{value.replace(',', '-')}"
            local = datetime.fromtimestamp(change + 2, UTC)
            pattern = f"{local.second} {local.minute} {local.hour} * * *"
            more = {"Time-Zone": f"{zone}-{change}", "X-Clock-Change": value}
            headers = stream.headers(pattern, f"out.{rest}", more)
            await stream.publish(rest, {f"X-{header}": text for header, text in headers.items()})
            scenes[rest] = fires
        await stream.wait_for("out.fold.after-both", 2)
        await stream.wait_for("out.fold.last")
        found = {rest: [fire_time_of(one) // SECOND for one in await stream.messages(f"out.{rest}")] for rest in scenes}
        assert found == scenes
        [skipped] = running.of("S", ClockChangeSkipped)
        first, _second = await stream.messages("out.fold.after-both")
    assert (skipped.schedule, skipped.skipped.changed_at) == ("S.gap.skip-both", change * SECOND)
    assert header_value(first.block, b"X-Nats-Schedule-Next") == format_rfc3339(twice[1] * SECOND).encode()


# -- missed fires ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
async def test_each_fire_of_an_outage_is_made_up_in_order(
    emulated_server: EmbeddedServer, account: Account, stream_name: str, retention: str
) -> None:
    """Or as many as a number allows, or none; what was skipped is reported, and a report names the fire before."""
    stream = FlaggedStream(account, stream_name)
    policies = {"all": "all", "bounded": "all 2", "skipped": "skip"}
    async with sidecar_on(emulated_server.url) as first:
        await account.create(stream_name, retention=retention)
        await first.ready(stream_name)
        for rest, policy in policies.items():
            more = {"X-Missed": policy, "X-Report": "true"} | ({} if rest == "all" else {"X-Grace": "1s"})
            await stream.schedule(rest, "@every 1s", target=f"{rest}.out", more=more)
        for rest in policies:
            await stream.wait_for(f"{rest}.out")
    stopped_at = CLOCK.now()
    await eventually(lambda: CLOCK.now() > stopped_at + OUTAGE_NS)
    started_at = CLOCK.now()

    async def times_of(rest: str) -> list[int]:
        return [fire_time_of(one) for one in await stream.messages(f"{rest}.out")]

    async def all_have_fired() -> bool:
        return all([max(await times_of(rest)) > started_at for rest in policies])

    async with sidecar_on(emulated_server.url) as second:
        await second.ready(stream_name)
        await eventually(all_have_fired, describe="fires of after the outage")
        missed = await second.reported(stream_name, FiresMissed, 2)
    times = {rest: await times_of(rest) for rest in policies}
    assert times["all"] == list(range(times["all"][0], times["all"][-1] + SECOND, SECOND))
    assert times["all"][0] < stopped_at < started_at < times["all"][-1]
    assert not [time for time in times["skipped"] if stopped_at < time < started_at - SECOND]
    assert {event.schedule: event.policy for event in missed} == {
        stream.subject("bounded"): "X-Missed: all 2",
        stream.subject("skipped"): "X-Missed: skip",
    }
    reports = [
        [(header_value(one.block, b"X-Nats-Schedule-X-" + name) or b"").decode() for name in (b"Due", b"Previous")]
        for one in await stream.messages("bounded.out")
    ]
    bounded = [format_rfc3339(time) for time in times["bounded"]]
    assert reports == [list(both) for both in zip(bounded, ["", *bounded[:-1]], strict=True)]
    await account.api.call(f"STREAM.DELETE.{stream_name}")


# -- overlap ---------------------------------------------------------------------------------------------------------


def overlap(stream: FlaggedStream, policy: str, target: str, **more: str) -> dict[str, str]:
    """Return the headers of a schedule whose fires do not overlap."""
    policies = {"X-Overlap": policy, "X-Consumer": WORKERS, **{f"X-{name}": value for name, value in more.items()}}
    return stream.headers("@every 1s", target, policies)


async def working(stream: FlaggedStream, rest: str = "out.*") -> Worker:
    """Create the worker of the fires of a stream, and a consumer that keeps its schedules where that needs one."""
    keeper = Worker(stream.account.connection, stream.account.api, stream.name, "keeper")
    await keeper.begin(filter_subject=stream.subject("s.*"))
    worker = Worker(stream.account.connection, stream.account.api, stream.name, WORKERS)
    await worker.begin(filter_subject=stream.subject(rest))
    worker.pull(1_000)
    return worker


@pytest.mark.parametrize("retention", ["limits", "workqueue", "interest"])
async def test_the_next_fire_is_sent_once_the_one_before_is_acknowledged(
    emulated_server: EmbeddedServer, account: Account, stream_name: str, retention: str
) -> None:
    """A fire that was queued is sent by the next sidecar; meanwhile the target has fires of another schedule."""
    stream = FlaggedStream(account, stream_name)

    def taken_of(rest: str) -> list[int]:
        return [one for one in worker.taken if worker.schedule_of(one) == stream.subject(rest)]

    async def takes(rest: str, count: int) -> list[int]:
        await eventually(lambda: len(taken_of(rest)) >= count, describe=f"{count} fires of {rest}")
        return taken_of(rest)

    async with sidecar_on(emulated_server.url) as running:
        await account.create(stream_name, retention=retention)
        worker = await working(stream)
        await running.ready(stream_name)
        for policy in ("skip", "queue"):
            await stream.publish(f"s.{policy}", overlap(stream, policy, f"out.{policy}"))
        await takes("s.queue", 1)
        await stream.schedule("s.other", "@every 2s", target="out.queue")
        [skipping] = await takes("s.skip", 1)
        await running.reported(stream_name, FiresSkipped, 2)
        before = CLOCK.now()
        assert taken_of("s.skip") == [skipping]
        await worker.acknowledge(skipping)
        assert worker.stored_at((await takes("s.skip", 2))[1]) > before
        skipped = [one for one in running.of(stream_name, FiresSkipped) if one.schedule.endswith(".skip")]
        assert sum(event.count for event in skipped) >= 2
        assert running.metrics.value("fires_skipped", stream=stream_name, policy="X-Overlap") >= 2

        def waits() -> bool:
            view = running.sidecar.served[stream_name].engine.view()
            listed = view.schedule(stream.subject("s.queue"), CLOCK.now())
            return listed is not None and listed.state is State.UNFINISHED

        await eventually(waits, describe="it waits for its fire before")
        await takes("s.other", 1)
    before = CLOCK.now()
    async with sidecar_on(emulated_server.url) as running:
        await running.ready(stream_name)
        await takes("s.other", len(taken_of("s.other")) + 1)
        assert len(taken_of("s.queue")) == 1
        for sequence in worker.taken:
            await worker.acknowledge(sequence)
        assert worker.stored_at((await takes("s.queue", 2))[1]) > before
    await account.api.call(f"STREAM.DELETE.{stream_name}")


async def test_a_fire_that_nobody_finishes_times_out(served: Served) -> None:
    heard = HeardAdvisories(served.account.connection, served.name)
    worker = await working(served)
    await served.publish("s.s", overlap(served, "queue", "out.s", Timeout="2500ms"))
    first, second = (await worker.takes(2))[:2]
    assert worker.stored_at(second) >= worker.stored_at(first) + 2_500 * MILLISECOND - SECOND // 4
    [event, *_] = await served.reported(FireTimedOut)
    assert event.unfinished == first
    advisory = await heard.first("fire_timed_out")
    assert (advisory["schedule"], advisory["stored_as"]) == (served.subject("s.s"), first)
    assert (await heard.first("fires_skipped"))["policy"] == "X-Overlap: queue"


async def test_a_consumer_that_is_missing_is_reported_and_awaited(served: Served) -> None:
    heard = HeardAdvisories(served.account.connection, served.name)
    await served.publish("s.s", overlap(served, "queue", "out.s"))
    advisory = await heard.first("finish_unknown")
    assert advisory["reason"] == f"stream {served.name} has no consumer 'workers'"
    [first] = await served.wait_for("out.s")
    worker = await working(served)
    await worker.takes(1)
    await worker.acknowledge(first.sequence)
    await served.wait_for("out.s", 2)
    assert len(served.of(FinishUnknown)) == 1


async def test_a_question_that_is_not_permitted_holds_that_schedule_back_and_no_other(
    start_server: StartServer,
) -> None:
    denied = "$JS.API.CONSUMER.INFO.S.workers"
    held = f'{{ user: sidecar, password: {PASSWORD}, permissions: {{ publish: {{ deny: "{denied}" }} }} }}'
    users = f"authorization {{ users: [{{ user: operator, password: {PASSWORD} }}, {held}] }}\n"
    server = await start_server(V2_11, config=users)
    async with (
        account_on(url_of(server.url, "operator")) as account,
        sidecar_on(url_of(server.url, "sidecar")) as running,
    ):
        heard, stream = HeardAdvisories(account.connection), FlaggedStream(account, "S")
        await account.create("S")
        await running.ready("S")
        await stream.publish("s", overlap(stream, "skip", "out"))
        await stream.publish("timed", overlap(stream, "skip", "timed.out", Timeout="3s"))
        await stream.schedule("other", "@every 1s", target="others")
        assert denied in (await heard.first("finish_unknown"))["reason"]
        await stream.wait_for("others", 3)
        await stream.wait_for("timed.out", 2)
        assert len(await stream.messages("out")) == 1
        assert running.told("permission_denied")


# -- what is owed ------------------------------------------------------------------------------------------------------


async def test_what_was_due_when_its_schedule_was_edited_is_stored_once_as_what_it_was(served: Served) -> None:
    """A jitter delays half of them; the others are about to be sent, or in flight."""
    due = (CLOCK.now() // SECOND + 3) * SECOND
    pattern = f"{due // SECOND % 60} * * * * *"
    notes = [(f"note.{number}", {"X-Jitter": "5s"} if number % 2 else {}) for number in range(12)]
    for rest, more in notes:
        await served.schedule(rest, pattern, b"old", more=more)
    await instant_reached(due, CLOCK.now)
    for rest, more in notes:
        await served.schedule(rest, pattern, b"new", more={**more, "X-Note": "edited"})
    fires = await served.wait_for("out", len(notes))
    assert {(fire.body, fire_time_of(fire)) for fire in fires} == {(b"old", due)}
    assert len({header_value(fire.block, b"Nats-Scheduler") for fire in fires}) == len(fires) == len(notes)
    for rest, _more in notes:
        await served.left(rest, [b"new"])
    assert served.of(FireLostToReplacement) == []


# -- done within a time ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
async def test_a_fire_that_nobody_acknowledged_in_time_is_reported_although_its_schedule_is_gone(
    emulated_server: EmbeddedServer, account: Account, stream_name: str, retention: str
) -> None:
    """One of two is acknowledged; the other one's time is over while no sidecar runs, and a third lies above it."""
    stream, heard = FlaggedStream(account, stream_name), HeardAdvisories(account.connection, stream_name)
    within = {"X-Done-Within": "2s", "X-Consumer": WORKERS}
    async with sidecar_on(emulated_server.url) as running:
        await account.create(stream_name, retention=retention)
        worker = await working(stream)
        await running.ready(stream_name)
        for rest, due in (("s.done", "2020-01-01T00:00:00Z"), ("s.left", "2020-01-02T00:00:00Z")):
            await stream.schedule(rest, f"@at {due}", target="out.jobs", more=within)
            await worker.takes(1 if rest == "s.done" else 2)
        done, left = worker.taken
        await worker.acknowledge(done)
        await stream.schedule(
            "s.later", "@at 2020-01-03T00:00:00Z", target="out.jobs", more={**within, "X-Done-Within": "1h"}
        )
        await worker.takes(3)
        for rest in ("s.done", "s.left", "s.later"):
            await stream.gone(rest)
    deadline = worker.stored_at(left) + 2 * SECOND
    await eventually(lambda: CLOCK.now() > deadline)
    async with sidecar_on(emulated_server.url) as running:
        await running.ready(stream_name)
        [event] = await running.reported(stream_name, FireNotDone)
        assert running.metrics.value("fires_not_done", stream=stream_name) == 1
    assert (event.schedule, event.stored_as, event.within) == (stream.subject("s.left"), left, 2 * SECOND)
    advisory = await heard.first("fire_not_done")
    assert (advisory["stored_as"], advisory["within"], advisory["reason"]) == (left, "2s", "it is unfinished")
    await account.api.call(f"STREAM.DELETE.{stream_name}")


async def test_a_fire_waits_no_more_for_one_that_is_a_dead_letter(served: Served) -> None:
    await served.add_consumer(WORKERS, "out", max_deliver=1, ack_wait=200 * MILLISECOND)
    await served.schedule("s", "@every 1s", more={"X-Overlap": "queue", "X-Consumer": WORKERS})
    await served.take(WORKERS)
    await served.wait_for("out", 2)


# -- pausing ---------------------------------------------------------------------------------------------------------


async def republished(stream: FlaggedStream, rest: str, *, paused: bool, rollup: bool = False) -> int:
    """Store the message on a subject again, paused or resumed, and with a roll-up if the server has to be asked."""
    (message,) = (await stream.messages(rest))[-1:]
    block = (paused_block if paused else resumed_block)(message.block, ADR51)
    headers = dict(line.split(": ", 1) for line in block.decode().split("\r\n")[1:-2])
    headers.pop("Nats-Rollup", None)
    return await stream.publish(rest, {**headers, **({"Nats-Rollup": "sub"} if rollup else {})}, message.body or b"")


async def test_a_paused_schedule_stops_firing_and_a_resumed_one_goes_on(served: Served) -> None:
    await served.schedule("s", "@every 1s", b"body", more={"X-Note": "mine"})
    await served.wait_for("out", 1)
    await republished(served, "s", paused=True)
    assert await served.ended("s") is Ending.PAUSED
    await served.left("s", [b"body"])  # its older versions are purged
    before = await served.messages("out")
    await served.schedule("other", "@every 1s", target="other.out")
    await served.wait_for("other.out", 3)
    assert await served.messages("out") == before, "it fires nothing while others do"
    await republished(served, "s", paused=False)
    fires = await served.wait_for("out", len(before) + 1)
    assert fires[-1].body == b"body"
    assert b"X-" not in fires[-1].block, "a fire has neither the policy nor the state"


async def test_on_a_native_stream_it_is_listed_and_the_server_fires_nothing_even_after_a_crash(
    start_server: StartServer,
) -> None:
    """Without the roll-up the server revives the active version when it builds its index anew."""
    server = await start_server(V2_15)
    async with account_on(server.url) as account:
        await account.create("S", storage="file")
        stream = FlaggedStream(account, "S")
        await stream.schedule("s", "@every 1s")
        await stream.wait_for("out", 1)
        await republished(stream, "s", paused=True, rollup=True)
        before = await stream.messages("out")
    await server.kill()
    await server.restart()
    async with account_on(server.url) as account:
        stream = FlaggedStream(account, "S")
        await stream.schedule("other", "@every 1s", target="other.out")
        await stream.wait_for("other.out", 3)
        assert await stream.messages("out") == before
        words = ["ls", "S", "--json", "-s", server.url, "--no-context"]
        listed = json.loads((await asyncio.to_thread(CliRunner().invoke, main, words)).stdout)["schedules"]
        assert {one["subject"]: one["state"] for one in listed} == {"S.s": "paused", "S.other": "waiting"}
        await republished(stream, "s", paused=False)
        await stream.wait_for("out", len(before) + 1)
