"""Streams as users configure them: `allow_msg_schedules` added, adopted, and kept in the registry.

The rules are the server's (`message.stream_rules`); only the place of the flag differs.
A server that schedules natively keeps it itself.
An older one drops it, so there it becomes an entry of the registry, under the stream's name.

The rule: the configuration is the user's, and stays as it was asked for. So a tool that repeats its creation byte for
byte is not refused (10058).
There is one exception: message TTLs that the registry has kept, once the server supports them
(`FlaggedStreams.switch_on`). A stream that does not allow roll-ups is left so (`engine.firing.purging`).

Why a name, and not the instant of creation: a server of 2.10 or 2.11 that restarts, updates the stream and restarts
again reports another instant, and so does every server that restores a backup.
An entry counts until the stream's deletion was noticed, and again if the stream comes back from a backup.
An entry that cannot be read counts too, and is written again: a stream that was served must not stop without a word.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, NamedTuple

from nats_scheduler.control.errors import NotPossibleError, RefusedError, RejectedError, SchedulerError
from nats_scheduler.jetstream.api import Config, JetStreamApi, reads_all
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.rejection import INVALID_JSON, Rejection
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import (
    FLAG,
    StreamRules,
    check_create,
    check_update,
    has_metadata,
    implied,
    takes_from_others,
)
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.invalid import MAX_SHOWN_CHARS
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339

ANSWER_METADATA = frozenset({"_nats.ver", "_nats.level"})
"""The metadata that a server adds to an answer, from 2.11 on: its version and its API level.

They are in some answers (STREAM.INFO, CREATE, UPDATE) and not in others (STREAM.LIST), and say nothing of the stream:
without them two answers can be compared.
"""


def as_kept(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration in an answer without what the server added; what it keeps stays (`_nats.req.level`)."""
    metadata = config.get("metadata")
    if not isinstance(metadata, dict) or ANSWER_METADATA.isdisjoint(metadata):
        return dict(config)
    kept = {key: value for key, value in metadata.items() if key not in ANSWER_METADATA}
    others = {key: value for key, value in config.items() if key != "metadata"}
    return {**others, "metadata": kept} if kept else others


METADATA_FLAG = "nats-scheduler.allow_msg_schedules"
"""The metadata key that stands for the flag if a user sets it by hand, to `true`."""

UNREADABLE = ""
"""In place of when a stream was created, if its registry entry could not be read."""

TTL_FLAG = "allow_msg_ttl"

METADATA_TTL_FLAG = "nats-scheduler.allow_msg_ttl"
"""The metadata key that stands for `allow_msg_ttl` if the server does not support it (2.10)."""

MAX_CREATION_TIME_ERROR_NS = SECOND
"""The clocks of two nodes, from which a stream and its first message may get their times, differ by at most this."""

SERVER_METADATA_PREFIX = "_nats."
"""Metadata with this prefix are the server's own, and change with its version."""

NEVER_FILLED_IN: dict[str, Any] = {
    **dict.fromkeys(("mirror", "sources", "republish", "subject_transform", "sealed", "deny_delete", "no_ack"), False),
    **dict.fromkeys(("max_consumers", "max_msgs", "max_bytes", "max_age", "max_msgs_per_subject", "max_msg_size"), 0),
    "description": "",
    "retention": "limits",
    "storage": "file",
    "discard": "old",
}
"""Fields that every server keeps as they were asked for, with their values if they were not asked for."""


class Remembered(NamedTuple):
    """The registry entry of a stream that carries the flag."""

    created: str
    """The creation time of the stream, as the server reported it then; it may report another instant now."""
    allow_msg_ttl: bool
    since: int | None
    """Since when it carries the flag (ns since the Unix epoch), None if that was not read."""
    deleted: bool = False
    """True if its deletion was noticed since."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream as the server describes it, with its registry entry if that was read."""

    config: Config
    created: str
    first_sequence: int
    last_sequence: int
    remembered: Remembered | None = None
    holds_older_messages: bool = False
    """True if it holds messages from before its creation: it was restored, or the server reports a wrong instant."""
    deleted: int = 0
    """The number of messages that were removed between those that are stored."""
    subjects: int = 0
    """The number of subjects that have messages: there are never more schedules."""

    @classmethod
    def from_info(cls, info: Mapping[str, Any]) -> "StreamState":
        """Read the answer to STREAM.INFO, CREATE or UPDATE, or an entry of a list: all describe a stream alike."""
        state = info.get("state") or {}
        first, last = int(state.get("first_seq", 0)), int(state.get("last_seq", 0))
        created = str(info.get("created", ""))
        oldest, made = parse_rfc3339(str(state.get("first_ts"))), parse_rfc3339(created)
        is_older = isinstance(oldest, int) and isinstance(made, int) and 0 < oldest < made - MAX_CREATION_TIME_ERROR_NS
        deleted, subjects = int(state.get("num_deleted", 0)), int(state.get("num_subjects", 0))
        return cls(as_kept(info["config"]), created, first, last, None, is_older, deleted, subjects)

    @property
    def removals(self) -> tuple[int, int]:
        """A value that is another one whenever a message was removed."""
        return self.first_sequence, self.deleted

    @property
    def name(self) -> str:
        """The stream's name."""
        return str(self.config["name"])

    @property
    def is_native(self) -> bool:
        """True if the server itself schedules on this stream."""
        return self.config.get(FLAG) is True

    @property
    def waits_for_graduation(self) -> bool:
        """True if it holds messages, and the server does not schedule on it."""
        return not self.is_native and 0 < self.first_sequence <= self.last_sequence

    @property
    def has_metadata_flag(self) -> bool:
        """True if a key of its metadata stands for the flag."""
        return has_metadata(self.config, METADATA_FLAG)

    @property
    def excludes_schedules(self) -> bool:
        """True if no schedule fires here, flag or not: it is sealed, or copies messages of another stream."""
        return self.config.get("sealed") is True or takes_from_others(self.config)

    @property
    def is_flagged(self) -> bool:
        """True if it carries the flag, in whatever form it is kept."""
        return self.is_native or self.has_metadata_flag or self.remembered is not None

    @property
    def has_servers_ttl(self) -> bool:
        """True if the server itself acts on the TTLs of its messages."""
        return StreamRules.from_config(self.config).allow_msg_ttl

    @property
    def rules(self) -> StreamRules:
        """The rules by which its messages are read, with the flags of the registry and of its metadata."""
        by_us = self.remembered is not None and self.remembered.allow_msg_ttl
        ttl = self.config.get(TTL_FLAG) is True or has_metadata(self.config, METADATA_TTL_FLAG) or by_us
        return StreamRules.from_config({**self.config, TTL_FLAG: ttl})


class FlaggedStreams:
    """The streams of one account that carry the flag, in whatever form the server can keep it."""

    def __init__(self, api: JetStreamApi, registry: Registry, server: Capabilities) -> None:
        self._api = api
        self._registry = registry
        self._server = server

    # -- what is asked for ---------------------------------------------------------------------------------------

    async def add(self, config: Config) -> tuple[StreamState, bool]:
        """Create the stream, or update it, to `config`; return it, and whether it was created.

        Raises `RejectedError` if the server's rules forbid it, `RefusedError` if the server does, and
        `NotPossibleError` if it would hand stored schedules over to the server without checking them.
        """
        info, known = await self._api.stream(config["name"]), None
        if info is None:
            _refuse(config["name"], check_create(config))
            answer = await self._sent(self._api.create_stream, self._purgeable(config))
        else:
            before = await self.recall(StreamState.from_info(info))
            is_handed_over = config.get(FLAG) and before.is_flagged and self._server.schedules_natively
            if is_handed_over and before.waits_for_graduation:
                raise NotPossibleError(_not_graduated(before.name))
            known = before.remembered
            old = {**before.config, FLAG: before.is_flagged, TTL_FLAG: before.rules.allow_msg_ttl}
            _refuse(config["name"], check_update(old, config))
            answer = await self._sent(self._api.update_stream, self._purgeable(_merged(before, config)))
        state = StreamState.from_info(answer)
        if config.get(FLAG) is True and not self._server.schedules_natively:
            allow_msg_ttl = StreamRules.from_config(config).allow_msg_ttl or state.rules.allow_msg_ttl
            state = await self._remember(replace(state, remembered=known), allow_msg_ttl=allow_msg_ttl)
        return state, info is None

    async def adopt(self, state: StreamState, asked: Config) -> tuple[StreamState, Rejection | None]:
        """Write into the registry that a client flagged a stream, by asking for the configuration `asked`.

        `state` has the registry entry of before.
        Returns the stream, and why a native server would have refused what was asked for, or what is in force.
        A native server then keeps the stream as it was, and its schedules go on. So they do here, if the stream was
        adopted before and copies no other. Raises `RejectedError` if it was not, or is a copy.
        Nothing is written if the entry is right already, and never anything into the stream's configuration.
        """
        is_known, has_ttl = state.remembered is not None, state.rules.allow_msg_ttl
        if has_metadata(asked, METADATA_TTL_FLAG):
            asked = {**asked, TTL_FLAG: True}
        allow_msg_ttl = has_ttl or StreamRules.from_config(asked).allow_msg_ttl
        wanted = {**state.config, FLAG: True, TTL_FLAG: allow_msg_ttl}
        before = {**state.config, FLAG: is_known, TTL_FLAG: has_ttl}
        refusal = check_update(before, asked if asked.get(FLAG) is True else wanted) or check_update(before, wanted)
        if refusal is not None and (not is_known or state.excludes_schedules):
            raise RejectedError(refusal, f"stream {state.name}")
        return await self._remember(state, allow_msg_ttl=allow_msg_ttl), refusal

    async def repeat(self, config: Config) -> None:
        """Ask again for what an update of the sidecar has undone; raises as `JetStreamApi.update_stream` does."""
        await self._sent(self._api.update_stream, {**config, TTL_FLAG: True})

    # -- what a schedule cannot do without -----------------------------------------------------------------------

    def missing(self, state: StreamState) -> Config:
        """Return the settings that a stream needs so that its schedules can fire.

        Message TTLs, if an older server did not support them, so that the registry has kept them for the stream.
        """
        if state.config.get("sealed") or state.config.get("deny_purge"):
            return {}
        is_due = self._server.has_message_ttl and state.rules.allow_msg_ttl and not state.has_servers_ttl
        return {TTL_FLAG: True} if is_due else {}

    async def switch_on(self, state: StreamState, missing: Config) -> StreamState:
        """Give a stream the settings that are missing; raises as `JetStreamApi.update_stream` does.

        The server has no condition for an update. So the configuration is read anew before, and a request of a client
        that arrives in between is repeated (`repeat`).
        """
        info = await self._api.stream(state.name)
        if info is None:
            return state  # it was deleted meanwhile, and that is noticed
        current = StreamState.from_info(info)
        updated = StreamState.from_info(await self._api.update_stream({**current.config, **missing}))
        return replace(updated, remembered=state.remembered)

    # -- the registry --------------------------------------------------------------------------------------------

    async def recall(self, state: StreamState) -> StreamState:
        """Return the stream with its registry entry, unless that is of a deleted stream with its name."""
        value, written_at, revision = await self._registry.dated(_key(state.name))
        known = _read(value, written_at)
        if known is None and revision:
            return replace(state, remembered=self._unreadable(state, value))
        is_another = known is not None and known.deleted and known.created != state.created
        return replace(state, remembered=None if is_another and not state.holds_older_messages else known)

    def _unreadable(self, state: StreamState, value: Mapping[str, Any] | None) -> Remembered:
        """Return the entry for a key whose value no sidecar wrote: nothing but a flag belongs there.

        Without a time of creation it is no entry of this stream, so `adopt` writes it again.
        """
        if value is not None:  # what is not JSON at all is reported by the registry
            shown = str(value)[:MAX_SHOWN_CHARS]
            self._registry.broken(_key(state.name), f"no flag that a sidecar wrote, but it counts as one: {shown}")
        return Remembered(UNREADABLE, state.rules.allow_msg_ttl, None)

    async def restore(self, state: StreamState) -> StreamState:
        """Write the registry entry of `state` into the registry again."""
        known = state.remembered
        allow_msg_ttl = known.allow_msg_ttl if known is not None else state.rules.allow_msg_ttl
        value: dict[str, Any] = {"created": state.created}
        if allow_msg_ttl:
            value[TTL_FLAG] = True
        since = known.since if known is not None else None
        if since is not None:
            value["since"] = format_rfc3339(since)
        await self._registry.put(_key(state.name), value)
        return replace(state, remembered=Remembered(state.created, allow_msg_ttl, since))

    async def note_deletion(self, name: str, created: str | None) -> bool:
        """Write down that a stream was deleted; `created` is that of the stream with its name now, None without one.

        Returns False if the entry is that of the present stream, so that there is nothing to write yet.
        """
        value, written_at, revision = await self._registry.dated(_key(name))
        known = _read(value, written_at)
        if value is None or known is None or known.deleted:
            return True
        if known.created == created:
            return False
        return await self._registry.swap(_key(name), {**value, "deleted": True}, revision) is not None

    async def _remember(self, state: StreamState, *, allow_msg_ttl: bool) -> StreamState:
        """Write the entry if it changes."""
        known = state.remembered
        if known is not None and (*known[:2], known.deleted) == (state.created, allow_msg_ttl, False):
            return state
        since = known.since if known is not None else None
        return await self.restore(replace(state, remembered=Remembered(state.created, allow_msg_ttl, since)))

    # -- what the server is sent ---------------------------------------------------------------------------------

    async def _sent(self, send: Callable[[Config], Awaitable[Any]], config: Config) -> Any:
        """Send a configuration unchanged, so that sidecars see the flag; if the server refuses it, without the flag."""
        try:
            return await send(config)
        except RefusedError as error:
            if error.code != INVALID_JSON or self._server.schedules_natively or FLAG not in config:
                raise
        return await send({key: value for key, value in config.items() if key != FLAG})

    def _purgeable(self, config: Config) -> Config:
        """Return the configuration without `deny_purge`, which a native server drops when it gets the flag."""
        if config.get(FLAG) is not True or self._server.schedules_natively or not config.get("deny_purge"):
            return config
        return {**config, "deny_purge": False}


async def absence_of(api: JetStreamApi, name: str) -> str:
    """Return that a stream does not exist, as a sentence, with the name of a similar one if there is one."""
    names: list[str] = []
    with suppress(SchedulerError):  # the list is only for a hint
        names = await api.stream_names()
    same = [one for one in names if one.lower() == name.lower()]
    similar = same or get_close_matches(name, names, 1)
    return f"stream {name} does not exist" + (f": did you mean {similar[0]}?" if similar else "")


def graduated(state: StreamState) -> Config:
    """Return the configuration with which a native server takes over: with the flag, without our metadata keys."""
    wanted = {**state.config, FLAG: True, "metadata": _of_the_user(state.config)}
    if state.rules.allow_msg_ttl:
        wanted[TTL_FLAG] = True
    return {**wanted, **implied(wanted)}


def check_graduation(state: StreamState) -> Rejection | None:
    """Return why a native server would refuse to take over; None if it would not."""
    before = {**state.config, FLAG: False}
    return check_update(before, {**before, FLAG: True})


def is_in_force(asked: Config, config: Config, *, closely: bool, echoed: bool) -> bool:
    """Return whether a configuration that was asked for is the one that the server has.

    Fields that the server fills in by itself are compared only if they were asked for.
    With `closely`, a field that the server does not return counts as not in force, and objects are compared. Without,
    it counts as unknown to this version, and objects as normalized by it.
    With `echoed`, the server keeps the flag itself.
    """
    if any(_normal(asked.get(key), empty) != _normal(config.get(key), empty) for key, empty in NEVER_FILLED_IN.items()):
        return False
    if _of_the_user(asked) != _of_the_user(config) or (config.get("deny_purge") and not asked.get("deny_purge")):
        return False
    passed_over = ("metadata", "deny_purge") if echoed else ("metadata", "deny_purge", FLAG)
    compared = {key: value for key, value in asked.items() if key not in passed_over}
    if closely:
        return all(_agrees(value, config.get(key)) for key, value in compared.items() if key != "allow_rollup_hdrs")
    plain = {key: value for key, value in compared.items() if value and _is_plain(value)}
    return all(_agrees(value, config.get(key, value)) for key, value in plain.items())


def _agrees(asked: Any, kept: Any) -> bool:
    if isinstance(asked, dict):
        return isinstance(kept, dict) and all(_agrees(value, kept.get(key)) for key, value in asked.items())
    if isinstance(asked, list):
        return kept == asked if _is_plain(asked) else bool(kept) == bool(asked)
    if asked is False:
        return not kept
    return not asked or bool(kept == asked)


def _normal(value: Any, empty: Any) -> Any:
    if isinstance(value, dict | list):
        return bool(value)
    unlimited = isinstance(value, int) and not isinstance(value, bool) and value < 0
    return empty if unlimited or not value else value


def _of_the_user(config: Config) -> dict[str, str]:
    metadata = _own(config.get("metadata") or {})
    return {key: value for key, value in metadata.items() if key not in (METADATA_FLAG, METADATA_TTL_FLAG)}


def _is_plain(value: object) -> bool:
    items = value if isinstance(value, list) else [value]
    return all(isinstance(item, str | int | bool) for item in items)


def _read(value: Mapping[str, Any] | None, written_at: int) -> Remembered | None:
    """Return the content of a registry entry, None if no sidecar wrote it."""
    if value is None or not isinstance(value.get("created"), str):
        return None
    since = parse_rfc3339(str(value.get("since", "")))
    since = since if isinstance(since, int) else written_at
    return Remembered(value["created"], value.get(TTL_FLAG) is True, since, value.get("deleted") is True)


def _key(stream: str) -> str:
    return f"stream.{stream}"


def _merged(before: StreamState, config: Config) -> Config:
    """Return the update to `config`: metadata that it does not name stay."""
    if not config.get(FLAG):
        return config
    metadata = {**_own(before.config.get("metadata") or {}), **(config.get("metadata") or {})}
    # An empty object is not the same as none if a creation is repeated
    # (`test_a_repeated_creation_is_accepted_after_it_was_added`).
    return {**config, "metadata": metadata} if metadata else dict(config)


def _own(metadata: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in metadata.items() if not key.startswith(SERVER_METADATA_PREFIX)}


def _not_graduated(stream: str) -> str:
    """Return why a stream does not get the flag: a server would adopt unchecked what was stored for the sidecar."""
    return (
        f"stream {stream} holds messages from before the upgrade, when a sidecar served it: "
        f"`nats-scheduler graduate {stream}` checks them and hands the schedules over to the server"
    )


def _refuse(stream: str, rejection: Rejection | None) -> None:
    if rejection is not None:
        raise RejectedError(rejection, f"stream {stream}")


Progress = Callable[[str, int, int | None], None]
"""Receives what is done now, how much of it is done, and how much there is; None if that is not known."""


def reading_progress(
    show: Progress, what: str, state: StreamState, after: int = 0
) -> Callable[[Sequence[StoredMessage]], None]:
    """Return what shows how far a stream is read above sequence `after`; to be called with each batch of messages.

    Where each subject is requested by itself the sequences come in no order, so only the number of messages is known.
    """
    count, first = 0, max(state.first_sequence, after + 1, 1)

    def take(messages: Sequence[StoredMessage]) -> None:
        nonlocal count
        count += len(messages)
        if not reads_all(state.config):
            show(what, count, None)
        elif messages:
            last = max(message.sequence for message in messages)
            show(what, last - first + 1, state.last_sequence - first + 1)

    return take
