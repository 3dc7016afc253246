"""Store three schedules with FastStream, receive what they fire, replace one and end another.

    python due_orders_app.py nats://127.0.0.1:4222

Without an argument the server is that of `NATS_URL`.
"""

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta

from faststream import FastStream
from faststream.nats import JStream, NatsBroker, NatsMessage
from faststream.nats.schemas import Schedule

default = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")
broker = NatsBroker(sys.argv[1] if len(sys.argv) > 1 else default, logger=None)
app = FastStream(broker, logger=None)

# FastStream creates the stream at its start; one with the same configuration is left as it is.
orders = JStream("ORDERS", subjects=["orders.>"], allow_msg_schedules=True)

fired: dict[str, str] = {}
all_fired = asyncio.Event()


@broker.subscriber("orders.due", stream=orders, durable="due", pull_sub=True)
async def due(body: str, message: NatsMessage) -> None:
    """Receive what fires; FastStream acknowledges it when this returns."""
    is_last = message.headers["Nats-Schedule-Next"] == "purge"
    follows = "for the last time" if is_last else "and fires again"
    fired[message.headers["Nats-Scheduler"]] = f"{body}, {follows}"
    if len(fired) == 3:
        all_fired.set()


@app.after_startup
async def schedule() -> None:
    """Store the schedules, and say what fired, what is replaced and what is ended."""
    # `stream` makes FastStream wait until the server has stored the message.
    soon = datetime.now(UTC) + timedelta(seconds=2)
    once = Schedule(time=soon, target="orders.due")
    await broker.publish("remind of order 17", "orders.schedules.reminder", stream="ORDERS", schedule=once)

    # `Schedule` knows one instant; all else is a header.
    each_second = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "orders.due"}
    await broker.publish("pulse", "orders.schedules.pulse", stream="ORDERS", headers=each_second)

    report = {
        "Nats-Schedule": "*/2 * * * * *",
        "Nats-Schedule-Time-Zone": "Europe/Berlin",
        "Nats-Schedule-Target": "orders.due",
    }
    await broker.publish("open orders", "orders.schedules.report", stream="ORDERS", headers=report)

    await asyncio.wait_for(all_fired.wait(), timeout=30)
    for subject, what in sorted(fired.items()):
        print(f"{subject} fired: {what}")

    # The last message on the subject of a schedule counts, so another one replaces it.
    weekdays = report | {"Nats-Schedule": "0 30 9 * * mon-fri"}
    await broker.publish("open orders", "orders.schedules.report", stream="ORDERS", headers=weekdays)
    print("orders.schedules.report is replaced")

    # To end a schedule, purge its subject: FastStream leaves that to the connection of nats-py below it.
    await broker.connection.jetstream().purge_stream("ORDERS", subject="orders.schedules.pulse")
    print("orders.schedules.pulse is ended")
    app.exit()


if __name__ == "__main__":
    asyncio.run(app.run())
