"""A target is no request: no schedule makes the sidecar use a right of its own, however its account reaches others."""

from nats_scheduler.engine.events import FireRefused
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, Running, account_on, sidecar_on, sidecar_with
from tests.harness.flagged import FLAG, FlaggedStream, at
from tests.harness.servers import V2_11
from tests.service.controlling import Refused, request

PREFIX = "fromA.API"
"""Under which the sidecar's account imports `$JS.API`."""

DELETES = f"{PREFIX}.STREAM.DELETE.VICTIM"
"""In the owner's account an ordinary subject; in the sidecar's, a request to JetStream."""

SUBJECTS = ("$KV.nats_scheduler.>", "EVIL.>", "GOOD.>", "VICTIM.>")
"""On which the sidecar publishes to the owner's account, beside requests to JetStream."""


def two_accounts() -> str:
    """Return the configuration of a server where the sidecar's account imports the JetStream of another one."""
    exports = ", ".join(f'{{ service: "{subject}" }}' for subject in SUBJECTS)
    imports = ", ".join(f'{{ service: {{ account: OWNER, subject: "{subject}" }} }}' for subject in SUBJECTS)
    api = f'{{ service: {{ account: OWNER, subject: "$JS.API.>" }}, to: "{PREFIX}.>" }}'
    return f"""accounts {{
        OWNER {{
            jetstream: enabled
            users: [{{ user: owner, password: p }}]
            exports: [{{ service: "$JS.API.>", response: stream }}, {exports}]
        }}
        SIDECAR {{ users: [{{ user: sidecar, password: p }}], imports: [{api}, {imports}] }}
    }}
    """


async def refused(running: Running, stream: str, target: str) -> FireRefused:
    """Wait until a fire to a target was refused, and return how."""
    [first, *_] = await running.reported(stream, FireRefused)
    assert first.fire.target == target
    return first  # type: ignore[no-any-return]


async def test_no_schedule_is_a_request_to_an_imported_jetstream(
    start_server: StartServer,
) -> None:
    server = await start_server(V2_11, config=two_accounts())
    owner, guest = (server.url.replace("nats://", f"nats://{user}:p@") for user in ("owner", "sidecar"))
    settings = SidecarSettings(connection=ConnectionSettings(servers=(guest,), js_api_prefix=PREFIX))
    async with account_on(owner) as account:
        evil, good = await _with_a_victim(account, DELETES)
        async with sidecar_with(settings) as running:
            await running.ready("EVIL")
            await running.ready("GOOD")
            await evil.publish("s", {"Nats-Schedule": at(CLOCK.now()), "Nats-Schedule-Target": DELETES}, b"")
            await evil.canary()
            await good.canary()
            outcome = await refused(running, "EVIL", DELETES)
            assert (outcome.code, "on which they take requests" in outcome.description) == (10190, True)
            await evil.schedule("sampling", at(CLOCK.now()), more={"Source": DELETES})
            _target, source = await running.reported("EVIL", FireRefused, 2)
            assert (source.fire.schedule, source.code) == ("EVIL.sampling", 10203)
        assert await account.api.stream("VICTIM") is not None, "it was deleted with the rights of the sidecar"
        assert await account.messages("EVIL", DELETES) == []


async def test_no_schedule_is_a_request_to_a_sidecar(start_server: StartServer) -> None:
    removes = "nats_scheduler.control.v1.schedules.remove"
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        evil, good = await _with_a_victim(account, removes)
        async with sidecar_on(server.url, allow_control=True) as running:
            await running.ready("EVIL")
            await running.ready("VICTIM")
            kept = await FlaggedStream(account, "VICTIM").schedule("s", "@every 1h")
            removal = b'{"stream": "VICTIM", "subject": "VICTIM.s"}'
            await evil.publish("s", {"Nats-Schedule": at(CLOCK.now()), "Nats-Schedule-Target": removes}, removal)
            await evil.canary()
            await good.canary()
            assert (await refused(running, "EVIL", removes)).code == 10190
            [left] = await FlaggedStream(account, "VICTIM").messages("s")
            assert left.sequence == kept
            # The subject of another team is not reached by asking for such a schedule either.
            headers = [["Nats-Schedule", "@every 1h"], ["Nats-Schedule-Target", removes]]
            asked = {"stream": "EVIL", "subject": "EVIL.t", "headers": headers}
            answer = await request(account.connection, "add", asked)
            assert isinstance(answer, Refused)
            assert (answer.code, removes in answer.sentence) == (422, True)


async def _with_a_victim(account: Account, subject: str) -> tuple[FlaggedStream, FlaggedStream]:
    """Create a stream that a tenant made with a subject, one of another tenant, and the one that is attacked."""
    await account.create("VICTIM", **FLAG)
    await account.create("EVIL", **{**FLAG, "subjects": ["EVIL.>", subject]})
    await account.create("GOOD", **FLAG)
    return FlaggedStream(account, "EVIL"), FlaggedStream(account, "GOOD")
