"""The settings as JSON: the schema of the file, and the effective values, without their secrets.

Rule: the printed schema is the one that is enforced; both come from the models.
Cost: a few milliseconds. Limit: combinations (a password needs a user) are not in the schema; they are checked when
settings are read.
"""

from __future__ import annotations

from typing import Any

from nats_scheduler.schedule.durations import format_duration
from nats_scheduler.settings.fields import setting_fields
from nats_scheduler.settings.sidecar import SidecarSettings


def settings_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the settings file."""
    schema = SidecarSettings.model_json_schema()
    for properties in (schema["properties"], schema["$defs"]["ConnectionSettings"]["properties"]):
        for setting in properties.values():
            if setting.get("format") == "go-duration":
                setting["default"] = format_duration(setting["default"])
    hint = {"type": "string", "description": "Address of this schema, for editors; not read."}
    schema["properties"] = {"$schema": hint, **schema["properties"]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def shown_values(settings: SidecarSettings) -> dict[str, object]:
    """Return every value by key, as it would be in the file, with masked secrets."""
    document = settings.model_dump(mode="json")
    nested = document["connection"]
    return {
        key: (nested if key.startswith("connection.") else document)[field.name]
        for key, field in setting_fields().items()
    }
