"""A request as it was before the proxies in front of the page: its path, its host and its scheme.

The rules:

- Browsers reach the page below a path that is configured (`web_path_prefix`), whether the proxy takes it away or not.
  Within this process no path has it: it is added to each address that leaves, in templates and redirects.
- `X-Forwarded-Host` and `X-Forwarded-Proto` count from a trusted proxy alone, and of several values the last one, which
  the nearest proxy has added. From anybody else they are ignored.

`web.attempts` reads `X-Forwarded-For` by the same rule. Cost: a microsecond for each request.
"""

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from nats_scheduler.web.attempts import Proxies, is_among

Scope = MutableMapping[str, Any]
"""A request, as ASGI describes it."""


@dataclass(frozen=True, slots=True)
class Proxied:
    """What is known of the proxies."""

    proxies: Proxies = ()
    """The addresses of those that are trusted."""
    prefix: str = ""
    """The path below which browsers reach the page, such as `/scheduler`; "" for none."""

    def restore(self, scope: Scope) -> str | None:
        """Give a request the path and the scheme that the page knows; return the host that a proxy forwards, if any."""
        if self.prefix and f"{scope['path']}/".startswith(f"{self.prefix}/"):
            scope["path"] = scope["path"][len(self.prefix) :] or "/"
        if not is_among((scope["client"] or [""])[0], self.proxies):
            return None
        scheme = _last_of(scope, b"x-forwarded-proto")
        if scheme in ("http", "https"):
            scope["scheme"] = scheme
        return _last_of(scope, b"x-forwarded-host")


def _last_of(scope: Scope, name: bytes) -> str | None:
    """Return the last value of a header, None if there is none."""
    values = [value for one, value in scope["headers"] if one == name]
    return values[-1].decode("latin-1").rpartition(",")[2].strip() if values else None
