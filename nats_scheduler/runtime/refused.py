"""Tell once why a stream cannot have the flag, and not each time that the stream is looked at."""

from collections.abc import Callable

from nats_scheduler.message.rejection import Rejection


class Refused:
    """The streams of which that was told."""

    def __init__(self, tell: Callable[[str, Rejection], None]) -> None:
        self._tell = tell
        self._told: dict[str, Rejection] = {}

    def note(self, stream: str, rejection: Rejection | None) -> None:
        """Tell why a native server would refuse a stream's configuration, until it does not any more (None)."""
        if rejection is None:
            self._told.pop(stream, None)
        elif self._told.get(stream) != rejection:
            self._told[stream] = rejection
            self._tell(stream, rejection)
