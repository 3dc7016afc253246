"""The problems of the settings: all of them together, each with its key, its value and what was expected.

Rule: a problem may be printed, so it is built only from values that `shown` has returned.
It is an exception and not a value, because settings are the edge of the program: the operator has to act.
Cost: none. Limit: a secret in an unknown key is not recognised if its name does not look like that of a secret.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from nats_scheduler.schedule.invalid import MAX_SHOWN_CHARS
from nats_scheduler.settings.server_addresses import masked_url

MASK = "**********"
"""The text that is shown for a secret; its length does not depend on the secret's."""

_SECRET_NAME = re.compile(r"pas|pw|tok|sec|seed|jwt|cred|key|auth", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SettingsProblem:
    """One setting that cannot be used."""

    key: str
    """The key in the settings file, nested keys joined by a dot; empty for the file itself."""
    value: str
    """The value as `shown` returns it."""
    expected: str
    """A noun phrase for what would be accepted."""
    source: str
    """Where the value came from, such as `--window`, `$NATS_URL` or `context orders`."""

    def __str__(self) -> str:
        """Describe the problem in one sentence."""
        what = f"{self.key} of {self.value}" if self.key else self.value
        return f"{what} ({self.source}): expected {self.expected}"


class SettingsError(Exception):
    """The settings, or what they name, cannot be used; the operator has to change them."""

    def __init__(self, problems: Iterable[SettingsProblem] | str) -> None:
        """Join the problems, one per line; a sentence is a problem that is not that of one key."""
        self.problems = () if isinstance(problems, str) else tuple(problems)
        super().__init__(problems if isinstance(problems, str) else "\n".join(map(str, self.problems)))


def looks_secret(name: str) -> bool:
    """Return whether an unknown key may contain a secret, judged by its name."""
    return _SECRET_NAME.search(name) is not None


def shown(value: object, *, secret: bool = False) -> str:
    """Return a value for an error message: secrets are masked, objects are not printed, long text is cut."""
    if secret and value is not None:
        return MASK
    if isinstance(value, dict):
        return "{…}"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, list | tuple):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    text = masked_url(str(value))
    cut = text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + "…"
    return repr(cut) if isinstance(value, str) else cut
