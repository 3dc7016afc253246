"""Messages and requests of a stranger, drawn from a seed."""

import random
from collections.abc import Callable
from typing import NamedTuple

from tests.hostile.texts import PATTERNS, SUBJECTS, TTLS, ZONES

SHORT = ["@every 3s", "@every 1h", "@at 2030-01-01T00:00:00Z", "* * * * * *", "0 0 0 30 2 *", "@daily", "61 * * * * *"]
NAMES = ["-Target", "-Source", "-TTL", "-Time-Zone", "-Rollup", "-Next", "-X", "r", ""]
MOST_BYTES = 65_000


class Sent(NamedTuple):
    """One message."""

    subject: str
    block: bytes
    body: bytes


def message(rng: random.Random, stream: str, number: int) -> Sent:
    """Draw a message that wants to be a schedule, or looks as if."""
    text = rng.choice(list(PATTERNS.values())) if rng.random() < 0.04 else rng.choice(SHORT)
    target = rng.choice(list(SUBJECTS.values())) if rng.random() < 0.2 else f"out.{number % 50}"
    lines = [("Nats-Schedule", text), ("Nats-Schedule-Target", f"{stream}.{target}" if rng.random() < 0.9 else target)]
    draws: dict[str, Callable[[], str]] = {
        "-TTL": lambda: rng.choice([*TTLS.values(), "5m", "00", "-1"]),
        "-Time-Zone": lambda: rng.choice([*ZONES.values(), "UTC", "Europe/Cairo", "Local"]),
        "-Source": lambda: f"{stream}.{rng.choice([*SUBJECTS.values(), 'source'])}",
    }
    for _ in range(rng.choice([0, 0, 1, 2])):
        name = rng.choice(NAMES)
        value = draws.get(name, lambda: rng.choice(["sub", "purge", "", "x" * 1_000, "\udcff", "\0", " ", "\t"]))()
        lines.insert(rng.randrange(len(lines) + 1), (f"Nats-Schedule{name}", value))
    block = b"NATS/1.0\r\n" + b"".join(map(_line, lines))
    return Sent(f"{stream}.{_subject(rng, number)}", block[:MOST_BYTES] + _end(rng), rng.randbytes(rng.randrange(40)))


def _line(item: tuple[str, str]) -> bytes:
    return f"{item[0]}: {item[1]}\r\n".encode("utf-8", "surrogateescape")


def _subject(rng: random.Random, number: int) -> str:
    if rng.random() < 0.8:
        return f"h.{number}"
    odd = ["{}.*", "{}.>", "a*{}", "x>{}", "é{}", "\x7f{}", "\udcff{}", "\0{}", "{}" + "k" * 3_000]
    return rng.choice([">", "*", *(f"h.{one.format(number)}" for one in odd)])


def _end(rng: random.Random) -> bytes:
    return rng.choice([b"\r\n"] * 12 + [b"", b"\r", b"\n", b"\0", b"A", b"A: b", b"\r\n\r\n\r\n"])
