"""A stream that a sidecar serves and one that none serves, side by side on the same older server.

Nobody who uses the stream can distinguish them: which consumers may be created, which are listed, what is kept.
What can be seen is named here: a limits stream without `max_consumers` shows one more consumer, and the configuration
carries the mark and allows roll-ups.
"""

import asyncio
from typing import Any

import pytest

from nats_scheduler.control.errors import RefusedError
from tests.differential.sides import ComparedSide, fresh_name
from tests.harness.flagged import FlaggedStream
from tests.harness.waiting import eventually

OURS = "nats-scheduler-"
"""Every consumer of a sidecar has a name that begins so."""

CONSUMERS: tuple[dict[str, Any], ...] = (
    {"durable_name": "one", "ack_policy": "explicit", "filter_subject": "{}.out.>"},
    {"durable_name": "overlapping", "ack_policy": "explicit", "filter_subject": "{}.out.deep.*"},
    {"durable_name": "schedules", "ack_policy": "explicit", "filter_subject": "{}.s.*"},
    {"durable_name": "several", "ack_policy": "explicit", "filter_subjects": ["{}.a", "{}.b"]},
    {"durable_name": "push", "ack_policy": "explicit", "filter_subject": "{}.push", "deliver_subject": "to.{}"},
    {"durable_name": "silent", "ack_policy": "none", "filter_subject": "{}.silent"},
    {"durable_name": "all", "ack_policy": "all", "filter_subject": "{}.all"},
    {"durable_name": "unfiltered", "ack_policy": "explicit"},
    {"durable_name": "last", "ack_policy": "explicit", "filter_subject": "{}.last", "deliver_policy": "last"},
)
UNFILTERED_FIRST = ({"durable_name": "unfiltered", "ack_policy": "explicit"}, *CONSUMERS[:3])
SHAPES: dict[str, dict[str, Any]] = {
    "work queue": {"retention": "workqueue"},
    "work queue for one": {"retention": "workqueue", "max_consumers": 1},
    "interest": {"retention": "interest"},
    "interest for two": {"retention": "interest", "max_consumers": 2},
    "limits": {"retention": "limits"},
    "limits for one": {"retention": "limits", "max_consumers": 1},
    "limits for one, on file": {"max_consumers": 1, "storage": "file", "compression": "s2"},
}


def filled_in(value: Any, name: str) -> Any:
    """Put the name of the stream where the consumer's configuration leaves it open."""
    if isinstance(value, list):
        return [filled_in(one, name) for one in value]
    return value.replace("{}", name) if isinstance(value, str) else value


async def try_all(stream: FlaggedStream, consumers: tuple[dict[str, Any], ...]) -> list[int]:
    """Try to create each consumer, in this order; returns the server's error codes, 0 where it was created."""
    codes = []
    for config in consumers:
        wanted = {key: filled_in(value, stream.name) for key, value in config.items()}
        request = f"CONSUMER.DURABLE.CREATE.{stream.name}.{config['durable_name']}"
        try:
            await stream.account.api.call(request, {"stream_name": stream.name, "config": wanted})
            codes.append(0)
        except RefusedError as refused:
            codes.append(refused.code)
    return codes


async def use(stream: FlaggedStream, consumers: tuple[dict[str, Any], ...]) -> list[int]:
    """Use a stream before it has consumers and after; returns the codes of the attempts to create them."""
    await stream.publish("out.before", body=b"before anybody was there")
    codes = await try_all(stream, consumers)
    for rest in ("out.x", "out.deep.x", "a", "nobody", "last"):
        await stream.publish(rest, body=rest.encode())
    return codes


async def seen_of(stream: FlaggedStream) -> tuple[dict[str, Any], int, int]:
    """Return all that its users can see of a stream, how many consumers it is said to have, and how many are ours."""
    listed = (await stream.call("CONSUMER.LIST"))["consumers"]
    theirs = [one for one in listed if not one["name"].startswith(OURS)]
    state = (await stream.call("STREAM.INFO"))["state"]
    seen = {
        "names": sorted(name for name in await stream.consumers() if not name.startswith(OURS)),
        "pending": sorted((one["name"], one["num_pending"]) for one in theirs),
        "messages": state["messages"],
        "kept": [(one.subject.removeprefix(stream.name), one.body) for one in await stream.messages(">")],
    }
    return seen, state["consumer_count"], len(listed) - len(theirs)


@pytest.mark.clause("invisible")
async def test_users_of_a_served_stream_see_no_difference(sides: list[ComparedSide]) -> None:
    async def compare(side: ComparedSide, shape: str, consumers: tuple[dict[str, Any], ...]) -> None:
        served, alone = (FlaggedStream(side.account, fresh_name()) for _ in range(2))
        await side.create(served.name, **SHAPES[shape])
        await side.account.create(alone.name, allow_msg_schedules=False, **SHAPES[shape])
        codes = [await use(stream, consumers) for stream in (served, alone)]
        assert codes[0] == codes[1], (side.version, shape)

        async def are_alike() -> bool:
            """Return whether the users see the same; a server counts what is pending a moment later."""
            (seen, count, ours), (wanted, wanted_count, _none) = await seen_of(served), await seen_of(alone)
            assert seen == wanted, f"{side.version}, {shape}"
            # The one consumer that a sidecar has is listed and counted, where the stream takes any number of them.
            assert (count - wanted_count, ours) == ((1, 1) if shape == "limits" else (0, 0)), f"{side.version}, {shape}"
            return True

        await eventually(are_alike, describe=f"{shape} looks alike on {side.version}")

    emulated = [side for side in sides if not side.is_native]
    orders = (CONSUMERS, UNFILTERED_FIRST)
    await asyncio.gather(*(compare(side, shape, order) for side in emulated for shape in SHAPES for order in orders))
