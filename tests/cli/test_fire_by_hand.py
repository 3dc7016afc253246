"""`nats-scheduler fire` and `backfill`: fires that were asked for, beside those of the schedule, and none twice."""

from __future__ import annotations

import pytest

from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339
from tests.cli.changing_site import FAR, Cli, Site
from tests.harness.account import CLOCK, WAIT_SECONDS
from tests.harness.waiting import eventually

BODY = b"\x00 a body \xff"


async def test_a_schedule_fires_once_and_is_not_changed(site: Site) -> None:
    sequence = await site.publish("s", f"@at {FAR}")
    would = await site.done("fire", site.subject("s"), "--dry-run")
    assert (would["change"], await site.last("out")) == ("fired", None)
    fired = await site.done("fire", site.subject("s"), "--reason", "the consumer lost it")
    assert (fired["change"], fired["sequence"], len(fired["fires"])) == ("fired", sequence, 1)
    [fire] = await site.account.messages(site.stream, site.subject("out"))
    assert fire.body == b"body"
    said = await site.run("fire", site.subject("s"))
    assert said.stdout.splitlines()[0].startswith(f"{site.subject('s')} fired once, beside its schedule, with the fire")
    assert len(await site.account.messages(site.stream, site.subject("out"))) == 2
    message = await site.last("s")
    assert message is not None
    assert message.sequence == sequence


async def test_a_paused_schedule_can_be_fired_and_one_that_is_not_there_cannot(site: Site) -> None:
    await site.publish("s", f"@at {FAR}")
    await site.done("pause", site.subject("s"))
    await site.done("fire", site.subject("s"))
    assert len(await site.account.messages(site.stream, site.subject("out"))) == 1
    gone = await site.run("fire", site.subject("gone"))
    assert (gone.exit_code, "server code 10037" in gone.stderr) == (1, True), gone.stderr


async def test_missing_fires_are_stored_once(site: Site) -> None:
    grid = ("--every", "1h", "--policy", "anchor=2026-01-01T00:00:00Z")
    await site.done("add", site.subject("s"), "a body", *grid, "--target", site.subject("out"))
    hour = CLOCK.now() // HOUR * HOUR
    times = [format_rfc3339(hour - ago * HOUR) for ago in (5, 4, 3)]
    past = ("--from", times[0], "--to", times[2])
    few = await site.run("backfill", site.subject("s"), *past, "--limit", "2")
    assert (few.exit_code, "3 fires are missing" in few.stderr) == (1, True), few.stderr
    would = await site.done("backfill", site.subject("s"), *past, "--dry-run")
    assert (would["change"], would["fires"], await site.last("out")) == ("backfilled", times, None)
    said = await site.run("backfill", site.subject("s"), *past, "--reason", "the outage")
    assert said.stdout.splitlines()[:4] == [
        f"{site.subject('s')} backfilled: 3 fires",
        *(f"  {time}" for time in times),
    ]
    stored = await site.account.messages(site.stream, site.subject("out"))
    assert [message.body for message in stored] == [b"a body"] * 3
    again = await site.done("backfill", site.subject("s"), *past)
    assert (again["change"], again["fires"], "no fire is missing" in again["notes"]) == ("unchanged", [], True)
    assert len(await site.account.messages(site.stream, site.subject("out"))) == 3


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("backfill", "S", "S.s", "--from", "2026-01-01T00:00:00Z"), "Missing option '--to'"),
        (("backfill", "S", "S.s", "--from", "yesterday", "--to", FAR), "--from of 'yesterday': expected a time"),
        (("backfill", "S", "S.s", "--from", "2026-01-01", "--to", FAR), "--from of '2026-01-01': expected a time"),
        (("backfill", "S", "S.s", "--from", FAR, "--to", "2026-01-01T00:00:00Z"), f"--from of '{FAR}' is later than"),
        (("backfill", "S", "S.*", "--from", FAR, "--to", FAR), "'S.*': expected the subject of a schedule"),
        (("backfill", "S", "S.s", "--from", FAR, "--to", FAR, "--limit", "1001"), "--limit"),
        (("fire", "S", "S.*"), "'S.*': expected the subject of a schedule"),
        (("fire", "S.S", "S.s"), "'S.S': expected the name of a stream"),
    ],
)
def test_wrong_use_is_found_before_a_server_is_asked(cli: Cli, words: tuple[str, ...], error: str) -> None:
    said = cli(*words, "--server", "nats://127.0.0.1:1")
    assert (said.exit_code, error in said.stderr) == (2, True), said.stderr


async def test_what_was_missed_in_an_outage_is_stored_beside_the_make_up_fire(site: Site) -> None:
    if site.is_native:
        return  # the server was there all the time
    out = site.subject("out")
    async with site.served():
        await site.done("add", site.subject("s"), "--every", "1s", "--target", out)
        await site.account.wait_for(site.stream, out, 2)
    until = CLOCK.now() + 4 * SECOND
    await eventually(lambda: CLOCK.now() > until, within_seconds=WAIT_SECONDS, describe="the outage lasts")
    async with site.served():
        number = len(await site.account.messages(site.stream, out))
        await site.account.wait_for(site.stream, out, number + 3)
        times = await fire_times(site)
        past = ("--from", format_rfc3339(times[0]), "--to", format_rfc3339(times[-1]))
        backfilled = await site.done("backfill", site.subject("s"), *past)
        assert len(backfilled["fires"]) >= 2
        filled = [time for time in await fire_times(site) if time <= times[-1]]
    assert filled == [*range(times[0], times[-1] + 1, SECOND)], "each fire time once"


async def fire_times(site: Site) -> list[int]:
    """Return the fire times (ns) of the fires that are stored, in their order."""
    found = (await site.done("history", site.subject("s"), "--limit", "1000"))["fires"]
    times = [parse_rfc3339(one["fire_time"]) for one in found]
    return sorted(time for time in times if isinstance(time, int))
