"""`nats-scheduler add`: what would be rejected is not stored, and what is there already stays as it is."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.cli.changing_site import FAR, PORTABLE, Cli, Site, site_on
from tests.conftest import SharedServer
from tests.harness.account import CLOCK, WAIT_SECONDS
from tests.harness.processes import sidecar
from tests.harness.servers import V2_10, V2_11, V2_12
from tests.harness.waiting import eventually

WITHOUT_TTLS = {V2_10}
"""Where only a sidecar remembers that a stream allows TTLs, and none runs here."""

REPLICAS = 5


async def test_a_schedule_is_added_once_with_all_that_is_given(site: Site) -> None:
    ttl = () if site.kind in WITHOUT_TTLS else ("--ttl", "5m")
    words = (
        *(site.subject("s"), "the body", "--cron", "0 30 9 * * mon-fri", "--tz", "Europe/Berlin"),
        *("--target", site.subject("out"), "--source", site.subject("sample"), "--rollup", *ttl),
        *("--policy", "note=for the shop", "-H", "Trace-Id: 7f3a"),
    )
    first = await site.done("add", *words)
    assert (first["change"], first["sequence_before"], first["author"]) == ("added", None, "ops")
    is_portable = site.kind in (PORTABLE, V2_12)  # a server of 2.12 fires @at only
    assert first["dialect"] == ("portable" if is_portable else "adr51")
    x = "X-Nats-Schedule" if is_portable else "Nats-Schedule"
    headers = await site.headers("s")
    assert headers.pop(f"{x}-TTL", None) == (ttl[1] if ttl else None)
    assert headers == {
        x: "0 30 9 * * mon-fri",
        f"{x}-Time-Zone": "Europe/Berlin",
        f"{x}-Rollup": "sub",
        f"{x}-Target": site.subject("out"),
        f"{x}-Source": site.subject("sample"),
        f"{x}-X-Note": "for the shop",
        "Trace-Id": "7f3a",
    }
    message = await site.last("s")
    assert message is not None
    assert (message.body, message.sequence) == (b"the body", first["sequence"])
    again = await site.done("add", *words)
    assert (again["change"], again["sequence"]) == ("unchanged", first["sequence"])
    assert again["next_fire"] == first["next_fire"]
    other = (site.subject("s"), "--at", FAR, "--target", site.subject("out"))
    refused = await site.run("add", *other)
    assert (refused.exit_code, "another schedule is stored there" in refused.stderr) == (1, True), refused.stderr
    replaced = await site.done("add", *other, "--replace")
    assert (replaced["sequence_before"], replaced["next_fire"]["utc"]) == (first["sequence"], FAR)


async def test_the_first_fire_is_said(site: Site) -> None:
    before = CLOCK.now()
    said = await site.run("add", site.subject("s"), "--after", "2h", "--target", site.subject("out"))
    assert (said.exit_code, said.stdout.splitlines()[0]) == (0, f"{site.subject('s')} added: sequence 1"), said.output
    line = said.stdout.splitlines()[1].split()
    assert line[:3] == ["first", "fire", "at"]
    fire = parse_rfc3339(line[3].rstrip(","))
    assert isinstance(fire, int)
    assert before + 2 * HOUR - SECOND <= fire <= CLOCK.now() + 2 * HOUR + SECOND


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--every", "500ms"), "(server code 10189)\n"),
        (("--cron", "often"), "Nats-Schedule of 'often' is not a valid pattern"),
        (("--cron", "@daily", "--tz", "Nowhere"), "Nats-Schedule-Time-Zone of 'Nowhere' is not a time zone"),
        (("--at", FAR, "--target", "elsewhere"), "Nats-Schedule-Target of 'elsewhere' is not a subject of stream"),
        (("--at", FAR, "--source", "S.*"), "Nats-Schedule-Source of 'S.*' is not a literal subject"),
        (("--at", FAR, "--ttl", "soon"), "Nats-Schedule-TTL of 'soon' is not a duration"),
        (
            ("--at", FAR, "--policy", "limit=0", "--portable"),
            "expected 1 to 1,000 (a rule of nats-scheduler, not of the server)\n",
        ),
    ],
)
async def test_what_would_be_rejected_is_refused_with_the_code_of_the_server(
    site: Site, options: tuple[str, ...], error: str
) -> None:
    said = await site.run("add", site.subject("s"), "--target", site.subject("out"), *options)
    assert (said.exit_code, error in said.stderr) == (1, True), said.stderr
    assert await site.last("s") is None


async def test_a_policy_is_written_where_it_has_an_effect(site: Site) -> None:
    words = ("--at", FAR, "--target", site.subject("out"))
    added = await site.done("add", site.subject("s"), *words, "--policy", "X-Jitter=30s")
    is_emulated = site.kind in (V2_10, V2_11)
    assert added["dialect"] == ("adr51" if is_emulated else "portable")
    prefix = "" if is_emulated else "X-"
    assert (await site.headers("s"))[f"{prefix}Nats-Schedule-X-Jitter"] == "30s"
    labelled = await site.done("add", site.subject("t"), *words, "--policy", "owner=shop")
    assert labelled["dialect"] == ("portable" if site.kind == PORTABLE else "adr51")
    asked = await site.done("add", site.subject("u"), *words, "--portable")
    assert asked["dialect"] == "portable"


async def test_a_dry_run_says_what_would_be_done_and_stores_nothing(site: Site) -> None:
    words = (site.subject("s"), "--at", FAR, "--target", site.subject("out"))
    said = await site.run("add", *words, "--dry-run")
    assert said.stdout.splitlines()[0] == f"{site.subject('s')} would be added"
    assert said.stdout.splitlines()[1].startswith(f"  first fire at {FAR}, in 17")
    assert await site.last("s") is None
    await site.done("add", *words)
    assert (await site.done("add", *words, "--dry-run"))["change"] == "unchanged"
    other = (site.subject("s"), "--at", FAR, "--target", site.subject("other"), "--replace", "--dry-run")
    assert (await site.done("add", *other))["change"] == "edited"
    message = await site.last("s")
    assert message is not None
    assert message.sequence == 1


async def test_a_schedule_that_nothing_fires_is_stored_with_a_warning(site: Site) -> None:
    said = await site.run("add", site.subject("s"), "--at", FAR, "--target", site.subject("out"))
    assert (said.exit_code, "no sidecar is running" in said.stderr) == (0, not site.is_native), said.stderr


async def test_what_the_server_gets_a_little_wrong_stays_with_it_if_no_sidecar_runs(site: Site) -> None:
    words = (site.subject("s"), "--every", "90500ms", "--target", site.subject("out"))
    alone = await site.done("add", *words)
    is_rounded = site.is_native and site.kind != V2_12  # a server of 2.12 fires @at only
    expected = ["the server rounds each fire time to the second"] if is_rounded else []
    spelling = "portable" if site.kind in (PORTABLE, V2_12) else "adr51"
    assert (alone["dialect"], alone["notes"]) == (spelling, expected)
    async with site.served():

        async def exact() -> bool:
            planned = await site.done("add", *words, "--replace", "--dry-run")
            return (planned["dialect"], planned["notes"]) == ("portable" if is_rounded else spelling, [])

        await eventually(exact, within_seconds=WAIT_SECONDS, describe="the command finds the sidecar")


async def test_replicas_that_add_the_same_at_start_store_it_once(
    cli: Cli, shared_server: SharedServer, stream_name: str, tmp_path: Path
) -> None:
    server = await shared_server(V2_10)
    async with site_on(cli, server.url, V2_10, stream_name) as site:
        words = ("--every", "1h", "--target", site.subject("out"), "--policy", "owner=shop", "--server", server.url)
        command = ("add", site.stream, site.subject("s"), *words)
        with ExitStack() as replicas:
            started = [
                replicas.enter_context(sidecar(*command, folder=tmp_path, name=f"replica-{number}"))
                for number in range(REPLICAS)
            ]
            assert [await one.wait_for_exit() for one in started] == [0] * REPLICAS
            said = sorted(one.stdout.splitlines()[0] for one in started)
        added = f"{site.subject('s')} added: sequence 1"
        unchanged = f"{site.subject('s')} unchanged: sequence 1"
        assert said == [added, *[unchanged] * (REPLICAS - 1)]


async def test_a_body_is_taken_from_a_file_byte_for_byte(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "body"
    file.write_bytes(bytes(range(256)))
    words = (site.subject("s"), "--at", FAR, "--target", site.subject("out"), "--body-file", str(file))
    await site.done("add", *words)
    message = await site.last("s")
    assert message is not None
    assert message.body == bytes(range(256))
    assert (await site.done("add", *words))["change"] == "unchanged"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("S", "S.s", "--target", "S.out"), "expected one of --at, --after, --every or --cron"),
        (("S", "S.s", "--every", "5m"), "expected --target"),
        (("S", "S.s", "--every", "5m", "--at", FAR, "--target", "a"), "expected only one of --at"),
        (("S", "S.s", "--at", "2200-01-01T00:00:00", "--target", "a"), "--at of '2200-01-01T00:00:00': expected a"),
        (("S", "S.s", "--after", "soon", "--target", "a"), "--after of 'soon': expected a duration above zero"),
        (("S", "S.s", "--after", "0s", "--target", "a"), "--after of '0s': expected a duration above zero"),
        (("S", "S.*", "--every", "5m", "--target", "a"), "'S.*': expected the subject of a schedule"),
        (("S.S", "S.s", "--every", "5m", "--target", "a"), "'S.S': expected the name of a stream"),
        (("S", "S.s", "b", "--body-file", "f", "--every", "5m", "--target", "a"), "a BODY or --body-file, not both"),
        (("S", "S.s", "--body-file", "/nonexistent", "--every", "5m", "--target", "a"), "/nonexistent: No such file"),
        (("S", "S.s", "--every", "5m", "--target", "a", "--policy", "jiter=1s"), "--policy of 'jiter=1s': expected"),
        (("S", "S.s", "--every", "5m", "--target", "a", "--policy", "jitter"), "expected NAME=VALUE"),
        (("S", "S.s", "--every", "5m", "--target", "a", "-H", "no colon"), "expected 'Name: value'"),
        (("S", "S.s", "--every", "5m", "--target", "a", "-H", "Nats-Schedule-TTL: 5m"), "the other options"),
        (("S", "S.s", "--every", "5m", "--target", "a", "--reason", "x" * 257), "--reason has 257 characters"),
        (("S", "S.s", "--every", "5m\n", "--target", "a"), "expected text without line breaks"),
    ],
)
def test_wrong_use_is_found_before_a_server_is_asked(cli: Cli, words: tuple[str, ...], error: str) -> None:
    said = cli("add", *words, "--server", "nats://127.0.0.1:1")
    assert (said.exit_code, error in said.stderr) == (2, True), said.stderr
