"""Remind customers of orders: the same program on a server of 2.10 or 2.11 with a sidecar, and on 2.12 or later.

    python examples/reminders.py nats://127.0.0.1:4222

It creates its stream, stores schedules, receives what they fire, and removes them again.
A server of 2.12 by itself fires only the reminder: there the daily report needs a sidecar too.
"""

import asyncio
import sys
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import nats
from nats.js.api import StreamConfig

from nats_scheduler.client import AlreadyExistsError, Schedules, after, daily, delivered


async def main(url: str) -> None:
    """Say each step on a line of its own."""
    nc = await nats.connect(url)
    js = nc.jetstream()
    await js.add_stream(StreamConfig(name="ORDERS", subjects=["orders.>"], allow_msg_schedules=True))
    schedules = await Schedules.on(nc, "ORDERS", author="reminders.py")

    # Any number of replicas may do this when they start: the second one finds the same schedule and stores nothing.
    each_morning = daily(time(9, 30), tz=ZoneInfo("Europe/Berlin"))
    for _ in range(2):
        change = await schedules.upsert("orders.schedules.report", each_morning, b"all", target="orders.report")
        print(f"report {change.kind}")
    (monday,) = each_morning.next(after=datetime(2026, 11, 23, tzinfo=UTC))
    print(f"the report of 23 November 2026 is due at {monday:%H:%M} UTC")

    # One schedule for each order, each with a subject of its own and the same target.
    for order in ("17", "18"):
        subject = f"orders.schedules.reminder.{order}"
        await schedules.create(subject, after(timedelta(seconds=5)), order.encode(), target="orders.reminder")
    try:
        await schedules.create("orders.schedules.reminder.17", after(timedelta(seconds=5)), target="orders.reminder")
    except AlreadyExistsError as error:
        print(f"refused with {error.code}")
    listed = sorted([one.subject async for one in schedules.list("orders.schedules.reminder.*")])
    print(f"stored {', '.join(listed)}")

    # Order 18 was paid: the receipt and the end of its reminder are one message.
    await schedules.publish_and_cancel("orders.schedules.reminder.18", "orders.receipt", b"18 is paid")

    reminders = await js.pull_subscribe("orders.reminder", durable="reminders", stream="ORDERS")
    (message,) = await reminders.fetch(1, timeout=30)
    await message.ack()
    fire = delivered(message)
    assert fire is not None
    print(f"remind of order {message.data.decode()}: {fire.schedule} is done: {fire.is_last}")
    (stored,) = await schedules.history("orders.schedules.reminder.17")
    print(f"its history has the same fire: {stored.sequence == message.metadata.sequence.stream}")

    await schedules.pause("orders.schedules.report", reason="holidays")
    paused = await schedules.get("orders.schedules.report")
    print(f"{paused.subject} is paused: {paused.is_paused}")
    await schedules.resume("orders.schedules.report")
    await schedules.cancel("orders.schedules.report", reason="the example ends")
    await nc.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
