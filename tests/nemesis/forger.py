"""A hostile client that may write into the sidecars' bucket, and so forges records of owners and heartbeats.

Its rule: what it writes has the form of what sidecars write, since anything else is ignored.
"""

import asyncio
import json

from nats_scheduler.jetstream.value_formats import marked
from nats_scheduler.message.foreign_json import Object
from tests.harness.account import Account
from tests.harness.waiting import time_reached
from tests.nemesis.ground import BUCKET, STREAM
from tests.nemesis.scenario import Strike

EVERY_SECONDS = 0.1
"""The interval (s) at which it writes."""
KEY = f"emulated.{STREAM}"
"""The name of the stream under test in records and heartbeats."""
PREFIX = "$KV.nats_scheduler."
NOBODY = "nobody"
MANY = 20
"""Sidecars that do not exist."""


async def forge(account: Account, strike: Strike) -> None:
    """Write what a strike says for as long as it lasts."""
    loop = asyncio.get_running_loop()
    until = loop.time() + strike.lasts
    number = 0
    while loop.time() < until:
        number += 1
        if strike.way == "heartbeats":
            await _write(account, f"instance.{NOBODY}-{number % MANY}", {"serves": [KEY]})
        else:
            owner = NOBODY if strike.way == "owner-nobody" else await _one_of(account, strike.victim)
            await _write(account, f"owner.{KEY}", {"owner": owner, "before": "", "reason": "first"})
        await time_reached(loop.time() + EVERY_SECONDS)


async def _one_of(account: Account, number: int) -> str:
    """Return the name of one of the sidecars, counted round."""
    heartbeats = await account.messages(BUCKET, f"{PREFIX}instance.*")
    names = [one.subject.removeprefix(f"{PREFIX}instance.") for one in heartbeats if one.body]
    return names[number % len(names)] if names else NOBODY


async def _write(account: Account, key: str, value: Object) -> None:
    await account.publish(f"{PREFIX}{key}", body=json.dumps(marked(key, value)).encode())
