"""See what others ask JetStream to do, at the moment they ask.

Servers up to 2.11 drop `allow_msg_schedules` from a stream's configuration without a word, so the request itself is the
only place where a user's wish can be seen; a plain subscription in the same account sees it, on single servers and in
clusters.
The same goes for purges and deletes, of which nobody is told otherwise.
Only of a restore the server tells by itself, when it is over.

The rule: a request that was seen is a hint. Whether the server did it is looked up by whoever cares.
What the server is bound to refuse is passed over: it names another stream than its subject does, or has wrong types.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from nats_scheduler.jetstream.api import Config
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.foreign_json import (
    REMOVAL_TYPES,
    STREAM_CONFIG_TYPES,
    Object,
    has_types,
    integer,
    read_object,
)

SIDECAR_INBOX = "nats-scheduler-sidecar-"
"""How the inboxes of sidecars begin: what another one writes into a stream's configuration is no user's wish."""

MAX_STREAM_NAME_BYTES = 255
"""Bytes: the server refuses longer names."""

MAX_SUBJECT_CHARACTERS = 4_096
"""Characters: what is longer does not go through the protocol."""


@dataclass(frozen=True, slots=True)
class ConfigRequested:
    """Somebody asked to create or update a stream."""

    stream: str
    config: Config
    creates: bool
    by_sidecar: bool = False
    """Another sidecar asked: it adopts a stream, or repeats what somebody asked for."""


@dataclass(frozen=True, slots=True)
class StreamDeletionRequested:
    """Somebody asked to delete a stream."""

    stream: str


@dataclass(frozen=True, slots=True)
class MessageRemovalRequested:
    """Somebody asked to purge a stream (`filter` None: all of it) or to delete the message with `sequence`."""

    stream: str
    filter: str | None = None
    sequence: int | None = None
    below: int | None = None
    """A purge removes only what lies below this sequence; None: no such limit."""


@dataclass(frozen=True, slots=True)
class StreamRestored:
    """The server says that a stream was restored from a backup."""

    stream: str


Request = ConfigRequested | StreamDeletionRequested | MessageRemovalRequested | StreamRestored

RESTORE_COMPLETE = "$JS.EVENT.ADVISORY.STREAM.RESTORE_COMPLETE"
"""Where the server tells of a restore that is over: the request only begins it."""


class RequestWatch:
    """Watches what others ask in one account until it is ended; what this connection asks itself is passed over."""

    def __init__(self, connection: Connection, prefix: str, seen: Callable[[Request], None]) -> None:
        self._connection = connection
        self._ours = connection.inbox("").encode()
        self._seen = seen
        kinds: dict[str, Callable[[str, Object | None], Request | None]] = {
            "STREAM.CREATE": lambda stream, body: _config_requested(stream, body, creates=True),
            "STREAM.UPDATE": lambda stream, body: _config_requested(stream, body, creates=False),
            "STREAM.DELETE": lambda stream, _body: StreamDeletionRequested(stream),
            "STREAM.PURGE": _purge_requested,
            "STREAM.MSG.DELETE": _delete_requested,
        }
        self._numbers = [self._watch(f"{prefix}.{kind}.*", read) for kind, read in kinds.items()]
        self._numbers.append(self._watch(f"{RESTORE_COMPLETE}.*", lambda stream, _body: StreamRestored(stream)))

    def end(self) -> None:
        """Stop watching."""
        for number in self._numbers:
            self._connection.unsubscribe(number)

    def _watch(self, subject: str, read: Callable[[str, Object | None], Request | None]) -> int:
        def sink(asked: bytes, reply: bytes, _block: bytes, body: bytes) -> None:
            if reply.startswith(self._ours):
                return
            stream = asked[asked.rfind(b".") + 1 :]
            wanted = read_object(body) if body.strip() else {}
            if len(stream) > MAX_STREAM_NAME_BYTES:
                return  # the server refuses such a request itself
            request = read(stream.decode("utf-8", "replace"), wanted)
            if isinstance(request, ConfigRequested) and f".{SIDECAR_INBOX}".encode() in reply:
                request = replace(request, by_sidecar=True)
            if request is not None:
                self._seen(request)

        return self._connection.subscribe(subject, sink)


def _config_requested(stream: str, body: Object | None, *, creates: bool) -> Request | None:
    if body is None:
        return None
    # As the server does: the letters of a field may be of either case
    # (`test_the_fields_of_a_request_may_be_of_either_case`).
    config = _lowered(body)
    is_taken = config.get("name") == stream and has_types(config, STREAM_CONFIG_TYPES)
    return ConfigRequested(stream, config, creates) if is_taken else None


def _purge_requested(stream: str, body: Object | None) -> Request | None:
    # A server of 2.11 purges all of the stream where the body is no JSON: what cannot be read is feared
    # (`test_a_purge_that_cannot_be_read_may_have_purged_everything`).
    asked = _lowered(body or {})
    wanted, below = asked.get("filter"), integer(asked.get("seq"))
    # A filter that is longer than any subject is not worth a comparison: everything is looked at again.
    is_known = isinstance(wanted, str) and 0 < len(wanted) <= MAX_SUBJECT_CHARACTERS
    return MessageRemovalRequested(stream, filter=wanted if is_known else None, below=below or None)


def _lowered(body: Object) -> Object:
    return {key.lower(): value for key, value in body.items() if value is not None}


def _delete_requested(stream: str, body: Object | None) -> Request | None:
    body = _lowered(body or {})
    sequence = body.get("seq")
    return MessageRemovalRequested(stream, sequence=sequence) if sequence and has_types(body, REMOVAL_TYPES) else None


def watched_prefix(api_prefix: str, js_domain: str | None, servers_domain: str) -> str:
    """Return where the requests of others are seen.

    The server turns `$JS.<its own domain>.API` into `$JS.API` as it takes a request, before anybody hears of it.
    """
    return "$JS.API" if js_domain and js_domain == servers_domain else api_prefix
