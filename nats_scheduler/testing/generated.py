"""A generated message in the shape that a test compares: text where there is text, times in nanoseconds.

The rule: it is what the stream stored, and says besides which fire of which schedule it was.
"""

from dataclasses import dataclass

from nats_scheduler.message.headers import header_items
from nats_scheduler.message.reading import Generated
from nats_scheduler.message.stored import StoredMessage


@dataclass(frozen=True, slots=True)
class GeneratedMessage:
    """What a fire stored."""

    subject: str
    sequence: int
    stored_at: int
    """Nanoseconds since the Unix epoch, by the stream's clock."""
    headers: tuple[tuple[str, str], ...]
    """In order, duplicates too."""
    body: bytes
    schedule: str
    """The subject of the schedule."""
    schedule_sequence: int
    """The stream sequence of the version of the schedule that fired."""
    fire_time: int
    """When it was due (ns)."""

    def header(self, name: str) -> str | None:
        """Return the first header of a name, None if there is none."""
        return next((value for known, value in self.headers if known == name), None)


def generated_message(message: StoredMessage, generated: Generated) -> GeneratedMessage:
    """Put a stored message, and what was read in it, into one shape."""
    return GeneratedMessage(
        subject=message.subject,
        sequence=message.sequence,
        stored_at=message.stored_at,
        headers=tuple((_text(name), _text(value)) for name, value in header_items(message.block)),
        body=message.body or b"",
        schedule=generated.schedule,
        schedule_sequence=generated.sequence,
        fire_time=generated.fire_time,
    )


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
