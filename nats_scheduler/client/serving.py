"""The way in which the schedules of a stream are served: by the server, by a sidecar, or by nothing.

The rules:

- What the server says of the stream counts first: if it returns the flag, the server itself fires `Nats-Schedule`.
- A sidecar is asked which streams it serves, by its micro service. If it answers, its answer decides the rest.
- If none answers, the sidecar's bucket shows whether one has served the stream. Then a schedule may be stored, because
  it fires once a sidecar runs again; where the user may not read the bucket, the stream's metadata decide.
- A stream on which nothing would fire is an error that says so, and what to do.

Cost: one request for each call; one more to the sidecars at most every `ASK_AGAIN_SECONDS`.
Limit: the settings of a sidecar, such as restricted targets, are not known here: a schedule that violates one is
stored, and listed as rejected.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from nats_scheduler.client.client_wire import ClientWire
from nats_scheduler.control.errors import (
    ForbiddenError,
    NoAnswerError,
    NotServedError,
    SchedulerError,
    StreamNotFoundError,
)
from nats_scheduler.control.requests import DEFAULT_PREFIX, Requests
from nats_scheduler.control.store_port import Served
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.dialect import ADR51, PORTABLE, Dialect
from nats_scheduler.message.foreign_json import Object, inner, read_object, time_of
from nats_scheduler.message.restrictions import Restrictions
from nats_scheduler.message.stream_rules import FLAG, StreamRules, takes_from_others
from nats_scheduler.message.subjects import request_beginnings
from nats_scheduler.schedule.instants import SECOND

MODES_SUBJECT = "nats_scheduler.v1.streams.modes"
"""On which sidecars answer which streams carry schedules, and what fires them."""

DEFAULT_BUCKET = "nats_scheduler"
TTL_FLAG = "allow_msg_ttl"
METADATA_FLAG = "nats-scheduler.allow_msg_schedules"
METADATA_TTL_FLAG = "nats-scheduler.allow_msg_ttl"

ASK_SECONDS = 2.0
"""Longest wait for an answer of a sidecar."""

ASK_AGAIN_SECONDS = 30.0
"""The time for which an answer of the sidecars, or the lack of one, counts."""

YOUNG_STREAM_NS = 10 * SECOND
"""A stream that is younger may not be known to the sidecars yet."""

KNOWN_WITHIN_SECONDS = 3.0
"""Within this time a sidecar knows a stream that was just created."""

MAX_PAGES = 20

_POLL_SECONDS = 0.25


class Sidecar(Enum):
    """The role of a sidecar for one stream, as far as it is known."""

    FIRES_ALL = "both spellings"
    FIRES_PORTABLE = "portable headers"
    NOT_HERE = "it answers, and does not serve the stream"
    SILENT = "none answers"
    UNKNOWN = "the user may not ask"


@dataclass(frozen=True, slots=True)
class Serving:
    """The way in which the schedules of one stream are served, and the role of a sidecar in it."""

    served: Served
    sidecar: Sidecar


class Servings:
    """Finds out how streams are served, for all values of one connection and one domain; `ServedStreams`."""

    def __init__(
        self, wire: ClientWire, requests: Requests, bucket: str = DEFAULT_BUCKET, api_prefix: str = DEFAULT_PREFIX
    ) -> None:
        self._restrictions = Restrictions(requests=request_beginnings(api_prefix, "_INBOX", bucket))
        self._wire = wire
        self._requests = requests
        self._bucket = bucket
        self._modes: Mapping[str, str] | Sidecar = Sidecar.SILENT
        self._asked_at: float | None = None
        self._entries: dict[str, Object | None] = {}
        self._server_ahead_ns: int | None = None
        """The clock of the server minus that of the event loop."""

    def now(self) -> int:
        """Return the time by the server's clock (ns), as it follows from the last answer; `of` has to come before."""
        assert self._server_ahead_ns is not None, "the time is known from the first answer on"
        return int(asyncio.get_running_loop().time() * SECOND) + self._server_ahead_ns

    async def served(self, stream: str) -> Served:
        """Return how a stream is served; raises as `of` does."""
        return (await self.of(stream)).served

    async def of(self, stream: str, *, is_anew: bool = False) -> Serving:
        """Return how a stream is served; with `is_anew` the sidecars are asked again.

        Raises `StreamNotFoundError`, `NotServedError` or `NoAnswerError`.
        """
        info = await self._requests.info(stream)
        ts = time_of(info.get("ts"))
        if ts is None:
            raise NoAnswerError(f"stream {stream}: the answer names no time; expected a server of 2.10 or later")
        self._server_ahead_ns = ts - int(asyncio.get_running_loop().time() * SECOND)
        if is_anew:
            self._asked_at = None
        config = inner(info.get("config"))
        metadata = inner(config.get("metadata"))
        server = _server(metadata, self._wire.server_version)
        is_echoed = config.get(FLAG) is True
        sidecar = await self._sidecar(stream, is_echoed=is_echoed)
        created = time_of(info.get("created"))
        if sidecar is Sidecar.NOT_HERE and created is not None and ts - created < YOUNG_STREAM_NS:
            sidecar = await self._sidecar_soon(stream)
        is_remembered = False
        if sidecar in (Sidecar.SILENT, Sidecar.UNKNOWN) and not is_echoed and not server.schedules_natively:
            is_remembered = await self._is_remembered(stream, metadata)
        dialects = dialects_of(config, server, sidecar, is_remembered=is_remembered)
        has_ttl = config.get(TTL_FLAG) is True or metadata.get(METADATA_TTL_FLAG) == "true"
        if not server.has_message_ttl and not has_ttl:  # not kept there; what no entry says is left to the sidecar
            entry = await self._entry(stream)
            has_ttl = not entry or entry.get("allow_msg_ttl") is True
        rules = replace(StreamRules.from_config({**config, TTL_FLAG: has_ttl}), restrictions=self._restrictions)
        return Serving(Served(rules, dialects, is_echoed, server), sidecar)

    # -- the sidecars ---------------------------------------------------------------------------------------------

    async def _sidecar(self, stream: str, *, is_echoed: bool = False) -> Sidecar:
        """Return what is known of the sidecars; where nothing fires without one, only that it fires is kept."""
        now = asyncio.get_running_loop().time()
        is_due = self._asked_at is None or now - self._asked_at > ASK_AGAIN_SECONDS
        is_open = not is_echoed and _found(self._modes, stream) in (Sidecar.NOT_HERE, Sidecar.SILENT)
        if is_due or is_open:
            self._modes = await self._ask()
            self._asked_at = now
        return _found(self._modes, stream)

    async def _sidecar_soon(self, stream: str) -> Sidecar:
        """Return what is known once a sidecar knows the stream, or after the time within which it would."""
        deadline = asyncio.get_running_loop().time() + KNOWN_WITHIN_SECONDS
        found = Sidecar.NOT_HERE
        while found is Sidecar.NOT_HERE and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
            found = await self._sidecar(stream)
        return found

    async def _ask(self) -> Mapping[str, str] | Sidecar:
        """Return the modes of all streams by their names; or why they are not known."""
        modes: dict[str, str] = {}
        cursor: str | None = None
        try:
            for _ in range(MAX_PAGES):
                body = json.dumps({"limit": 1_000, "cursor": cursor}).encode()
                reply = await self._wire.request(MODES_SUBJECT, body, deadline=ASK_SECONDS, accepts=_is_page)
                page = read_object(reply.body) or {}
                streams = page.get("streams")
                if not isinstance(streams, list):
                    return Sidecar.SILENT
                modes.update((str(inner(one).get("stream")), str(inner(one).get("mode"))) for one in streams)
                cursor = page.get("cursor")
                if not isinstance(cursor, str):
                    break
        except NoAnswerError:
            return Sidecar.SILENT
        except ForbiddenError:
            return Sidecar.UNKNOWN
        return modes

    # -- the bucket -----------------------------------------------------------------------------------------------

    async def _is_remembered(self, stream: str, metadata: Object) -> bool:
        """Return whether a sidecar has served a stream whose flag no server keeps."""
        entry = await self._entry(stream)
        if entry is None:
            return metadata.get(METADATA_FLAG) == "true"  # nothing else can be found out
        if entry and entry.get("deleted") is not True:
            return True
        return metadata.get(METADATA_FLAG) == "true" and await self._has_bucket()

    async def _has_bucket(self) -> bool:
        try:
            await self._requests.info(f"KV_{self._bucket}")
        except SchedulerError as error:
            return isinstance(error, ForbiddenError)
        return True

    async def _entry(self, stream: str) -> Object | None:
        """Return what a sidecar has written of a stream into its bucket: empty if nothing, None if it may not be read.

        What was found is kept, and so is that it may not be read.
        """
        if self._entries.get(stream, {}) == {}:
            subject = f"$KV.{self._bucket}.stream.{stream}"
            try:
                message = await self._requests.message(f"KV_{self._bucket}", last_by_subj=subject)
                self._entries[stream] = {} if message is None else read_object(message.body or b"") or {}
            except StreamNotFoundError:
                self._entries[stream] = {}
            except ForbiddenError:
                self._entries[stream] = None
        return self._entries.get(stream)


def dialects_of(config: Object, server: Capabilities, sidecar: Sidecar, *, is_remembered: bool) -> tuple[Dialect, ...]:
    """Return the spellings that fire on a stream, the one for new schedules first; raises `NotServedError` if none do.

    `is_remembered` if no sidecar answers, but one has served the stream.
    """
    name = config.get("name")
    if config.get("sealed") is True:
        raise NotServedError(f"stream {name} is sealed: it stores nothing any more, and nothing fires on it")
    if config.get(FLAG) is True:
        return (ADR51, PORTABLE) if sidecar in (Sidecar.FIRES_ALL, Sidecar.FIRES_PORTABLE) else (ADR51,)
    if sidecar is Sidecar.FIRES_ALL and not server.schedules_natively:  # else it answered before an upgrade
        return (ADR51, PORTABLE)
    if sidecar in (Sidecar.FIRES_ALL, Sidecar.FIRES_PORTABLE):
        return (PORTABLE,)
    if is_remembered and not takes_from_others(config):
        return (ADR51, PORTABLE)
    raise NotServedError(f"nothing would fire a schedule on stream {name}: {_reason(config, server, sidecar)}")


def _reason(config: Object, server: Capabilities, sidecar: Sidecar) -> str:
    """Return why nothing fires on a stream, and what to do."""
    if takes_from_others(config):
        return "it takes its messages from other streams; store the schedule in one of those"
    if sidecar is Sidecar.NOT_HERE:
        return f"the sidecar that answers does not serve it; create or update the stream with {FLAG}: true"
    if sidecar is Sidecar.UNKNOWN:
        why = f"this user may not ask a sidecar (publish to {MODES_SUBJECT})"
        return f"the server does not do so itself ({FLAG} is not set), and {why}"
    if server.schedules_natively:
        return f"the server does not do so as long as {FLAG} is not set, and no sidecar answers"
    return "the server is older than 2.12, and no sidecar answers; start one with `nats-scheduler run`"


def _found(modes: Mapping[str, str] | Sidecar, stream: str) -> Sidecar:
    if isinstance(modes, Sidecar):
        return modes
    mode = modes.get(stream)
    if mode is None:
        return Sidecar.NOT_HERE
    return Sidecar.FIRES_ALL if mode == "emulated" else Sidecar.FIRES_PORTABLE


def _server(metadata: Object, connected_version: str) -> Capabilities:
    """Return what the server of a stream can do: those from 2.11 on write version and API level beside its metadata."""
    version, level = metadata.get("_nats.ver"), metadata.get("_nats.level")
    return Capabilities(
        version if isinstance(version, str) else connected_version,
        int(level) if isinstance(level, str) and level.isdecimal() else 0,
    )


def _is_page(_block: bytes, body: bytes) -> bool:
    return read_object(body) is not None
