"""The settings file: one JSON object, read strictly.

Rule: everything in the file is used or rejected, and nothing is ignored: no unknown keys, no key twice, no trailing
text.
It is JSON and not TOML or YAML, because a command prints its schema, and editors check the file against it.
Cost: one read. Limit: 1 MiB (`settings.bounded_file`).
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from nats_scheduler.settings.bounded_file import read_bounded
from nats_scheduler.settings.fields import setting_fields
from nats_scheduler.settings.problems import Problem, SettingsError, shown


def read_settings_file(path: Path) -> dict[str, tuple[object, str]]:
    """Return the values by key, each with its source; raises `SettingsError`.

    `$schema` is ignored: it contains the address of the schema for editors.
    """
    source = f"file {path}"
    content = _parse(path, source)
    content.pop("$schema", None)
    connection = content.pop("connection", {})
    if not isinstance(connection, dict):
        raise SettingsError([Problem("connection", shown(connection), "an object", source)])
    flat = {**content, **{f"connection.{name}": value for name, value in connection.items()}}
    return {key: (value, source) for key, value in flat.items() if not _is_absent(key, value)}


def _is_absent(key: str, value: object) -> bool:
    """Return whether null means "not set", which it does if the setting has no default."""
    field = setting_fields().get(key)
    return value is None and field is not None and field.default is None


def _parse(path: Path, source: str) -> dict[str, object]:
    try:
        content = json.loads(read_bounded(path), object_pairs_hook=_without_duplicate_keys)
    except OSError as error:
        expected = f"a file that can be read ({error.strerror or error})"
        raise SettingsError([Problem("settings", shown(str(path)), expected, "--settings")]) from None
    except _DuplicateKeyError as error:
        raise SettingsError([Problem(str(error), "two values", "each key once", source)]) from None
    except json.JSONDecodeError as error:
        expected = f"JSON ({error.msg.lower()}, line {error.lineno}, column {error.colno})"
        raise SettingsError([Problem("settings", shown(str(path)), expected, source)]) from None
    except (ValueError, RecursionError):  # not UTF-8, or a number of thousands of digits
        raise SettingsError([Problem("settings", shown(str(path)), "JSON in UTF-8", source)]) from None
    if not isinstance(content, dict):
        raise SettingsError([Problem("settings", shown(str(path)), "a JSON object", source)])
    return content


class _DuplicateKeyError(Exception):
    """An object has the same key twice."""


def _without_duplicate_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise _DuplicateKeyError(Counter(name for name, _ in pairs).most_common(1)[0][0])
    return content
