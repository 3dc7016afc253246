"""Store three schedules with nats-py, receive what they fire, replace one and end another.

    python due_orders.py nats://127.0.0.1:4222

Without an argument the server is that of `NATS_URL`.
"""

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta

import nats
from nats.js.api import StreamConfig


async def main(url: str) -> None:
    """Say what fired, what is replaced and what is ended."""
    nc = await nats.connect(url)
    js = nc.jetstream()

    # Both may be repeated: a stream or consumer with the same configuration is left as it is.
    await js.add_stream(StreamConfig(name="ORDERS", subjects=["orders.>"], allow_msg_schedules=True))
    due = await js.pull_subscribe("orders.due", durable="due", stream="ORDERS")

    soon = datetime.now(UTC) + timedelta(seconds=2)
    once = {"Nats-Schedule": f"@at {soon.isoformat()}", "Nats-Schedule-Target": "orders.due"}
    await js.publish("orders.schedules.reminder", b"remind of order 17", headers=once)

    each_second = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "orders.due"}
    await js.publish("orders.schedules.pulse", b"pulse", headers=each_second)

    report = {
        "Nats-Schedule": "*/2 * * * * *",
        "Nats-Schedule-Time-Zone": "Europe/Berlin",
        "Nats-Schedule-Target": "orders.due",
    }
    await js.publish("orders.schedules.report", b"open orders", headers=report)

    # Receive and acknowledge fires until each schedule has fired.
    fired: dict[str, str] = {}
    while len(fired) < 3:
        for message in await due.fetch(1, timeout=30):
            headers = message.headers or {}
            is_last = headers["Nats-Schedule-Next"] == "purge"
            follows = "for the last time" if is_last else "and fires again"
            fired[headers["Nats-Scheduler"]] = f"{message.data.decode()}, {follows}"
            await message.ack()
    for schedule, what in sorted(fired.items()):
        print(f"{schedule} fired: {what}")

    # The last message on the subject of a schedule counts, so another one replaces it.
    weekdays = report | {"Nats-Schedule": "0 30 9 * * mon-fri"}
    await js.publish("orders.schedules.report", b"open orders", headers=weekdays)
    print("orders.schedules.report is replaced")

    # To end a schedule, purge its subject.
    await js.purge_stream("ORDERS", subject="orders.schedules.pulse")
    print("orders.schedules.pulse is ended")
    await nc.close()


if __name__ == "__main__":
    default = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else default))
