"""The settings as a list and as JSON, derived from the models: key, flag, variables, kind, default and description.

A setting is declared once, in its model; flags, variables, errors, the JSON Schema and the reference page are derived
here. Only the names that cannot be derived, those of the `nats` CLI and of images, are listed. There is one level of
nesting (`connection`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from nats_scheduler.schedule.durations import format_duration
from nats_scheduler.settings.sidecar_settings import SidecarSettings

VARIABLE_PREFIX = "NATS_SCHEDULER_"
FILE_VARIABLE = "NATS_SCHEDULER_SETTINGS"
"""Contains the path of the settings file, as `--settings` does."""

CLI_VARIABLES = {
    "connection.servers": "NATS_URL",
    "connection.user": "NATS_USER",
    "connection.password": "NATS_PASSWORD",
    "connection.token": "NATS_TOKEN",
    "connection.creds": "NATS_CREDS",
    "connection.nkey": "NATS_NKEY",
    "connection.user_jwt": "NATS_JWT",
    "connection.user_seed": "NATS_SEED",
    "connection.tls_cert": "NATS_CERT",
    "connection.tls_key": "NATS_KEY",
    "connection.tls_ca": "NATS_CA",
    "connection.request_timeout": "NATS_TIMEOUT",
}
"""The variables of the `nats` CLI (0.4.0) that are settings; its other variables are in `sources.py`."""

IMAGE_VARIABLES = {"metrics_port": "NATS_SCHEDULER_METRICS_PORT_NUMBER"}
"""Second variables of our own, with which an image gives a default.

Kubernetes sets `NATS_SCHEDULER_METRICS_PORT` to an address beside a Service called nats-scheduler-metrics; a name that
ends in `_NUMBER` it sets for no Service.
"""

CLI_FLAGS = {
    "connection.servers": "--server",
    "connection.user_jwt": "--jwt",
    "connection.user_seed": "--seed",
    "connection.tls_cert": "--tlscert",
    "connection.tls_key": "--tlskey",
    "connection.tls_ca": "--tlsca",
    "connection.tls_first": "--tlsfirst",
    "connection.request_timeout": "--timeout",
}
"""The flags of the `nats` CLI that differ from the key with dashes."""


@dataclass(frozen=True, slots=True)
class SettingField:
    """One setting, for all code outside the models."""

    key: str
    """The key in the settings file, with its parent, such as `connection.servers`."""
    kind: str
    """`text`, `path`, `secret`, `duration`, `integer`, `boolean`, `list`, `choice` or `objects`."""
    schema: Mapping[str, Any]
    """Its JSON Schema, without the alternative `null`."""
    default: object
    """The default as it would be in the file; None if there is none."""

    @property
    def name(self) -> str:
        """Return the key without its parent, which is unique too; flag values have this name."""
        return self.key.rpartition(".")[2]

    @property
    def description(self) -> str:
        """Return the effect of the setting, with its unit and range."""
        return str(self.schema["description"])

    @property
    def flag(self) -> str:
        """Return the flag on the command line."""
        return CLI_FLAGS.get(self.key, "--" + self.name.replace("_", "-"))

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the environment variables, the one with priority first; none if only the file can hold it."""
        if self.kind == "objects":
            return ()
        own = VARIABLE_PREFIX + self.key.replace(".", "_").upper()
        second = CLI_VARIABLES.get(self.key) or IMAGE_VARIABLES.get(self.key)
        return (own, second) if second else (own,)

    @property
    def expected(self) -> str:
        """Return what is accepted, for errors."""
        if self.kind == "integer":
            return f"a whole number from {self.schema['minimum']} to {self.schema['maximum']}"
        if self.kind == "choice":
            return " or ".join(self.schema["enum"])
        forms = {"boolean": "true or false", "list": "a list of strings", "path": "a path", "objects": "a list"}
        form = forms.get(self.kind, "a string")
        return f"{form}: {self.description[0].lower()}{self.description[1:].rstrip('.')}"


@lru_cache(maxsize=1)
def setting_fields() -> Mapping[str, SettingField]:
    """Return all settings by key, in the order of the models."""
    schema = SidecarSettings.model_json_schema()
    nested = schema["$defs"]["ConnectionSettings"]["properties"]
    found = [_field(f"connection.{name}", properties) for name, properties in nested.items()]
    own = schema["properties"].items()
    found += [_field(name, properties) for name, properties in own if name != "connection"]
    return {field.key: field for field in found}


def _field(key: str, properties: Mapping[str, Any]) -> SettingField:
    alternatives = [one for one in properties.get("anyOf", ()) if one.get("type") != "null"]
    schema = {**properties, **(alternatives[0] if alternatives else {})}
    kind = _kind(schema)
    default = schema.get("default")
    if kind == "duration" and isinstance(default, int):
        default = format_duration(default)
    return SettingField(key, kind, schema, default)


def _kind(schema: Mapping[str, Any]) -> str:
    """Return the kind of a setting with this JSON Schema."""
    if "enum" in schema:
        return "choice"
    if "$ref" in schema.get("items", ()):
        return "objects"
    form = schema.get("format")
    if form in ("path", "password", "go-duration"):
        return {"path": "path", "password": "secret", "go-duration": "duration"}[form]
    return {"array": "list", "integer": "integer", "boolean": "boolean"}.get(schema["type"], "text")


def settings_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the settings file.

    Combinations (a password needs a user) are not in it; they are checked when settings are read.
    """
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
