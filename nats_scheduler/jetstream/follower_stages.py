"""The stages of a follower, and all that can happen to it, as one table.

    stage           what the follower does in it
    IDLE            nothing: it has not begun, or has ended
    OPENING         has a consumer created; nothing is read meanwhile
    WALKING         the same, and reads what is stored one message after the other, since no consumer is created
    WALKING_LIVE    the same, and has read all: what is published is delivered within a tenth of a second
    WALKING_SILENT  the same, and the stream does not answer: contact is lost
    READING         has a consumer deliver what is stored
    READING_FULL    the same, and asks for no more: too much of what was delivered is not received by the engine
    LIVE            has read all, and a consumer delivers what is published
    BEHIND          the same after a pause: asks for long runs until nearly all is read
    BEHIND_FULL     the same, and asks for no more, as in READING_FULL
    RESTING         leaves a burst to the owner of the stream: a standby asks for no more
    BURST           has no consumer: the acknowledgements of the sidecar's own fires show what is stored
    CLOSING         has a consumer deleted that is lost, or is to be replaced
    LOOKED_UP       leaves the stream to look-ups: the account allows no more consumers

`FOLLOWER_TABLE` is the whole table: for each stage the events that may happen in it, and the stage that follows.
`FollowerStages.move` is the only function that changes a stage.

The rule: what the table does not have raises `AssertionError`, also under `python -O`, and changes nothing.
Whether a consumer works is its own state (`jetstream.pulled_consumer`): its silence is one event here.
Cost: two look-ups in a dict an event; an event is a run of messages, not a message.
"""

from collections.abc import Mapping
from enum import Enum


class FollowerStage(Enum):
    """Where a follower is; see the table above."""

    IDLE = "idle"
    OPENING = "opening"
    WALKING = "walking"
    WALKING_LIVE = "walking, all is read"
    WALKING_SILENT = "walking, not answered"
    READING = "reading"
    READING_FULL = "reading, backlog full"
    LIVE = "live"
    BEHIND = "behind"
    BEHIND_FULL = "behind, backlog full"
    RESTING = "resting"
    BURST = "in a burst"
    CLOSING = "closing"
    LOOKED_UP = "looked up"


class FollowerEvent(Enum):
    """What can happen to a follower."""

    BEGUN = "it is asked to follow"
    NOT_CREATED = "a consumer was not created in time"
    WALK_BEGUN = "messages are read without one meanwhile"
    WALK_LIVE = "there is no message behind the last one that was read so"
    WALK_SILENT = "the stream does not say which message is next"
    CREATED = "a consumer was created"
    LIMITED = "the account or the stream allows no more consumers"
    DELIVERED = "messages were delivered"
    ALL_READ = "all is read that was stored when the consumer was created"
    FULL = "too many delivered messages are not received by the engine"
    RECEIVED = "half of them are"
    BURST_OF_OTHERS = "a standby gets so many messages at once that there is a burst"
    REST_OVER = "the burst is a second old, or the instance is the owner now"
    NEARLY_READ = "few messages are pending"
    BURST_KNOWN = "the acknowledgements of fires show all that is stored behind what was read"
    BURST_OVER = "they do so no longer"
    REPLACED = "a consumer of another kind is to follow"
    LOST = "the consumer has ended or is silent, has a gap or is behind the leader, or the connection is lost"
    CLOSED = "the consumer is deleted, as far as it could be"
    ENDED = "it is cancelled, or raises what it cannot handle"


_S, _E = FollowerStage, FollowerEvent

FOLLOWER_TABLE: Mapping[FollowerStage, Mapping[FollowerEvent, FollowerStage]] = {
    _S.IDLE: {
        _E.BEGUN: _S.OPENING,
    },
    _S.OPENING: {
        _E.NOT_CREATED: _S.OPENING,
        _E.WALK_BEGUN: _S.WALKING,
        _E.CREATED: _S.READING,
        _E.LIMITED: _S.LOOKED_UP,
        _E.ENDED: _S.IDLE,
    },
    _S.WALKING: {
        _E.DELIVERED: _S.WALKING,
        _E.WALK_LIVE: _S.WALKING_LIVE,
        _E.WALK_SILENT: _S.WALKING_SILENT,
        _E.NOT_CREATED: _S.WALKING,
        _E.CREATED: _S.READING,
        _E.LIMITED: _S.LOOKED_UP,
        _E.ENDED: _S.IDLE,
    },
    _S.WALKING_LIVE: {
        _E.DELIVERED: _S.WALKING_LIVE,
        _E.WALK_SILENT: _S.WALKING_SILENT,
        _E.NOT_CREATED: _S.WALKING_LIVE,
        _E.CREATED: _S.READING,
        _E.LIMITED: _S.LOOKED_UP,
        _E.ENDED: _S.IDLE,
    },
    _S.WALKING_SILENT: {
        _E.DELIVERED: _S.WALKING_SILENT,
        _E.WALK_LIVE: _S.WALKING_LIVE,
        _E.NOT_CREATED: _S.WALKING_SILENT,
        _E.CREATED: _S.READING,
        _E.LIMITED: _S.LOOKED_UP,
        _E.ENDED: _S.IDLE,
    },
    _S.READING: {
        _E.DELIVERED: _S.READING,
        _E.ALL_READ: _S.LIVE,
        _E.FULL: _S.READING_FULL,
        _E.REPLACED: _S.CLOSING,
        _E.LOST: _S.CLOSING,
        _E.ENDED: _S.IDLE,
    },
    _S.READING_FULL: {
        _E.DELIVERED: _S.READING_FULL,
        _E.ALL_READ: _S.BEHIND_FULL,
        _E.RECEIVED: _S.READING,
        _E.REPLACED: _S.CLOSING,
        _E.LOST: _S.CLOSING,
        _E.ENDED: _S.IDLE,
    },
    _S.LIVE: {
        _E.DELIVERED: _S.LIVE,
        _E.FULL: _S.BEHIND_FULL,
        _E.BURST_OF_OTHERS: _S.RESTING,
        _E.BURST_KNOWN: _S.BURST,
        _E.REPLACED: _S.CLOSING,
        _E.LOST: _S.CLOSING,
        _E.ENDED: _S.IDLE,
    },
    _S.BEHIND: {
        _E.DELIVERED: _S.BEHIND,
        _E.FULL: _S.BEHIND_FULL,
        _E.NEARLY_READ: _S.LIVE,
        _E.BURST_KNOWN: _S.BURST,
        _E.REPLACED: _S.CLOSING,
        _E.LOST: _S.CLOSING,
        _E.ENDED: _S.IDLE,
    },
    _S.BEHIND_FULL: {
        _E.DELIVERED: _S.BEHIND_FULL,
        _E.RECEIVED: _S.BEHIND,
        _E.BURST_KNOWN: _S.BURST,
        _E.REPLACED: _S.CLOSING,
        _E.LOST: _S.CLOSING,
        _E.ENDED: _S.IDLE,
    },
    _S.RESTING: {
        _E.DELIVERED: _S.RESTING,
        _E.REST_OVER: _S.BEHIND,
        _E.BURST_KNOWN: _S.BURST,
        _E.REPLACED: _S.CLOSING,
        _E.LOST: _S.CLOSING,
        _E.ENDED: _S.IDLE,
    },
    _S.BURST: {
        _E.DELIVERED: _S.BURST,
        _E.BURST_OVER: _S.OPENING,
        _E.ENDED: _S.IDLE,
    },
    _S.CLOSING: {
        _E.CLOSED: _S.OPENING,
        _E.ENDED: _S.IDLE,
    },
    _S.LOOKED_UP: {
        _E.ENDED: _S.IDLE,
    },
}

ASKING = frozenset({_S.READING, _S.LIVE, _S.BEHIND})
"""The stages in which messages are asked for."""

BEFORE_ALL_IS_READ = frozenset({_S.READING, _S.READING_FULL})
"""The stages with a consumer in which not all is read that was stored when it was created."""

CONSUMING = frozenset(stage for stage, events in FOLLOWER_TABLE.items() if _E.LOST in events)
"""The stages with a consumer."""


class FollowerStages:
    """The stage of one follower."""

    def __init__(self) -> None:
        self.now = FollowerStage.IDLE

    def move(self, event: FollowerEvent) -> FollowerStage:
        """Go to the stage that follows after an event, and return it; raises `AssertionError`."""
        following = FOLLOWER_TABLE[self.now].get(event)
        if following is None:
            raise AssertionError(f"{event.name} happened in {self.now.name}: expected one of {self._expected()}")
        self.now = following
        return following

    def _expected(self) -> str:
        return ", ".join(event.name for event in FOLLOWER_TABLE[self.now])
