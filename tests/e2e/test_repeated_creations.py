"""An application that creates its stream at each start is not refused.

The sidecar leaves the configuration as it was asked for, so that a fire rolls up its target by a purge.
"""

from typing import Any

import pytest

from tests.harness.flagged import FlaggedStream
from tests.harness.waiting import eventually
from tests.harness.watched import Watched

ROLL_UP = {"Rollup": "sub"}
PAST = "@at 2020-01-01T00:00:00Z"
CONFIGS: tuple[dict[str, Any], ...] = (
    {},
    {"allow_msg_ttl": True},
    {"allow_rollup_hdrs": True},
    {"metadata": {"a": "b"}},
)


async def is_rolled_up(stream: FlaggedStream, rest: str) -> str:
    """Wait until one message is left on a target, and return its headers."""

    async def is_one() -> bool:
        return len(await stream.messages(rest)) == 1

    await eventually(is_one, describe=f"{rest} is rolled up")
    return (await stream.messages(rest))[0].block.decode()


@pytest.mark.clause("generated-rollup")
async def test_a_creation_is_accepted_again_byte_for_byte(watched: Watched) -> None:
    """Also after a fire has rolled up its target: where the stream refuses `Nats-Rollup`, a purge follows the fire."""
    for number, config in enumerate(CONFIGS):
        one = Watched(watched.account, f"{watched.name}-{number}", watched.sidecar, said=watched.said)
        made = await one.served(**config)
        for body in (b"older", b"old"):
            await one.publish("r-out", body=body)
        await one.schedule("r", PAST, target="r-out", more=ROLL_UP)
        await one.wait_for("r-out")
        rolled_up_by = await is_rolled_up(one, "r-out")
        assert ("Nats-Rollup: sub" in rolled_up_by) is ("allow_rollup_hdrs" in config)
        assert (await one.create(**config))["config"] == made["config"], config
        await one.update(description="edited by a tool")
        await one.fires("after")
