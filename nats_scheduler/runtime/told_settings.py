"""What the settings of this instance make of a stream's schedules, told to whoever looks from outside.

`nats-scheduler ls` reads the streams itself. Which of them are served, and which schedules are rejected, depends on
settings that only the sidecar has, so each instance writes them under its id into one value of the registry's bucket,
by compare-and-set.

The rules: only what changes meaning is told, and no secret is; nothing waits for it, and what could not be written is
tried again. Who ends removes its own, and who writes removes those of instances that are gone.
Cost: two requests each `LOOK_SECONDS`. Limit: what does not fit into the value is told as that.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.foreign_json import Object
from nats_scheduler.jetstream.registry import MAX_VALUE_BYTES, Registry
from nats_scheduler.settings.sidecar import SidecarSettings

SETTINGS = "settings"
"""The key."""

TOLD = ("portable_streams", "allowed_targets", "allowed_sources", "max_schedules")
"""The settings on which it depends what is served, and what is rejected."""

TOO_LARGE = "too_large"

LOOK_SECONDS = 60.0
"""How often it is looked whether what was told is still there: the bucket may have been deleted."""

ATTEMPTS = 8
"""Times that the value is tried to be changed, while others change it."""

MOST_HEADERS_BYTES = 1_024
"""Of a value's room, so much is left for what is not the value."""


def told_settings(settings: SidecarSettings) -> dict[str, Any]:
    """Return what is told of the settings, as JSON holds it."""
    document = settings.model_dump(mode="json", include=set(TOLD))
    told = {name: list(document[name]) for name in TOLD}
    return told if len(json.dumps(told)) <= MAX_VALUE_BYTES - MOST_HEADERS_BYTES else {TOO_LARGE: True}


async def keep_telling_settings(registry: Registry, instance: str, settings: SidecarSettings) -> None:
    """Have the bucket hold the settings of this instance, until cancelled."""
    told = told_settings(settings)
    while True:
        with suppress(JetStreamError):
            await _change(registry, instance, told)
        await asyncio.sleep(LOOK_SECONDS)


async def forget_settings(registry: Registry, instance: str) -> None:
    """Remove what this instance told."""
    with suppress(JetStreamError):
        await _change(registry, instance, None)


async def _change(registry: Registry, instance: str, told: Object | None) -> None:
    """Write what an instance tells, None for nothing; what is told by instances that are gone goes."""
    for _ in range(ATTEMPTS):
        value, revision = await registry.revised(SETTINGS)
        before = value or {}
        alive = {instance, *await registry.keys("instance")}
        after = {name: kept for name, kept in before.items() if name in alive and name != instance}
        if told is not None:
            after[instance] = told
        if len(json.dumps(after)) > MAX_VALUE_BYTES - MOST_HEADERS_BYTES:
            after[instance] = {TOO_LARGE: True}
        if after == before or await registry.swap(SETTINGS, after, revision) is not None:
            return
