"""What the settings of this instance make of a stream's schedules, shared with tools that read the bucket.

`nats-scheduler ls` reads the streams itself. Which of them are served, and which schedules are rejected, depends on
settings that only the sidecar has, so each instance shares them in one value of the bucket (`runtime.shared_value`).

The rules: only what changes meaning is shared, and no secret is; nothing waits for it, and what could not be written is
tried again. An instance that ends removes its own.
Cost: two requests each `SETTINGS_CHECK_INTERVAL_SECONDS`.
Limit: settings that do not fit into the value are replaced by a note that says so.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from functools import partial
from typing import Any

from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.foreign_json import Object
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.runtime.shared_value import MAX_SHARED_BYTES, write_entry
from nats_scheduler.settings.sidecar import SidecarSettings

SETTINGS = "settings"
"""The key."""

TOLD = ("portable_streams", "allowed_targets", "allowed_sources", "max_schedules")
"""The settings on which it depends what is served, and what is rejected."""

TOO_LARGE = "too_large"

SETTINGS_CHECK_INTERVAL_SECONDS = 60.0
"""How often it is looked whether the entry is still there: the bucket may have been deleted."""


def told_settings(settings: SidecarSettings, room: int = MAX_SHARED_BYTES) -> dict[str, Any]:
    """Return what is shared of the settings, as JSON holds it, for so many bytes of room."""
    document = settings.model_dump(mode="json", include=set(TOLD))
    told = {name: list(document[name]) for name in TOLD}
    return told if len(json.dumps(told)) <= room else {TOO_LARGE: True}


async def keep_telling_settings(registry: Registry, instance: str, settings: SidecarSettings) -> None:
    """Have the bucket hold the settings of this instance, until cancelled."""
    while True:
        with suppress(JetStreamError):
            await write_entry(registry, SETTINGS, instance, partial(told_settings, settings))
        await asyncio.sleep(SETTINGS_CHECK_INTERVAL_SECONDS)


async def forget_settings(registry: Registry, instance: str) -> None:
    """Remove the settings of this instance."""
    with suppress(JetStreamError):
        await write_entry(registry, SETTINGS, instance, _nothing)


def _nothing(_room: int) -> Object | None:
    return None
