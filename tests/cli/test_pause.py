"""`nats-scheduler pause`, `resume` and `rm`: on one schedule, on what a wildcard matches, and on a file of subjects."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from nats_scheduler.message.reading import read_generated
from nats_scheduler.schedule.instants import SECOND
from tests.cli.changing_site import FAR, Cli, Site
from tests.harness.account import WAIT_SECONDS
from tests.harness.waiting import eventually

PAST = "2020-01-01T00:00:00Z"


async def pattern_of(site: Site, rest: str) -> str:
    """Return the name of the header that holds the pattern of a schedule."""
    return next(name for name in await site.headers(rest) if not name.endswith("-Target"))


async def test_a_schedule_is_paused_and_resumed_byte_for_byte(site: Site) -> None:
    before = await site.publish("s", f"@at {FAR}", X_Note="a note")
    original = await site.headers("s")
    paused = await site.run("pause", site.subject("s"), "--reason", "maintenance")
    assert (paused.exit_code, paused.stdout) == (
        0,
        f"{site.subject('s')} paused: sequence {before + 1} in place of {before}\n",
    )
    assert await pattern_of(site, "s") == f"{site.prefix}Nats-Schedule-X-Paused"
    again = await site.run("pause", site.subject("s"))
    assert (again.exit_code, "is paused already" in again.stderr) == (1, True), again.stderr
    resumed = await site.done("resume", site.subject("s"))
    assert [one["change"] for one in resumed["changes"]] == ["resumed"]
    assert await site.headers("s") == original
    twice = await site.run("resume", site.subject("s"))
    assert (twice.exit_code, "is not paused" in twice.stderr) == (1, True), twice.stderr


async def test_a_time_that_has_passed_fires_at_once_or_is_dropped(site: Site) -> None:
    x = f"{site.prefix}Nats-Schedule"
    for rest in ("s", "t"):
        headers = {f"{x}-X-Paused": f"@at {PAST}", f"{x}-Target": site.subject("out")}
        await site.account.publish(site.subject(rest), headers)
    would = await site.done("resume", site.subject("s"), "--dry-run")
    assert "fires at once" in would["changes"][0]["notes"][0]
    dropped = await site.done("resume", site.subject("t"), "--drop")
    assert (dropped["changes"][0]["change"], dropped["changes"][0]["sequence"]) == ("removed", None)
    assert await site.last("t") is None
    assert await site.last("s") is not None


async def test_a_wildcard_needs_yes_where_nobody_can_be_asked(site: Site) -> None:
    await site.publish("s", f"@at {FAR}")
    for command in ("pause", "resume", "rm"):
        said = await site.run(command, site.subject(">"))
        assert (said.exit_code, "--yes is needed" in said.stderr) == (2, True), said.stderr
    message = await site.last("s")
    assert message is not None
    assert message.sequence == 1


async def test_what_a_wildcard_matches_is_paused_resumed_and_removed(site: Site) -> None:
    for rest in ("a.1", "a.2", "b.1"):
        await site.publish(rest, f"@at {FAR}")
    await site.account.publish(site.subject("a.3"), body=b"no schedule")
    one = site.subject("a.1")
    await site.done("pause", one)
    assert "--dry-run" not in one
    would = await site.done("pause", site.subject("a.*"), "--dry-run")
    assert [each["subject"] for each in would["changes"]] == [site.subject("a.2")]
    paused = await site.run("pause", site.subject("a.*"), "--yes")
    assert paused.stdout.splitlines() == [f"{site.subject('a.2')} paused: sequence 6 in place of 2"]
    none = await site.run("pause", site.subject("a.*"), "--yes")
    assert (none.exit_code, "2 match, and each is paused already" in none.stderr) == (1, True), none.stderr
    resumed = await site.run("resume", site.subject(">"), "--yes")
    assert resumed.stdout.splitlines()[-1] == f"stream {site.stream}: 2 resumed"
    removed = await site.done("rm", site.subject(">"), "--yes")
    assert [each["subject"] for each in removed["changes"]] == [site.subject(rest) for rest in ("a.1", "a.2", "b.1")]
    assert await site.last("a.1") is None
    assert await site.last("a.3") is not None
    nothing = await site.run("rm", site.subject(">"), "--yes")
    assert (nothing.exit_code, "none matches" in nothing.stderr) == (1, True), nothing.stderr


async def test_a_failure_of_one_does_not_stop_the_others(site: Site, tmp_path: Path) -> None:
    for rest in ("a", "b", "c"):
        await site.publish(rest, f"@at {FAR}")
    await site.account.publish(site.subject("b"), body=b"no schedule")
    file = tmp_path / "subjects"
    file.write_text("".join(f"{site.subject(rest)}\n" for rest in ("a", "b", "gone", "c", "a")) + "\n")
    paused = await site.run("pause", "--from-file", str(file), "--json")
    document = json.loads(paused.stdout)
    assert paused.exit_code == 1
    assert [one["subject"] for one in document["changes"]] == [site.subject("a"), site.subject("c")]
    errors = {one["subject"]: one["err_code"] for one in document["errors"]}
    assert errors == {site.subject("b"): 10037, site.subject("gone"): 10037}
    again = await site.run("pause", site.subject("a"), site.subject("c"))
    assert [line for line in again.stderr.splitlines() if "warning" not in line] == [
        f"nats-scheduler: error: {site.subject(rest)} is paused already" for rest in ("a", "c")
    ]
    said = await site.run("rm", "--from-file", str(file))
    assert said.exit_code == 1
    assert said.stdout.splitlines()[-1] == f"stream {site.stream}: 2 removed, 2 failed"
    assert [line.split()[2] for line in said.stderr.splitlines()] == [
        f"{site.subject('b')}:",
        f"{site.subject('gone')}:",
    ]


async def test_a_sidecar_fires_what_is_active_and_not_what_is_paused(site: Site) -> None:
    if site.is_native:
        return  # the server fires it, and begins the interval anew
    async with site.served():
        out, words = site.subject("out"), ("--target", site.subject("out"))
        every_second = ("add", site.subject("s"), "--every", "1s", *words)

        async def is_served() -> bool:
            return not (await site.done(*every_second, "--dry-run"))["warnings"]

        await eventually(is_served, within_seconds=WAIT_SECONDS, describe="the sidecar is known to serve the stream")
        await site.done(*every_second)
        await site.account.wait_for(site.stream, out)
        await site.done("pause", site.subject("s"))
        fired = len(await site.account.messages(site.stream, out))
        await site.done("add", site.subject("t"), "--after", "3s", "--target", site.subject("later"))
        await site.account.wait_for(site.stream, site.subject("later"))
        # One fire may have been in flight when the schedule was paused.
        assert len(await site.account.messages(site.stream, out)) <= fired + 1
        await site.done("resume", site.subject("s"))
        await site.account.wait_for(site.stream, out, fired + 3)
        fires = [read_generated(one.block) for one in await site.account.messages(site.stream, out)]
        assert len({fire.fire_time % SECOND for fire in fires if fire is not None}) == 1, "the phase is kept"


async def test_a_paused_schedule_fires_at_once_when_it_is_resumed_after_its_time(site: Site) -> None:
    async with nullcontext() if site.is_native else site.served():
        await site.publish("s", f"@at {FAR}")
        await site.done("pause", site.subject("s"))
        await site.done("edit", site.subject("s"), "--after", "1s")
        await site.done("add", site.subject("t"), "--after", "2s", "--target", site.subject("later"))
        await site.account.wait_for(site.stream, site.subject("later"))
        assert await site.last("out") is None
        resumed = await site.done("resume", site.subject("s"))
        assert "fires at once" in resumed["changes"][0]["notes"][0]
        assert len(await site.account.wait_for(site.stream, site.subject("out"))) == 1


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("S",), "expected SUBJECT…, or --from-file"),
        (("S", "S.s", "--from-file", "/nonexistent"), "expected SUBJECT…, or --from-file"),
        (("S", "--from-file", "/nonexistent"), "/nonexistent: No such file"),
        (("S.S", "S.s"), "'S.S': expected the name of a stream"),
        (("S", "S..s"), "'S..s': expected a subject such as"),
        (("S", "S.s", "--by", "x" * 257), "--by has 257 characters: expected at most 256"),
        (("S", "S.>"), "--yes is needed"),
    ],
)
@pytest.mark.parametrize("command", ["pause", "resume", "rm"])
def test_wrong_use_is_found_before_a_server_is_asked(
    cli: Cli, command: str, words: tuple[str, ...], error: str
) -> None:
    said = cli(command, *words, "--server", "nats://127.0.0.1:1")
    assert (said.exit_code, error in said.stderr) == (2, True), said.stderr
