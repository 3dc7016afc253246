"""Receive the requests that other clients send to JetStream, at the moment they send them.

Servers up to 2.11 silently drop `allow_msg_schedules` from a stream's configuration. So only the request itself shows
what a user asked for. A plain subscription in the same account receives it, on single servers and in clusters.
The same holds for purges and deletes, for which servers send no advisory.
For a restore the server sends an advisory when it is over; only the request shows whether the flag was asked for.

The rule: a request that was received is a hint. Whether the server did it is looked up by the code that needs to know.
Requests that the server always refuses are ignored: they name another stream than their subject, or have wrong types.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from nats_scheduler.jetstream.api import Config
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.message.foreign_json import (
    REMOVAL_TYPES,
    STREAM_CONFIG_TYPES,
    Object,
    has_types,
    integer,
    read_object,
)

SIDECAR_INBOX = "nats-scheduler-sidecar-"
"""The beginning of the inboxes of sidecars: a stream update by another sidecar is not a request of a user."""

MAX_STREAM_NAME_BYTES = 255
"""Bytes: the server refuses longer names."""

MAX_SUBJECT_CHARACTERS = 4_096
"""Longer subjects do not fit into a control line of the protocol."""


@dataclass(frozen=True, slots=True)
class ConfigRequested:
    """A client asked to create or update a stream."""

    stream: str
    config: Config
    creates: bool
    by_sidecar: bool = False
    """The client is another sidecar: it adopts a stream, or repeats what a user asked for."""


@dataclass(frozen=True, slots=True)
class StreamDeletionRequested:
    """A client asked to delete a stream."""

    stream: str


@dataclass(frozen=True, slots=True)
class MessageRemovalRequested:
    """A client asked to purge a stream (`filter` None: all of it) or to delete the message with `sequence`."""

    stream: str
    filter: str | None = None
    sequence: int | None = None
    below: int | None = None
    """The purge is limited to messages below this sequence; None: no such limit."""


@dataclass(frozen=True, slots=True)
class RestoreRequested:
    """A client asked to restore a stream from a backup; that is over when `StreamRestored` comes, maybe hours later."""

    stream: str
    config: Config


@dataclass(frozen=True, slots=True)
class StreamRestored:
    """The server reported that a stream was restored from a backup."""

    stream: str


Request = ConfigRequested | StreamDeletionRequested | MessageRemovalRequested | RestoreRequested | StreamRestored

RESTORE_COMPLETE = "$JS.EVENT.ADVISORY.STREAM.RESTORE_COMPLETE"
"""The subject of the advisory about a restore that is over: the request only begins it."""


class RequestWatch:
    """Receives the requests of one account until it is ended; those of this connection are ignored."""

    def __init__(self, connection: Connection, prefix: str, seen: Callable[[Request], None]) -> None:
        self._connection = connection
        self._ours = connection.inbox("").encode()
        self._seen = seen
        kinds: dict[str, Callable[[str, Object | None], Request | None]] = {
            "STREAM.CREATE": lambda stream, body: _config_requested(stream, body, creates=True),
            "STREAM.UPDATE": lambda stream, body: _config_requested(stream, body, creates=False),
            "STREAM.RESTORE": _restore_requested,
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
    # As the server does: upper and lower case are the same in a field's name
    # (`test_the_fields_of_a_request_may_be_of_either_case`).
    config = _lowered(body)
    is_taken = config.get("name") == stream and has_types(config, STREAM_CONFIG_TYPES)
    return ConfigRequested(stream, config, creates) if is_taken else None


def _restore_requested(stream: str, body: Object | None) -> Request | None:
    config = _lowered(body or {}).get("config")
    asked = _config_requested(stream, config if isinstance(config, dict) else None, creates=True)
    return RestoreRequested(stream, asked.config) if isinstance(asked, ConfigRequested) else None


def _purge_requested(stream: str, body: Object | None) -> Request | None:
    # As the server does: 2.11 purges the whole stream if the body is not JSON, so such a request counts as that
    # (`test_a_purge_that_cannot_be_read_may_have_purged_everything`).
    asked = _lowered(body or {})
    wanted, below = asked.get("filter"), integer(asked.get("seq"))
    # A filter that is longer than any subject is not compared: everything is re-checked.
    is_known = isinstance(wanted, str) and 0 < len(wanted) <= MAX_SUBJECT_CHARACTERS
    return MessageRemovalRequested(stream, filter=wanted if is_known else None, below=below or None)


def _lowered(body: Object) -> Object:
    return {key.lower(): value for key, value in body.items() if value is not None}


def _delete_requested(stream: str, body: Object | None) -> Request | None:
    body = _lowered(body or {})
    sequence = body.get("seq")
    return MessageRemovalRequested(stream, sequence=sequence) if sequence and has_types(body, REMOVAL_TYPES) else None


def watched_prefix(api_prefix: str, js_domain: str | None, servers_domain: str) -> str:
    """Return the prefix under which the requests of other clients can be received.

    The server maps `$JS.<its own domain>.API` to `$JS.API` when it receives a request, before subscribers get it.
    """
    return "$JS.API" if js_domain and js_domain == servers_domain else api_prefix
