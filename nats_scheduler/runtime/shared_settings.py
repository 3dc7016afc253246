"""The settings of this instance that decide what is served and rejected, shared with tools that read the bucket.

`nats-scheduler ls` reads the streams itself. Which of them are served, and which schedules are rejected, depends on
settings that only the sidecar has, so each instance shares them in one value of the bucket (`runtime.shared_value`).

The rules: only settings with an effect on that are shared, and no secrets. Nothing waits for the write, and a write
that failed is tried again. An instance that ends removes its own entry.
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

SHARED_SETTINGS = (
    "portable_streams",
    "adopt_streams",
    "allowed_targets",
    "allowed_sources",
    "allowed_targets_elsewhere",
    "max_schedules",
)
"""The settings on which it depends what is served, and what is rejected."""

TOO_LARGE = "too_large"

SETTINGS_CHECK_INTERVAL_SECONDS = 60.0
"""How often it is checked whether the entry is still there: the bucket may have been deleted."""


def shared_settings(settings: SidecarSettings, room: int = MAX_SHARED_BYTES) -> dict[str, Any]:
    """Return the settings that are shared, as JSON holds them, or a note if `room` bytes are too few."""
    document = settings.model_dump(mode="json", include=set(SHARED_SETTINGS))
    shared = {name: list(document[name]) for name in SHARED_SETTINGS}
    return shared if len(json.dumps(shared)) <= room else {TOO_LARGE: True}


async def keep_sharing_settings(registry: Registry, instance: str, settings: SidecarSettings) -> None:
    """Keep the settings of this instance in the bucket, until cancelled."""
    while True:
        with suppress(JetStreamError):
            await write_entry(registry, SETTINGS, instance, partial(shared_settings, settings))
        await asyncio.sleep(SETTINGS_CHECK_INTERVAL_SECONDS)


async def remove_settings(registry: Registry, instance: str) -> None:
    """Remove the settings of this instance."""
    with suppress(JetStreamError):
        await write_entry(registry, SETTINGS, instance, _nothing)


def _nothing(_room: int) -> Object | None:
    return None
