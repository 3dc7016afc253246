"""The headers that publishers write, of what they store on the subject of a schedule.

Its rule: a schedule whose target is in another stream has the portable headers, as such a target demands.
"""

from tests.judge.history import NEVER, SECOND, Operation


def headers_of(operation: Operation, *, elsewhere: bool) -> dict[str, str]:
    """Return the headers of a message that a publisher stores; `elsewhere` if its target is in another stream."""
    if operation.pattern is None:
        return {}
    headers = {**operation.pattern.headers, "Nats-Schedule-Target": operation.target}
    headers.update(operation.headers)
    if operation.source:
        headers["Nats-Schedule-Source"] = operation.source
    if operation.ttl < NEVER:
        headers["Nats-TTL"] = f"{operation.ttl // SECOND}s"
    if operation.fire_ttl:
        headers["Nats-Schedule-TTL"] = f"{operation.fire_ttl}s"
    if operation.rolls_up:
        headers["Nats-Schedule-Rollup"] = "sub"
    return _portable(headers) if elsewhere else headers


def _portable(headers: dict[str, str]) -> dict[str, str]:
    """Return the headers in the portable spelling, with the target in the other stream."""
    target = headers.pop("Nats-Schedule-Target")
    named = {f"X-{name}" if name.startswith("Nats-Schedule") else name: value for name, value in headers.items()}
    return {**named, "X-Nats-Schedule-X-Target": target}
