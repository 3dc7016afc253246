"""Whether a stream is followed with the bodies of its messages, or headers only.

Where a message that is replaced is gone at once (`max_msgs_per_subject` of 1, or schedules of the server), only its
body, read before, shows what is lost (`engine.receiving.replaced`). So there bodies are delivered too, once all is
read, and where replacement is not meant.

The rule: after a large body, or very many, the stream is followed without them: it has more to read than schedules.
Cost: a comparison for each body.
"""

import math
from typing import Any

from nats_scheduler.message.stored import MAX_FOLLOWED_BODY_BYTES
from nats_scheduler.message.stream_rules import METADATA_DEBOUNCE, has_metadata

MAX_BODIES_PER_SECOND = 1_000


class FollowedBodies:
    """Says whether the next consumer of one stream delivers bodies."""

    def __init__(self, config: dict[str, Any], *, are_wanted: bool | None) -> None:
        """Begin without them; the follower's owner may want all of them, none, or (None) what the stream suggests."""
        is_replaced_at_once = config.get("max_msgs_per_subject") == 1 or config.get("allow_msg_schedules") is True
        self._is_open = are_wanted is None and is_replaced_at_once and not has_metadata(config, METADATA_DEBOUNCE)
        """True if this decides, and they have not cost much yet."""
        self.are_delivered = are_wanted is True
        self._number, self._counted_at = 0, -math.inf
        """How many came, and when (s) that was last a multiple of the most for a second."""

    def begin(self) -> bool:
        """Have them delivered from now on if they are of use; return whether that is new."""
        is_new = self._is_open and not self.are_delivered
        self.are_delivered |= is_new
        return is_new

    def end_if_costly(self, body: bytes, now: float) -> bool:
        """Have none delivered any more if this one is large or they are many at `now` (s); return whether that is new.

        It is never new where the follower's owner wants them.
        """
        self._number += 1
        is_costly = len(body) > MAX_FOLLOWED_BODY_BYTES
        if self._number % MAX_BODIES_PER_SECOND == 0:
            before, self._counted_at = self._counted_at, now
            is_costly |= now - before < 1
        if not (self._is_open and is_costly):
            return False
        self._is_open = self.are_delivered = False
        return True
