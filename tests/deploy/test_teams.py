"""The configuration for three teams in `docs/operating/security.md` does what the page says, on real servers."""

import ast
import json
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from inspect import isawaitable
from pathlib import Path
from typing import Any

import nats
import pytest

from nats_scheduler.control.errors import ForbiddenError
from nats_scheduler.jetstream.connection import frame
from nats_scheduler.message.headers import EMPTY_BLOCK, header_value, with_headers
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.load import load_settings
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.conftest import StartServer
from tests.harness.account import DRAIN_NS, Account, Running, account_on, sidecar_with
from tests.harness.permissions import (
    DOCUMENT,
    PASSWORD,
    Permission,
    allowing,
    permissions_of,
    shared_account,
    url_of,
    without,
)
from tests.harness.servers import V2_11, V2_15
from tests.harness.waiting import eventually
from tests.service.controlling import Refused, far, request
from tests.site.blocks import Block, blocks_of, commands_of

BLOCKS = [one for one in blocks_of(DOCUMENT) if one.section.startswith(("### Three teams", "### Teams in accounts"))]
FILES = {one.file: one.text for one in BLOCKS if one.file}
TEAMS = ("billing", "orders", "stock")
CONTROL = "nats_scheduler.control.v1"


SCHEDULER = f"user: scheduler, password: {PASSWORD}"


def configuration(block: str, *more: str) -> str:
    """Return the configuration of a server with passwords, and with the permissions that the page names elsewhere."""
    both = {*permissions_of("2.11"), *permissions_of("portable"), *permissions_of("native")}
    targets = [Permission("publish", subject, ()) for subject in ("teams.>", "mail.billing", *more)]
    limited = allowing([*without(without(both, "orders.>"), "jobs.>"), *targets])
    filled = re.sub(r"\$\w+_PASSWORD", PASSWORD, block)
    assert SCHEDULER in filled
    return filled.replace(SCHEDULER, f"{SCHEDULER}, permissions: {limited}")


def settings_for(url: str, folder: Path) -> SidecarSettings:
    """Return the settings of the page; only the server is another one, and the attacks are more than in a minute."""
    file = folder / "sidecar.json"
    file.write_text(FILES["sidecar.json"])
    settings = load_settings({}, {"XDG_CONFIG_HOME": str(folder)}, file)
    rules = tuple(rule.model_copy(update={"changes_per_minute": 60_000}) for rule in settings.control_rules)
    scheduler = ConnectionSettings(servers=(url_of(url, "scheduler"),))
    return settings.model_copy(update={"connection": scheduler, "drain_timeout": DRAIN_NS, "control_rules": rules})


def only(kind: str, section: str) -> Block:
    """Return the last block of a language in a section."""
    return [one for one in BLOCKS if one.kind == kind and one.section == section][-1]


@dataclass
class Teams:
    """The owner of the streams, and the users of the teams with what each has received as its fires."""

    url: str
    owner: Account
    of: dict[str, Account]
    received: dict[str, list[str]]
    running: Running

    async def typed(self, block: Block) -> list[Any]:
        """Send the requests of a block of commands, each as the user of its context, and return the answers."""
        answers = []
        for command in commands_of(block.text):
            program, _context, team, verb, subject, body = shlex.split(command)
            assert (program, verb) == ("nats", "req")
            by, _, endpoint = subject.removeprefix(f"{CONTROL}.for.").partition(".schedules.")
            answers.append(await request(self.of[team].connection, endpoint, body.encode(), by=by))
        return answers


@asynccontextmanager
async def teams_on(start_server: StartServer, version: str, folder: Path) -> AsyncIterator[Teams]:
    """Set up all that the page names."""
    server = await start_server(version, config=configuration(FILES["teams.conf"]))
    settings = settings_for(server.url, folder)
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(account_on(url_of(server.url, "owner")))
        running = await stack.enter_async_context(sidecar_with(settings))
        await owner.create("MAIL", subjects=["mail.*"], allow_msg_schedules=False)
        await owner.create(**json.loads(FILES["teams.json"]))
        await running.ready("TEAMS")
        await running.healthy()
        of: dict[str, Account] = {}
        received: dict[str, list[str]] = {team: [] for team in TEAMS}
        for team in TEAMS:
            config = json.loads(FILES["billing.json"].replace("billing", team))
            await owner.api.call(f"CONSUMER.DURABLE.CREATE.TEAMS.{team}", {"stream_name": "TEAMS", "config": config})
            user = account_on(url_of(server.url, team), inbox_prefix=f"_INBOX.{team}")
            of[team] = await stack.enter_async_context(user)

            def take(subject: bytes, _reply: bytes, _block: bytes, _body: bytes, team: str = team) -> None:
                received[team].append(subject.decode())

            of[team].connection.subscribe(f"deliver.{team}", take)
        of["billing"].connection.subscribe("mail.billing", lambda *_: received["billing"].append("mail.billing"))
        feed = await stack.enter_async_context(account_on(url_of(server.url, "feed"), inbox_prefix="_INBOX.feed"))
        await feed.publish("prices.gold", body=b"75")
        yield Teams(server.url, owner, of, received, running)


def attacks(team: str, victim: str) -> list[tuple[str, dict[str, Any]]]:
    """Return what a team tries against another one: endpoint and body."""
    own, theirs = f"teams.{team}.schedules.x", f"teams.{victim}.schedules.v"
    due, foreign = f"teams.{team}.due.x", f"teams.{victim}.due.v"
    every = ["Nats-Schedule", "@every 1h"]
    portable = ["X-Nats-Schedule", "@every 1h"]
    ever = {"since": "2026-01-01T00:00:00Z", "until": "2100-01-01T00:00:00Z"}
    found: list[tuple[str, dict[str, Any]]] = [
        ("add", {"subject": own, "headers": [every, ["Nats-Schedule-Target", foreign], *more]})
        for more in ([], [["Nats-Schedule-Rollup", "sub"]], [["Nats-Rollup", "sub"]])
    ]
    found += [
        ("add", {"subject": own, "headers": [every, ["Nats-Schedule-Target", due], ["Nats-Schedule-Source", source]]})
        for source in (foreign, theirs)
    ]
    found += [
        ("add", {"subject": own, "headers": [portable, ["X-Nats-Schedule-X-Target", target]]})
        for target in (foreign, "mail.orders", *(["mail.billing"] if team != "billing" else []))
    ]
    found += [("edit", {"subject": own, "set": [["Nats-Schedule-Target", foreign]]})]
    found += [("list", {"filter": subject}) for subject in (theirs, "teams.*.schedules.>", f"teams.{team}.>", ">")]
    for subject in (theirs, f"teams.{victim}.schedules.none"):
        found += [("get", {"subject": subject})]
        found += [(endpoint, {"subject": subject}) for endpoint in ("pause", "resume", "fire", "remove")]
        found += [("backfill", {"subject": subject, **ever}), ("edit", {"subject": subject, "body": "mine"})]
        found += [("add", {"subject": subject, "headers": far(due), "replace": True})]
    # What somebody else has stored on the team's own subject does not fire for it either.
    found += [("fire", {"subject": f"{own}.foreign"}), ("backfill", {"subject": f"{own}.foreign", **ever})]
    return [(endpoint, {"stream": "TEAMS", **body}) for endpoint, body in found]


@pytest.mark.parametrize("version", [V2_11, V2_15])
async def test_each_team_has_what_the_page_gives_it_and_nothing_of_another(
    start_server: StartServer, version: str, tmp_path: Path
) -> None:
    section = "### Three teams in one account"
    given, seen, refused = [one for one in BLOCKS if one.kind == "sh"]
    async with teams_on(start_server, version, tmp_path) as teams:
        answers = await teams.typed(given)
        assert {one["change"] for one in answers} == {"added", "fired"}
        assert answers[0]["author"] == "billing: ada"
        await eventually(lambda: all(teams.received.values()) and len(teams.received["billing"]) == 2)
        assert {team: sorted(set(subjects)) for team, subjects in teams.received.items()} == {
            "billing": ["mail.billing", "teams.billing.due.gold"],
            "orders": ["teams.orders.due.morning"],
            "stock": ["teams.stock.due.count"],
        }
        [gold] = await teams.owner.messages("TEAMS", "teams.billing.due.gold")
        assert gold.body == b"75", "a sample"
        listed, one = await teams.typed(seen)
        assert {each["subject"].split(".")[1] for each in listed["schedules"]} == {"billing"}
        assert one["schedule"]["subject"] in {each["subject"] for each in listed["schedules"]}
        [answer] = await teams.typed(refused)
        shown = only("text", section).text
        assert f"Nats-Service-Error: {answer.sentence}\nNats-Service-Error-Code: {answer.code}\n" == shown
        assert await program(only("python", section).text, teams.url) == ["added"]

        for team in TEAMS:
            await teams.owner.publish(f"teams.{team}.schedules.v", dict(far(f"teams.{team}.due.v")))
            await teams.owner.publish(f"teams.{team}.schedules.x", dict(far(f"teams.{team}.due.x")))
            target = next(other for other in TEAMS if other != team)
            foreign = {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": f"teams.{target}.due.v"}
            await teams.owner.publish(f"teams.{team}.schedules.x.foreign", foreign)
        before = [(await teams.owner.api.stream(name))["state"]["last_seq"] for name in ("TEAMS", "MAIL")]
        for team in TEAMS:
            for victim in set(TEAMS) - {team}:
                for endpoint, body in attacks(team, victim):
                    answer = await request(teams.of[team].connection, endpoint, body, by=team)
                    assert isinstance(answer, Refused), (team, endpoint, body)
                    assert (answer.code, answer.sentence.startswith(f"rule {team!r}, clause ")) == (403, True), answer
            await may_not(teams.of[team], team)
        after = [(await teams.owner.api.stream(name))["state"]["last_seq"] for name in ("TEAMS", "MAIL")]
        assert after == before
        assert len(teams.received["billing"]) == 2
        assert teams.running.told("permission_denied") == []


async def program(text: str, url: str) -> list[str]:
    """Run a program of the page, and return what it prints."""
    printed: list[str] = []
    code = compile(text.replace("nats://127.0.0.1:4222", url), "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names = {"nats": nats, "json": json, "password": PASSWORD, "print": printed.append}
    ran = eval(code, names)  # noqa: S307 - it is the program of the page
    assert isawaitable(ran)
    await ran
    await names["nc"].close()  # type: ignore[attr-defined]
    return printed


async def may_not(team: Account, name: str) -> None:
    """Require that the user of a team may publish nowhere else."""
    others = [other for other in TEAMS if other != name]
    for subject in (
        *(f"{CONTROL}.for.{other}.schedules.pause" for other in others),
        *(f"teams.{any_team}.{what}.x" for any_team in TEAMS for what in ("schedules", "due")),
        f"{CONTROL}.schedules.pause",
        f"{CONTROL}.for.{name}x.schedules.pause",
        "nats_scheduler.v1.schedules.list",
        "$SRV.INFO",
        "$JS.API.INFO",
        "$JS.API.STREAM.MSG.GET.TEAMS",
        f"$JS.API.CONSUMER.MSG.NEXT.TEAMS.{name}",
        f"$JS.ACK.TEAMS.{name}.1.1.1.1.1",
        "prices.gold",
        "mail.billing",
    ):
        with pytest.raises(ForbiddenError):
            await team.connection.request(subject, b"{}")


async def test_a_team_in_an_account_of_its_own_is_held_to_its_rule(start_server: StartServer, tmp_path: Path) -> None:
    config = configuration(only("text", "### Teams in accounts of their own").text, "_R_.>")
    server = await start_server(V2_11, config=config)
    async with (
        account_on(url_of(server.url, "owner")) as owner,
        account_on(url_of(server.url, "billing")) as billing,
        sidecar_with(settings_for(server.url, tmp_path)) as running,
    ):
        await owner.create(**json.loads(FILES["teams.json"]))
        config = json.loads(FILES["billing.json"]) | {"ack_policy": "explicit"}
        consumer = {"stream_name": "TEAMS", "config": config}
        await owner.api.call("CONSUMER.DURABLE.CREATE.TEAMS.billing", consumer)
        received: list[bytes] = []
        billing.connection.subscribe("deliver.billing", lambda _subject, reply, *_: received.append(reply))
        await running.ready("TEAMS")
        await running.healthy()
        body = {"stream": "TEAMS", "subject": "teams.billing.schedules.s", "headers": far("teams.billing.due.x")}
        added = await request(billing.connection, "add", body)
        assert isinstance(added, dict), added
        assert added["author"] == "billing"
        forged = b'NATS/1.0\r\nNats-Request-Info: {"acc":"SCHEDULES","user":"owner"}\r\n\r\n'
        for headers in (far("teams.orders.due.x"), far("teams.orders.schedules.x")):
            sent = json.dumps({**body, "headers": headers, "replace": True}).encode()
            reply = await billing.connection.request(f"{CONTROL}.schedules.add", sent, forged)
            assert header_value(reply.block, b"Nats-Service-Error-Code") == b"403"
            sentence = header_value(reply.block, b"Nats-Service-Error") or b""
            assert sentence.startswith(b"rule 'billing', clause targets: "), sentence
        fired = await request(billing.connection, "fire", {"stream": "TEAMS", "subject": body["subject"]})
        assert isinstance(fired, dict), fired
        await eventually(lambda: received)
        # What the server answers goes to a subject of the team's own account.
        billing.connection.write(frame(received[0].decode(), "teams.orders.schedules.x", b"", b""))

        async def is_acknowledged() -> bool:
            consumer = await owner.api.call("CONSUMER.INFO.TEAMS.billing", {})
            return bool(consumer["ack_floor"]["stream_seq"])

        await eventually(is_acknowledged)
        assert await owner.number_on("TEAMS", "teams.orders.>") == 0


async def test_why_no_team_may_send_requests_to_jetstream_or_publish_into_any_stream(start_server: StartServer) -> None:
    """The server does not check where an answer goes; if one does, the page can grant more."""
    direct = "$JS.API.DIRECT.GET.OTHER.other.x"
    may = [("publish", one) for one in ("$JS.API.INFO", "other.x", direct)] + [("subscribe", "_INBOX.team.>")]
    server = await start_server(V2_15, config=shared_account([[Permission(act, subject, ()) for act, subject in may]]))
    async with (
        account_on(url_of(server.url, "admin-0")) as owner,
        account_on(url_of(server.url, "sidecar-0"), inbox_prefix="_INBOX.team") as team,
    ):
        await owner.create("T")
        await owner.create("OTHER", subjects=["other.>"], allow_msg_schedules=False, allow_direct=True)
        for asked in ("$JS.API.INFO", "other.x"):
            await owner.publish("T.schedules.x", dict(far("T.due")))
            number = await owner.number_on("T", "T.schedules.x")
            team.connection.write(frame(asked, "T.schedules.x", b"", b""))
            ended = await owner.wait_for("T", "T.schedules.x", number + 1)
            assert b"Nats-Schedule" not in ended[-1].block, asked
        block = with_headers(EMPTY_BLOCK, [(b"X-Nats-Schedule", b"@every 1s"), (b"X-Nats-Schedule-Target", b"T.due")])
        await team.connection.request("other.x", b"", block)
        team.connection.write(frame(direct, "T.schedules.y", b"", b""))
        [stored] = await owner.wait_for("T", "T.schedules.y")
        assert header_value(stored.block, b"X-Nats-Schedule") == b"@every 1s"
