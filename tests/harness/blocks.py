"""Header blocks as tests write them: one builder for each way to say what is in one.

The rule: a test that needs a header block builds it here, and each name means one thing in all folders.
"""

from collections.abc import Mapping

from nats_scheduler.message.generated import guard_headers, identity_header
from nats_scheduler.message.headers import with_headers


def block_of(*items: tuple[bytes | str, bytes | str]) -> bytes:
    """Return the block of these pairs as a client library writes it: `block_of(("Nats-Schedule", "@every 1s"))`."""
    return b"NATS/1.0\r\n" + b"".join(_line(name, value) for name, value in items) + b"\r\n"


def block_with(**headers: str) -> bytes:
    """Return the block of these headers, `_` in a name for `-`: `block_with(Nats_Schedule="@every 1s")`."""
    return block_of(*((name.replace("_", "-"), value) for name, value in headers.items()))


def block_to_send(headers: Mapping[str, str] | str) -> bytes:
    """Return the block of names and values, or of lines that are sent as they are."""
    if isinstance(headers, str):
        return f"NATS/1.0\r\n{headers}\r\n".encode()
    return block_of(*headers.items())


def _line(name: bytes | str, value: bytes | str) -> bytes:
    # A leading tab belongs to the value; a leading space would belong to the separator.
    return b"%s: %s\r\n" % (_bytes(name), _bytes(value))


def _bytes(text: bytes | str) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def with_identity(block: bytes, identity: str) -> bytes:
    """Append the identity of a fire as `Nats-Msg-Id`."""
    return with_headers(block, (identity_header(identity),))


def with_guard(block: bytes, schedule: str, sequence: int) -> bytes:
    """Append the guard."""
    return with_headers(block, guard_headers(schedule, sequence))
