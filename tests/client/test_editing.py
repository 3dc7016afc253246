"""An edit changes what it names, in the spelling that the schedule has, and nothing else."""

from contextlib import AsyncExitStack
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from nats_scheduler.client import ConflictError, Kind, NotPossibleError, RejectedError
from nats_scheduler.client.edit_spelling import Wish, edit_of
from nats_scheduler.client.when import InvalidScheduleError, at, cron, every
from nats_scheduler.control.edits import MAX_EDIT_ATTEMPTS, edit_latest
from nats_scheduler.control.words import publishable_again
from nats_scheduler.message.headers import header_items
from tests.client.conftest import Connect
from tests.client.worlds import FAR, entered
from tests.conftest import SharedServer
from tests.control.world import SUBJECT, World, block
from tests.harness.servers import V2_11, V2_15

HOUR = timedelta(hours=1)


async def edited(world: World, wish: Wish, prefix: str = "") -> dict[str, str]:
    """Edit the schedule of a world; return its headers by their names without the prefix."""
    wish.check()
    await edit_latest(world.store, "S", SUBJECT, lambda found: edit_of(wish, found, world.time))
    found = header_items(publishable_again(world.last().block))
    return {name.decode().removeprefix(f"{prefix}Nats-Schedule"): value.decode() for name, value in found}


FULL = {"Nats_Schedule_TTL": "5m", "Nats_Schedule_X_Missed": "skip", "Trace": "a"}
STORED = {"": "@daily", "-Target": "S.out", "-TTL": "5m", "-X-Missed": "skip", "Trace": "a"}


@pytest.mark.parametrize("prefix", ["", "X-"])
async def test_only_what_is_named_is_changed(prefix: str) -> None:
    every_hour = every(HOUR).policies(missed="all")
    cases: list[tuple[Wish, dict[str, str | None]]] = [
        (Wish(body=b"new"), {}),
        (Wish(target="S.other"), {"-Target": "S.other"}),
        (Wish(given={"ttl": HOUR, "rollup": True}), {"-TTL": "1h0m0s", "-Rollup": "sub"}),
        (Wish(headers={"Trace": "b", "Order": "7"}), {"Trace": "b", "Order": "7"}),
        (Wish(policies={"missed": None, "note": "x"}), {"-X-Missed": None, "-X-Note": "x"}),
        (Wish(unset=["ttl", "x-missed", "Trace"]), {"-TTL": None, "-X-Missed": None, "Trace": None}),
        (Wish(unset=("source", "tz", "rollup")), {}),
        (Wish(when=cron("@hourly", "Europe/Berlin")), {"": "@hourly", "-Time-Zone": "Europe/Berlin"}),
        (
            Wish(when=every_hour, policies={"missed": 3, "limit": 2}),
            {"": "@every 1h0m0s", "-X-Missed": "all 3", "-X-Limit": "2"},
        ),
    ]
    named = {name if name == "Trace" else prefix.replace("-", "_") + name: value for name, value in FULL.items()}
    for wish, changes in cases:
        world = World(allow_msg_ttl=True)
        world.put(block("@daily", prefix, **named))
        expected = {name: value for name, value in (STORED | changes).items() if value is not None}
        assert await edited(world, wish, prefix) == expected, wish
        assert world.last().body == (b"body" if wish.body is None else wish.body)
    world = World(allow_msg_ttl=True)
    sequence = world.put(block("@daily", prefix, **named))
    await edited(
        world, Wish(when=cron("@daily"), target="S.out", policies={"missed": "skip"}, unset=["source"]), prefix
    )
    assert world.last().sequence == sequence, "an edit that changes nothing stores nothing"
    world.put(block("@daily", Nats_Schedule_X_Except="2026-12-25, calendar:shop"))
    headers = await edited(world, Wish(policies={"except_days": [date(2026, 12, 24)]}))
    assert headers["-X-Except"] == "2026-12-24,calendar:shop", "calendars that are not named stay"


async def test_a_pattern_takes_its_zone_and_its_syntax_with_it() -> None:
    world = World()
    more = {"X_Nats_Schedule_Time_Zone": "Europe/Berlin", "X_Nats_Schedule_X_Syntax": "crontab"}
    world.put(block("0 9 * * 1-5", "X-", **more))
    assert await edited(world, Wish(when=every(HOUR)), "X-") == {"": "@every 1h0m0s", "-Target": "S.out"}
    quartz = Wish(when=cron("0 0 9 L * ?", syntax="quartz"))
    assert await edited(world, quartz, "X-") == {"": "0 0 9 L * ?", "-Target": "S.out", "-X-Syntax": "quartz"}


async def test_the_same_interval_in_other_words_is_no_change() -> None:
    for stored in ("@every 1h", "@every 60m0s"):
        world = World()
        sequence = world.put(block(stored))
        first = (await world.found()).timetable().first_fire()
        world.after(600)
        assert (await edited(world, Wish(when=every(HOUR))))[""] == stored
        assert world.last().sequence == sequence
        await edited(world, Wish(when=every(HOUR), body=b"new"))
        found = await world.found()
        assert (found.pattern, found.message.body, found.timetable().first_fire()) == (stored, b"new", first)


async def test_an_edit_is_made_to_what_another_client_has_stored() -> None:
    world = World(allow_msg_ttl=True)
    world.put(block("@daily"))
    world.store.wire.interruptions.append(lambda: world.put(block("@hourly", "X-"), b"theirs"))
    assert await edited(world, Wish(given={"ttl": HOUR}), "X-") == {"": "@hourly", "-Target": "S.out", "-TTL": "1h0m0s"}
    assert world.last().body == b"theirs"


async def test_others_may_be_faster_only_so_often() -> None:
    world = World()
    world.put(block("@daily"))
    bodies = iter([b"%d" % number for number in range(MAX_EDIT_ATTEMPTS)])
    for _ in range(MAX_EDIT_ATTEMPTS):
        world.store.wire.interruptions.append(lambda: world.put(block("@daily"), next(bodies)))
    with pytest.raises(ConflictError):
        await edited(world, Wish(body=b"mine"))
    assert world.last().body == b"%d" % (MAX_EDIT_ATTEMPTS - 1)


async def test_what_would_break_the_schedule_changes_nothing() -> None:
    wrong: list[tuple[dict[str, Any], type[Exception]]] = [
        ({}, ValueError),
        ({"headers": {}, "policies": {}}, ValueError),
        ({"unset": "ttl"}, TypeError),
        ({"headers": {"Nats-Schedule-TTL": "1h"}}, InvalidScheduleError),
        ({"headers": {"Nats-Trace-Only": "true"}}, InvalidScheduleError),
        ({"given": {"ttl": timedelta(milliseconds=5)}}, InvalidScheduleError),
    ]
    for given, error in wrong:
        with pytest.raises(error):
            Wish(**given).check()  # before a server is asked
    world = World(allow_msg_ttl=True)
    sequence = world.put(block())
    breaking: list[tuple[Wish, type[Exception]]] = [
        (Wish(target="S.a\r\nX: y"), InvalidScheduleError),
        (Wish(policies={"start": datetime(2027, 1, 1)}), ValueError),  # noqa: DTZ001
        (Wish(given={"ttl": HOUR}, unset=["ttl"]), NotPossibleError),
        (Wish(headers=[("A", "1"), ("A", "2")]), NotPossibleError),
        (Wish(unset=["target"]), RejectedError),
        (Wish(policies={"limit": 0}), RejectedError),
        (Wish(when=cron("0 9 * * 1", syntax="crontab")), RejectedError),
    ]
    for wish, error in breaking:
        with pytest.raises(error):
            await edited(world, wish)
        assert world.last().sequence == sequence, wish


@pytest.mark.parametrize(("version", "sidecar"), [(V2_11, True), (V2_15, False)])
async def test_a_program_edits_a_schedule_and_it_fires_so(
    shared_server: SharedServer, stream_name: str, connect: Connect, version: str, sidecar: bool
) -> None:
    async with AsyncExitStack() as stack:
        url = (await shared_server(version)).url
        world = await entered(stack, url, stream_name, connect, sidecar=sidecar, allow_msg_ttl=True)
        schedules, subject, out = world.schedules, world.subject("s"), world.subject("out")
        created = await schedules.create(subject, at(FAR), b"old", target=out, headers=[("A", "1"), ("A", "2")])
        would = await schedules.edit(subject, body=b"new", ttl=HOUR, headers={"B": "3"}, dry_run=True)
        assert (would.kind, would.sequence, (await schedules.get(subject)).body) == (
            Kind.EDITED,
            created.sequence,
            b"old",
        )
        change = await schedules.edit(subject, body=b"new", ttl=HOUR, headers={"B": "3"}, reason="asked")
        assert (change.kind, change.before, change.author.reason) == (Kind.EDITED, created.sequence, "asked")
        again = await schedules.edit(subject, body=b"new", ttl=HOUR, headers={"B": "3"})
        assert (again.kind, again.sequence) == (Kind.UNCHANGED, change.sequence)
        found = await schedules.get(subject)
        own = [pair for pair in found.form.headers if not pair[0].startswith("Nats-")]
        assert (found.when, found.body, found.form.ttl, own) == (
            at(FAR),
            b"new",
            "1h0m0s",
            [("A", "1"), ("A", "2"), ("B", "3")],
        )
        with pytest.raises(ConflictError):
            await schedules.edit(subject, body=b"lost", expected=created.sequence)
        if found.is_fired_by_server:
            with pytest.raises(NotPossibleError, match="only a sidecar heeds X-Limit"):
                await schedules.edit(subject, policies={"limit": 3})
        else:
            await schedules.edit(subject, policies={"limit": 3})
            assert (await schedules.get(subject)).form.policies == (("X-Limit", "3"),)
        await schedules.edit(subject, when=at(datetime(2020, 1, 1, tzinfo=UTC)), unset=["ttl", "A"])
        (fired,) = await world.account.wait_for(world.stream, out)
        names = {name for name, _value in header_items(fired.block)}
        assert (fired.body, b"A" in names, b"B" in names, b"Nats-TTL" in names) == (b"new", False, True, False)
