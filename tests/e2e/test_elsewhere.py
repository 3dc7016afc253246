"""One stream of schedules for the targets in two others, on a real server.

How fires into other streams are answered and found again is in `tests/contract/test_target_streams.py`.
"""

from collections import Counter
from pathlib import Path

from nats_scheduler.message.headers import MSG_ID, header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MILLISECOND
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, account_on
from tests.harness.flagged import FLAG
from tests.harness.processes import sidecar
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually, instant_reached

SHORT_WINDOW = 200 * MILLISECOND
SCHEDULES = 4
"""Schedules for each of the others."""
OTHERS = {"A": "limits", "B": "workqueue"}
"""The other streams, and how they keep messages."""


async def fires_in(account: Account) -> list[StoredMessage]:
    """Return all fires in the other streams."""
    found = [one for name in OTHERS for one in await account.messages(name, f"{name}.run")]
    return [one for one in found if header_value(one.block, MSG_ID)]


async def test_no_crash_doubles_a_fire_beyond_the_duplicate_window(start_server: StartServer, tmp_path: Path) -> None:
    """The windows last 200 ms, the sidecar stays away for longer, and others publish on the same target."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("CRON", storage="file", **FLAG)
        more = {"allow_msg_schedules": False, "duplicate_window": SHORT_WINDOW, "storage": "file"}
        for name, retention in OTHERS.items():
            await account.create(name, retention=retention, **more)
            for number in range(SCHEDULES):
                headers = {"X-Nats-Schedule": "@every 3s", "X-Nats-Schedule-X-Target": f"{name}.run"}
                await account.publish(f"CRON.{name}.{number}", headers)
        allowed = ("--allowed-targets-elsewhere", ",".join(f"CRON={name}.>" for name in OTHERS))
        for life in range(3):
            with sidecar("run", "-s", server.url, *allowed, folder=tmp_path, name=f"life-{life}") as process:
                await process.wait_for_line("stream_ready")
                since = CLOCK.now()

                async def most_have_fired(since: int = since) -> bool:
                    """Return whether there are fires that no checkpoint contains yet."""
                    later = [one for one in await fires_in(account) if one.stored_at > since]
                    return len({header_value(one.block, b"X-Nats-Scheduler") for one in later}) > SCHEDULES

                await eventually(most_have_fired, describe="most schedules fire")
            for name in OTHERS:
                await account.publish(f"{name}.run", body=b"of others")
            await instant_reached(CLOCK.now() + 2 * SHORT_WINDOW, CLOCK.now)
        identities = Counter(header_value(one.block, MSG_ID) for one in await fires_in(account))
        assert [identity for identity, count in identities.items() if count > 1] == []
