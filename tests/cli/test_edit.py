"""`nats-scheduler edit`: only what is named is changed, and no edit of another client is lost."""

from __future__ import annotations

import pytest

from nats_scheduler.cli.changing import How
from nats_scheduler.cli.define import Given, edited_schedule
from nats_scheduler.control.changes import NOBODY, Change, Kind
from nats_scheduler.control.errors import ConflictError
from nats_scheduler.schedule.instants import HOUR
from tests.cli.changing_site import FAR, PORTABLE, Cli, Site
from tests.control.memory_schedules import MemorySchedules
from tests.harness.servers import V2_10, V2_11, V2_14, V2_15

OTHER = "2201-01-01T00:00:00Z"
BODY = b"\x00 a body \xff"


async def test_only_what_is_named_is_changed(site: Site) -> None:
    x = f"{site.prefix}Nats-Schedule"
    block = f"{x}: @at {FAR}\r\nOwn:  odd \t\r\n{x}-Target: {site.subject('out')}\r\nOwn: twice\r\n{x}-X-Note: old\r\n"
    before = await site.account.publish_block(site.subject("s"), f"NATS/1.0\r\n{block}\r\n".encode(), BODY)
    edited = await site.done("edit", site.subject("s"), "--at", OTHER, "--policy", "note=new", "--reason", "later")
    assert (edited["change"], edited["sequence_before"], edited["reason"]) == ("edited", before, "later")
    assert edited["next_fire"]["utc"] == OTHER
    message = await site.last("s")
    assert message is not None
    assert message.body == BODY
    wanted = f"{x}: @at {OTHER}\r\nOwn:  odd \t\r\n{x}-Target: {site.subject('out')}\r\nOwn: twice\r\n"
    assert wanted.encode() in message.block
    assert f"\r\n{x}-X-Note: new\r\n".encode() in message.block
    again = await site.done("edit", site.subject("s"), "--at", OTHER, "--policy", "note=new")
    assert (again["change"], again["sequence"]) == ("unchanged", edited["sequence"])


async def test_a_body_and_headers_are_changed_and_removed(site: Site) -> None:
    await site.publish("s", f"@at {FAR}", X_Note="old", Rollup="sub")
    words = ("new body", "-H", "Own: 1", "--unset", "rollup", "--unset", "x-note")
    await site.done("edit", site.subject("s"), *words)
    x = f"{site.prefix}Nats-Schedule"
    assert await site.headers("s") == {x: f"@at {FAR}", f"{x}-Target": site.subject("out"), "Own": "1"}
    said = await site.run("edit", site.subject("s"), "--unset", "Own", "--unset", "source")
    assert (said.exit_code, f"has no {x}-Source: there is nothing to remove" in said.stderr) == (0, True), said.stderr
    message = await site.last("s")
    assert message is not None
    assert message.body == b"new body"
    assert "Own" not in await site.headers("s")


async def test_an_edit_of_another_version_is_refused(site: Site) -> None:
    first = await site.publish("s", f"@at {FAR}")
    second = await site.publish("s", f"@at {OTHER}")
    late = await site.run("edit", site.subject("s"), "--ttl", "never", "--expect", str(first))
    assert (late.exit_code, "server code 10071" in late.stderr) == (1, True), late.stderr
    assert (await site.done("edit", site.subject("s"), "new body", "--expect", str(second)))["change"] == "edited"


async def test_what_an_edit_would_break_is_refused(site: Site) -> None:
    before = await site.publish("s", f"@at {FAR}")
    for words, error in (
        (("--tz", "Europe/Berlin"), "10189"),
        (("--target", "elsewhere"), "10190"),
        (("--unset", "target"), "10190"),
    ):
        said = await site.run("edit", site.subject("s"), *words)
        assert (said.exit_code, error in said.stderr) == (1, True), said.stderr
    gone = await site.run("edit", site.subject("gone"), "--at", FAR)
    assert (gone.exit_code, "server code 10037" in gone.stderr) == (1, True), gone.stderr
    message = await site.last("s")
    assert message is not None
    assert message.sequence == before


async def test_a_policy_without_effect_is_refused(site: Site) -> None:
    await site.publish("s", f"@at {FAR}")
    said = await site.run("edit", site.subject("s"), "--policy", "jitter=30s")
    if site.kind in (V2_10, V2_11, PORTABLE):
        assert said.exit_code == 0, said.stderr
    else:
        expected = "the server fires this schedule, and only a sidecar heeds X-Jitter: replace the schedule"
        assert (said.exit_code, expected in said.stderr) == (1, True), said.stderr


async def test_a_paused_schedule_is_edited_and_stays_paused(site: Site) -> None:
    await site.publish("s", f"@at {FAR}")
    await site.done("pause", site.subject("s"))
    edited = await site.done("edit", site.subject("s"), "--at", OTHER)
    assert (edited["change"], edited["paused"], edited["next_fire"]) == ("edited", True, None)
    x = f"{site.prefix}Nats-Schedule"
    assert await site.headers("s") == {f"{x}-X-Paused": f"@at {OTHER}", f"{x}-Target": site.subject("out")}


async def test_a_dry_run_says_what_would_be_changed(site: Site) -> None:
    before = await site.publish("s", f"@at {FAR}")
    said = await site.run("edit", site.subject("s"), "--at", OTHER, "--dry-run")
    lines = said.stdout.splitlines()
    assert lines[0] == f"{site.subject('s')} would be edited"
    assert lines[1].startswith(f"  next fire at {OTHER}")
    message = await site.last("s")
    assert message is not None
    assert message.sequence == before


async def test_the_phase_of_an_interval_stays_unless_the_server_fires_it(site: Site) -> None:
    added = await site.done("add", site.subject("s"), "--every", "1h", "--target", site.subject("out"))
    edited = await site.done("edit", site.subject("s"), "new body")
    fired_by_server = site.kind in (V2_14, V2_15)
    assert any("X-Anchor" in name for name in await site.headers("s")) is not fired_by_server
    assert any("begins anew" in note for note in edited["notes"]) is fired_by_server
    if not fired_by_server:
        assert len({one["next_fire"]["nanoseconds"] % HOUR for one in (added, edited)}) == 1


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("S", "S.s"), "nothing is to be changed"),
        (("S", "S.*", "--ttl", "5m"), "expected the subject of a schedule"),
        (("S", "S.s", "--ttl", "5m", "--expect", "0"), "--expect"),
        (("S", "S.s", "--every", "5m", "--after", "5m"), "expected only one of"),
    ],
)
def test_wrong_use_is_found_before_a_server_is_asked(cli: Cli, words: tuple[str, ...], error: str) -> None:
    said = cli("edit", *words, "--server", "nats://127.0.0.1:1")
    assert (said.exit_code, error in said.stderr) == (2, True), said.stderr


async def test_what_is_changed_and_removed_at_once_is_wrong_use(site: Site) -> None:
    await site.publish("s", f"@at {FAR}")
    said = await site.run("edit", site.subject("s"), "--ttl", "5m", "--unset", "ttl")
    assert (said.exit_code, "is to be changed twice" in said.stderr) == (2, True), said.stderr


# -- other clients ---------------------------------------------------------------------------------------------

NOW = 1_800_000_000_000_000_000
HOW = How(NOBODY, dry_run=False, as_json=False)


def stored_in_memory(pattern: str) -> MemorySchedules:
    store = MemorySchedules(lambda: NOW)
    store.wire.add_stream({"name": "S", "subjects": ["S.>"], "allow_msg_schedules": True})
    store.wire.streams["S"].publish("S.s", block_of(pattern, "by the first"), b"")
    return store


def block_of(pattern: str, note: str) -> bytes:
    headers = f"Nats-Schedule: {pattern}\r\nNats-Schedule-Target: S.out\r\nNats-Schedule-X-Note: {note}\r\n"
    return f"NATS/1.0\r\n{headers}\r\n".encode()


async def edited_in(store: MemorySchedules, given: Given) -> Change:
    change, _left = await edited_schedule(store, await store.served("S"), "S.s", given, (), None, HOW)
    return change


async def test_the_edit_of_another_client_in_between_is_kept() -> None:
    store = stored_in_memory("@daily")
    store.wire.interruptions.append(
        lambda: store.wire.streams["S"].publish("S.s", block_of("@daily", "by the other"), b"")
    )
    change = await edited_in(store, Given(pattern="@hourly"))
    assert (change.kind, change.before, change.after) == (Kind.EDITED, 2, 3)
    message = await store.last("S", "S.s")
    assert message is not None
    assert b"Nats-Schedule: @hourly\r\n" in message.block
    assert b"X-Note: by the other" in message.block


async def test_an_edit_ends_if_others_change_the_schedule_all_the_time() -> None:
    store = stored_in_memory("@daily")
    blocks = iter([block_of("@daily", f"by {number}") for number in range(100)])
    store.wire.interruptions.extend([lambda: store.wire.streams["S"].publish("S.s", next(blocks), b"")] * 100)
    with pytest.raises(ConflictError):
        await edited_in(store, Given(pattern="@hourly"))
    assert len(store.wire.interruptions) > 50
