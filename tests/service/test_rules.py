"""A team that has a rule changes its own schedules, and nothing that it tries reaches those of another team.

`tests/deploy/test_teams.py` has the permissions of the server beside them.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.change_endpoints import CONTROL_SUBJECTS
from nats_scheduler.service.micro import TOO_MANY_REQUESTS, ServiceError
from nats_scheduler.service.rules import Rule
from nats_scheduler.settings.control_rules import ControlRule
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, account_on, in_seconds, sidecar_on
from tests.harness.servers import V2_11, V2_15
from tests.service.controlling import ENDPOINTS, Refused, far, request

OWN, OTHER = "t.a.schedules.own", "t.b.schedules.s"
FOREIGN = "t.a.schedules.foreign"
"""Schedules on subjects of team `a` that the owner of the stream has stored, and that the team could not store."""
DAILY = "0 0 9 * * *"


def rule(name: str, **more: Any) -> ControlRule:
    """Return the rule of a team; its targets include the subjects of its schedules, as those of a careless operator."""
    given: dict[str, Any] = {
        "streams": ("T",),
        "subjects": (f"t.{name}.schedules.>",),
        "targets": (f"t.{name}.>",),
        "targets_elsewhere": (f"mail.{name}",),
        "sources": ("t.prices.*",),
        "policies": ("X-Missed",),
        "shortest_interval": "1m",
        "changes_per_minute": 60_000,
    }
    return ControlRule(name=name, **(given | more))


RULES = (rule("a"), rule("b", policies=None), rule("ab", may=("add",)))


@asynccontextmanager
async def teams_on(start_server: StartServer, version: str) -> AsyncIterator[Account]:
    """Serve the schedules of some teams in one stream; give its owner."""
    server = await start_server(version)
    allowed = ("T=mail.>", "T=P.>")
    async with (
        sidecar_on(server.url, control_rules=RULES, allowed_targets_elsewhere=allowed) as running,
        account_on(server.url) as owner,
    ):
        await owner.create("MAIL", subjects=["mail.>"], allow_msg_schedules=False)
        await owner.create("P")
        await owner.create("T", subjects=["t.>", "T.>"], allow_msg_ttl=True)
        await running.ready("T")
        await running.healthy()
        for subject, headers in (
            ("t.prices.gold", {"Carat": "18"}),
            (OWN, dict(far("t.a.due")) | {"Nats-Msg-Id": "once"}),
            (OTHER, dict(far("t.b.due"))),
            (f"{FOREIGN}.target", {"Nats-Schedule": DAILY, "Nats-Schedule-Target": "t.b.due"}),
            (f"{FOREIGN}.source", dict(far("t.a.due")) | {"Nats-Schedule-Source": OTHER}),
            (f"{FOREIGN}.paused", {"Nats-Schedule-X-Paused": DAILY, "Nats-Schedule-Target": "t.b.due"}),
        ):
            await owner.publish(subject, headers)
        yield owner


def additions(prefix: str) -> list[tuple[str, list[list[str]]]]:
    """Return what team `a` may not store: headers in one spelling, or in both, with the clause that forbids them."""
    name, other = f"{prefix}Nats-Schedule", "Nats-Schedule" if prefix else "X-Nats-Schedule"
    at, own = [name, f"@at {in_seconds(3600)}"], [f"{name}-Target", "t.a.due"]
    twin = [[other, at[1]], [f"{other}-Target", "t.b.due"]]
    targets = ["t.b.due", "t.ab.due", "t.A.due", "T.a.due", "t.a", "t.a.>", "t.*.due", "t.a..due", "", "t.a.due t.b"]
    targets += [OTHER, OWN, "t.a.schedules.new", "$JS.API.STREAM.PURGE.T", "$KV.nats_scheduler.x", CONTROL_SUBJECTS]
    sources = [OTHER, "t.b.due", "t.a.due", "t.prices.*", "t.>"]
    found: dict[str, list[list[list[str]]]] = {
        "targets": [[at, [f"{name}-Target", one]] for one in targets],
        "sources": [[at, own, [f"{name}-Source", one]] for one in sources],
        "targets_elsewhere": [
            *([at, [f"{name}-X-Target", one]] for one in ("mail.b", "mail.*", "t.b.due", "P.x")),
            [at, own, [f"{name}-X-Target", "mail.b"]],
        ],
        "headers": [
            [at, own, [f"{name}-Target", "t.b.due"]],
            [at, [f"{name}-Target", "t.b.due"], own],
            [at, ["A", f"{name}-Target: t.b.due"], own],
            [at, ["A", f"{name}-Target{name}-Target"], own],
            [at, own, *twin],
            [*twin, at, own],
            [at, own, [f"{name}r", OTHER], [f"{name}-Next", "purge"]],
            [at, own, [f"{other}r", OTHER], [f"{other}-Next", "purge"]],
            [at, own, ["nats-schedule-target", "t.b.due"]],
            [at, own, ["Nats-Rollup", "sub"], ["Nats-Rollup", "all"]],
            [at, own, ["nats-rollup", "all"]],
            [at, own, ["Nats-Msg-Id", f"nats-scheduler:3:0:{OTHER}"]],
            [at, own, ["Nats-Marker-Reason", "Purge"]],
        ],
        "policies": [[at, own, [f"{name}-X-Note", "n"]]],
        "shortest_interval": [[[name, one], own] for one in ("@every 59s", "* * * * * *", "0,59 59 * * * *")],
    }
    return [(clause, headers) for clause, some in found.items() for headers in some]


EVER = {"since": "2026-01-01T00:00:00Z", "until": "2100-01-01T00:00:00Z"}
FILLED: dict[str, dict[str, Any]] = {"add": {"headers": far("t.a.due")}, "edit": {"body": "mine"}, "backfill": EVER}
"""What a request of each endpoint needs beside stream and subject."""


def requests() -> list[tuple[str, str, dict[str, Any]]]:
    """Return the attacks of team `a`: the clause that forbids it, the endpoint, and the body beside the stream."""
    found: list[tuple[str, str, dict[str, Any]]] = []
    for prefix in ("", "X-"):
        new = {"subject": "t.a.schedules.new"}
        found += [(clause, "add", {**new, "headers": headers}) for clause, headers in additions(prefix)]
    found += [
        ("targets", "add", {"subject": OWN, "replace": True, "headers": far("t.b.due")}),
        ("targets", "edit", {"subject": OWN, "set": [["Nats-Schedule-Target", "t.b.due"]]}),
        ("sources", "edit", {"subject": OWN, "set": [["Nats-Schedule-Source", OTHER]]}),
        ("headers", "edit", {"subject": OWN, "set": [["X-Nats-Schedule-Target", "t.b.due"]]}),
        ("headers", "edit", {"subject": OWN, "set": [["Nats-Scheduler", OTHER]]}),
        ("policies", "edit", {"subject": OWN, "set": [["Nats-Schedule-X-Owner", "b"]]}),
        ("shortest_interval", "edit", {"subject": OWN, "set": [["Nats-Schedule", "@every 1s"]]}),
        *(("targets", one, {"subject": f"{FOREIGN}.target", **FILLED.get(one, {})}) for one in ("edit", "backfill")),
        *(("sources", one, {"subject": f"{FOREIGN}.source", **FILLED.get(one, {})}) for one in ("fire", "edit")),
        *(("targets", one, {"subject": f"{FOREIGN}.paused"}) for one in ("resume", "fire")),
    ]
    foreign = [OTHER, "t.b.schedules.none", "t.ab.schedules.s", "t.a.due", "t.A.schedules.own"]
    for endpoint in ENDPOINTS:
        more = FILLED.get(endpoint, {})
        found += [("subjects", endpoint, {"subject": subject, **more}) for subject in foreign]
        found += [("subjects", endpoint, {"subject": OTHER, "expected": 3, **more})]
        found += [("streams", endpoint, {"stream": name, "subject": OWN, **more}) for name in ("P", "NONE")]
    return found


async def last_of(owner: Account, stream: str) -> int:
    """Return the sequence of the last message of a stream."""
    return int((await owner.api.stream(stream))["state"]["last_seq"])


async def test_a_team_reaches_nothing_of_another(start_server: StartServer) -> None:
    async with teams_on(start_server, V2_15) as owner:
        before = await last_of(owner, "T")
        for clause, endpoint, body in requests():
            for dry_run in (True, False):
                asked: dict[str, Any] = {"stream": "T", **body, "dry_run": dry_run}
                answer = await request(owner.connection, endpoint, asked, by="a")
                assert isinstance(answer, Refused), (asked, answer)
                assert answer.sentence.startswith(f"rule 'a', clause {clause}: "), (asked, answer)
                assert answer.code == 403, answer
                assert (answer.server_code, answer.last_sequence) == (None, None), "nothing is said of what is there"
        for subject in ("t.a.schedules.*", "t.*.schedules.s", ">"):
            wide = await request(owner.connection, "remove", {"stream": "T", "subject": subject}, by="a")
            assert isinstance(wide, Refused)
            assert (wide.code, "without wildcards" in wide.sentence) == (400, True), wide
        reads = [("list", "filter", subject) for subject in (OTHER, "t.*.schedules.>", "t.a.>", "t.>", ">", "t.a*.x")]
        for endpoint, key, subject in [*reads, ("get", "subject", OTHER), ("get", "subject", "t.b.schedules.none")]:
            unseen = await request(owner.connection, endpoint, {"stream": "T", key: subject}, by="a")
            assert isinstance(unseen, Refused)
            assert (unseen.code, unseen.sentence.partition(": ")[0]) == (403, "rule 'a', clause subjects"), unseen
        limited = await request(owner.connection, "pause", {"stream": "T", "subject": "t.ab.schedules.s"}, by="ab")
        assert limited == Refused(403, "rule 'ab', clause may: 'pause' is not allowed: expected add")
        plain = await request(owner.connection, "pause", {"stream": "T", "subject": OWN})
        assert isinstance(plain, Refused)
        assert "allow_control is off" in plain.sentence, "a rule opens the subjects of its name and no others"
        for stream in ("T", "MAIL", "P"):
            assert await last_of(owner, stream) == (before if stream == "T" else 0), stream


async def test_a_team_does_all_that_its_rule_allows(start_server: StartServer) -> None:
    async with teams_on(start_server, V2_11) as owner:

        async def change(endpoint: str, subject: str = "t.a.schedules.new", **more: Any) -> str:
            body = {"stream": "T", "subject": subject, "author": "ada", **more}
            answer = await request(owner.connection, endpoint, body, by="a")
            assert isinstance(answer, dict), answer
            assert answer["author"] == "a: ada"
            return str(answer["change"])

        hourly = [["Nats-Schedule", "@every 1h"], ["Nats-Schedule-Target", "t.a.due.gold"], ["Nats-TTL", "1h"]]
        sampled = [["Nats-Schedule-Source", "t.prices.gold"], ["Nats-Schedule-Rollup", "sub"]]
        anchor = format_rfc3339((CLOCK.now() // SECOND - 7200) * SECOND)
        policies = [["Nats-Schedule-X-Missed", "skip"], ["Nats-Schedule-X-Anchor", anchor]]
        assert await change("add", headers=[*hourly, *sampled]) == "added"
        assert await change("edit", set=[["Greeting", "hello"]], body="text") == "edited"
        assert await change("pause") == "paused"
        assert await change("fire") == "fired"
        assert await change("resume") == "resumed"
        assert await change("remove") == "removed"
        [fire] = await owner.messages("T", "t.a.due.gold")
        assert b"Carat: 18" in fire.block, "a sample"
        elsewhere = [["X-Nats-Schedule", "@every 1m"], ["X-Nats-Schedule-X-Target", "mail.a"]]
        assert await change("add", "t.a.schedules.mail", headers=elsewhere) == "added"
        assert await change("fire", "t.a.schedules.mail") == "fired"
        await owner.wait_for("MAIL", "mail.a")
        past, target = "t.a.schedules.past", ["Nats-Schedule-Target", "t.a.past"]
        assert await change("add", past, headers=[hourly[0], target, *policies]) == "added"
        assert await change("backfill", past, since=anchor, until=in_seconds(-1800)) == "backfilled"
        listed = await request(owner.connection, "list", {"stream": "T"}, by="a")
        assert isinstance(listed, dict)
        subjects = {one["subject"] for one in listed["schedules"]}
        assert {past, OWN, f"{FOREIGN}.source"} <= subjects
        assert all(subject.startswith("t.a.schedules.") for subject in subjects)
        # What others have stored on its subject, it can stop, and replace by what is allowed.
        assert await change("pause", f"{FOREIGN}.target") == "paused"
        assert await change("edit", f"{FOREIGN}.target", set=[["Nats-Schedule-Target", "t.a.due"]]) == "edited"
        assert await change("remove", f"{FOREIGN}.source") == "removed"


def test_a_rule_has_its_requests_in_a_minute_and_more_as_time_passes() -> None:
    now = [0.0]
    limited = Rule(rule("a", changes_per_minute=2), (), lambda: now[0])

    def taken(at: float) -> bool:
        now[0] = at
        try:
            limited.take_a_turn()
        except ServiceError as refused:
            expected = "rule 'a', clause changes_per_minute: more than 2 requests in a minute: ask later"
            return (refused.code, refused.sentence) != (TOO_MANY_REQUESTS, expected)
        return True

    assert [taken(at) for at in (0, 0, 0, 29, 30, 59, 60, 60, 1000, 1000, 1000)] == [
        *(True, True, False, False, True, False, True, False, True, True, False)
    ]
