"""A generated message in a form that tests can compare: headers as text, times in nanoseconds.

The rule: it contains what the stream stored, and which fire of which schedule it is.
"""

from dataclasses import dataclass

from nats_scheduler.message.headers import header_items
from nats_scheduler.message.reading import Generated
from nats_scheduler.message.stored import StoredMessage


@dataclass(frozen=True, slots=True)
class GeneratedMessage:
    """The message that a fire stored."""

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
        """Return the value of the first header with this name; None if there is none."""
        return next((value for known, value in self.headers if known == name), None)


def generated_message(message: StoredMessage, generated: Generated) -> GeneratedMessage:
    """Combine a stored message and its reading."""
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
