"""Streams as users configure them: `allow_msg_schedules` added, adopted, remembered.

The rules are the server's (`message.stream_rules`); what differs is where the flag is kept.
A server that schedules natively keeps it itself.
An older one drops it, so there it becomes an entry of our registry, under the stream's name.

The rule: the configuration is the user's, and stays as it was asked for, so that a tool that repeats its creation byte
for byte is not refused (10058).
What a stored schedule cannot do without is switched on when it is needed, and told (`FlaggedStreams.switch_on`).

Why a name, and not the instant of creation: a server of 2.10 or 2.11 that restarts, updates the stream and restarts
again shows another one, and so does each that restores a backup.
An entry counts until the stream's deletion was seen, and again where the stream comes back from a backup.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from nats_scheduler.jetstream.api import Config, JetStreamApi
from nats_scheduler.jetstream.capabilities import Capabilities
from nats_scheduler.jetstream.errors import ApiError, JetStreamError
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.message.rejection import INVALID_JSON, Rejection
from nats_scheduler.message.stream_rules import (
    FLAG,
    StreamRules,
    check_create,
    check_update,
    implied,
    takes_from_others,
)
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339

METADATA_FLAG = "nats-scheduler.allow_msg_schedules"
"""The metadata key that stands for the flag where a user sets it by hand, to `true`."""

TTL_FLAG = "allow_msg_ttl"

METADATA_TTL_FLAG = "nats-scheduler.allow_msg_ttl"
"""The metadata key that stands for `allow_msg_ttl` where the server does not know it (2.10)."""

ROLL_UPS = "allow_rollup_hdrs"

MAX_CLOCK_DIFFERENCE_NS = SECOND
"""A stream and its first message may get their times (ns) from two nodes, whose clocks differ so much at most."""

SERVER_METADATA_PREFIX = "_nats."
"""What begins so is the server's own, and changes when the server does."""

NEVER_FILLED_IN: dict[str, Any] = {
    **dict.fromkeys(("mirror", "sources", "republish", "subject_transform", "sealed", "deny_delete", "no_ack"), False),
    **dict.fromkeys(("max_consumers", "max_msgs", "max_bytes", "max_age", "max_msgs_per_subject", "max_msg_size"), 0),
    "description": "",
    "retention": "limits",
    "storage": "file",
    "discard": "old",
}
"""Fields that every server keeps as they were asked for, with what one has that was not asked for."""


class StreamRefusedError(JetStreamError):
    """The stream cannot have the flag, by the server's rules."""

    def __init__(self, stream: str, rejection: Rejection) -> None:
        super().__init__(f"stream {stream}: {rejection}")
        self.stream = stream
        self.rejection = rejection


class NotGraduatedError(JetStreamError):
    """The stream's schedules were stored for the sidecar; a server that is given the flag would adopt them unseen."""

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"stream {stream} holds what a sidecar served before the upgrade: `nats-scheduler graduate {stream}` "
            "looks at it and hands it over to the server"
        )


class Remembered(NamedTuple):
    """What the registry says of a stream that carries the flag."""

    created: str
    """When the server said that the stream was created, which it may say otherwise now."""
    allow_msg_ttl: bool
    since: int | None
    """Since when it is known to carry the flag (ns since the Unix epoch), None where that was not read."""
    deleted: bool = False
    """Whether it was seen to be deleted since."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream as the server describes it, with what the registry says besides where that was asked."""

    config: Config
    created: str
    first_sequence: int
    last_sequence: int
    remembered: Remembered | None = None
    holds_older_messages: bool = False
    """Whether it holds what was stored before its creation, so that it was restored, or the server errs."""

    @classmethod
    def from_info(cls, info: Mapping[str, Any]) -> "StreamState":
        """Read the answer to STREAM.INFO, CREATE or UPDATE."""
        state = info.get("state") or {}
        first, last = int(state.get("first_seq", 0)), int(state.get("last_seq", 0))
        created = str(info.get("created", ""))
        oldest, made = parse_rfc3339(str(state.get("first_ts"))), parse_rfc3339(created)
        is_older = isinstance(oldest, int) and isinstance(made, int) and 0 < oldest < made - MAX_CLOCK_DIFFERENCE_NS
        return cls(dict(info["config"]), created, first, last, holds_older_messages=is_older)

    @property
    def name(self) -> str:
        """The stream's name."""
        return str(self.config["name"])

    @property
    def is_native(self) -> bool:
        """Whether the server itself schedules on this stream."""
        return self.config.get(FLAG) is True

    @property
    def waits_for_graduation(self) -> bool:
        """Whether it holds messages, and the server does not schedule on it."""
        return not self.is_native and 0 < self.first_sequence <= self.last_sequence

    @property
    def has_metadata_flag(self) -> bool:
        """Whether its metadata stand for the flag."""
        return _is_set(self.config, METADATA_FLAG)

    @property
    def excludes_schedules(self) -> bool:
        """Whether no schedule fires here, flag or not: it is sealed, or takes what fires in another stream."""
        return self.config.get("sealed") is True or takes_from_others(self.config)

    @property
    def is_flagged(self) -> bool:
        """Whether it carries the flag, in whatever form it is kept."""
        return self.is_native or self.has_metadata_flag or self.remembered is not None

    @property
    def has_servers_ttl(self) -> bool:
        """Whether the server itself acts on the TTLs of its messages."""
        return StreamRules.from_config(self.config).allow_msg_ttl

    @property
    def rules(self) -> StreamRules:
        """What reading its messages depends on, with what the registry and its metadata stand for."""
        by_us = self.remembered is not None and self.remembered.allow_msg_ttl
        ttl = self.config.get(TTL_FLAG) is True or _is_set(self.config, METADATA_TTL_FLAG) or by_us
        return StreamRules.from_config({**self.config, TTL_FLAG: ttl})


class FlaggedStreams:
    """The streams of one account that carry the flag, in whatever form the server can keep it."""

    def __init__(self, api: JetStreamApi, registry: Registry, server: Capabilities) -> None:
        self._api = api
        self._registry = registry
        self._server = server

    # -- what is asked for ---------------------------------------------------------------------------------------

    async def add(self, config: Config) -> tuple[StreamState, bool]:
        """Create the stream, or update it, as `config` says; returns it and whether it was created.

        Raises `StreamRefusedError` where the server's rules forbid it, and `ApiError` where the server does;
        `NotGraduatedError` where it would hand stored schedules over to the server without a look at them.
        """
        info, known = await self._api.stream(config["name"]), None
        if info is None:
            _refuse(config["name"], check_create(config))
            answer = await self._sent(self._api.create_stream, self._purgeable(config))
        else:
            before = await self.recall(StreamState.from_info(info))
            is_handed_over = config.get(FLAG) and before.is_flagged and self._server.schedules_natively
            if is_handed_over and before.waits_for_graduation:
                raise NotGraduatedError(before.name)
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
        """Remember a stream that somebody else flagged, by asking for the configuration `asked`.

        `state` says what was remembered before.
        Returns the stream, and why a native server would have refused what was asked for, or what is in force.
        A native server keeps a stream as it was then, and its schedules go on: so they do here, where the stream was
        adopted before and is no copy of others. Raises `StreamRefusedError` where it was not, or is one.
        Nothing is written where everything is as it should be, and nothing into the stream's configuration.
        """
        is_known, has_ttl = state.remembered is not None, state.rules.allow_msg_ttl
        if _is_set(asked, METADATA_TTL_FLAG):
            asked = {**asked, TTL_FLAG: True}
        allow_msg_ttl = has_ttl or StreamRules.from_config(asked).allow_msg_ttl
        wanted = {**state.config, FLAG: True, TTL_FLAG: allow_msg_ttl}
        before = {**state.config, FLAG: is_known, TTL_FLAG: has_ttl}
        refusal = check_update(before, asked if asked.get(FLAG) is True else wanted) or check_update(before, wanted)
        if refusal is not None and (not is_known or state.excludes_schedules):
            raise StreamRefusedError(state.name, refusal)
        return await self._remember(state, allow_msg_ttl=allow_msg_ttl), refusal

    async def repeat(self, config: Config) -> None:
        """Ask again for what an update of ours has undone; raises as `JetStreamApi.update_stream` does."""
        await self._sent(self._api.update_stream, {**config, ROLL_UPS: True})

    # -- what a schedule cannot do without -----------------------------------------------------------------------

    def missing(self, state: StreamState, *, rolls_up: bool) -> Config:
        """Return the settings that a stream has to be given so that its schedules can fire.

        Roll-ups where a schedule `rolls_up` its target; and message TTLs where a server before this one did not know
        them, and we kept them for it.
        """
        if state.config.get("sealed") or state.config.get("deny_purge"):
            return {}
        needed: Config = {ROLL_UPS: True} if rolls_up and not state.config.get(ROLL_UPS) else {}
        if self._server.has_message_ttl and state.rules.allow_msg_ttl and not state.has_servers_ttl:
            needed[TTL_FLAG] = True
        return needed

    async def switch_on(self, state: StreamState, missing: Config) -> StreamState:
        """Give a stream the settings that it misses; raises as `JetStreamApi.update_stream` does."""
        updated = StreamState.from_info(await self._api.update_stream({**state.config, **missing}))
        return replace(updated, remembered=state.remembered)

    # -- the registry --------------------------------------------------------------------------------------------

    async def recall(self, state: StreamState) -> StreamState:
        """Return the stream with what the registry says of it, and not of a deleted one of its name."""
        value, written_at, _revision = await self._registry.dated(_key(state.name))
        known = _read(value, written_at)
        is_another = known is not None and known.deleted and known.created != state.created
        return replace(state, remembered=None if is_another and not state.holds_older_messages else known)

    async def restore(self, state: StreamState) -> StreamState:
        """Write into the registry what `state` says that it said of the stream."""
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
        """Write down that a stream was deleted; `created` is that of the one that has its name now, None without one.

        Returns False where the registry knows that very one, so that there is nothing to write yet.
        """
        value, written_at, revision = await self._registry.dated(_key(name))
        known = _read(value, written_at)
        if value is None or known is None or known.deleted:
            return True
        if known.created == created:
            return False
        return await self._registry.swap(_key(name), {**value, "deleted": True}, revision) is not None

    async def _remember(self, state: StreamState, *, allow_msg_ttl: bool) -> StreamState:
        """Write it down where it is news."""
        known = state.remembered
        if known is not None and (*known[:2], known.deleted) == (state.created, allow_msg_ttl, False):
            return state
        since = known.since if known is not None else None
        return await self.restore(replace(state, remembered=Remembered(state.created, allow_msg_ttl, since)))

    # -- what the server is sent ---------------------------------------------------------------------------------

    async def _sent(self, send: Callable[[Config], Awaitable[Any]], config: Config) -> Any:
        """Send a configuration as it is, so that sidecars see the flag; where the server minds that, without."""
        try:
            return await send(config)
        except ApiError as error:
            if error.code != INVALID_JSON or self._server.schedules_natively or FLAG not in config:
                raise
        return await send({key: value for key, value in config.items() if key != FLAG})

    def _purgeable(self, config: Config) -> Config:
        """Return the configuration without `deny_purge`, which a native server drops where it is given the flag."""
        if config.get(FLAG) is not True or self._server.schedules_natively or not config.get("deny_purge"):
            return config
        return {**config, "deny_purge": False}


def graduated(state: StreamState) -> Config:
    """Return the configuration with which a native server takes over: the flag, and our marks no more."""
    wanted = {**state.config, FLAG: True, "metadata": _of_the_user(state.config)}
    if state.rules.allow_msg_ttl:
        wanted[TTL_FLAG] = True
    return {**wanted, **implied(wanted)}


def check_graduation(state: StreamState) -> Rejection | None:
    """Return why a native server would refuse to take over; None where it does not."""
    before = {**state.config, FLAG: False}
    return check_update(before, {**before, FLAG: True})


def is_in_force(asked: Config, config: Config, *, closely: bool, echoed: bool) -> bool:
    """Tell whether a configuration that was asked for is the one that the server has.

    What the server fills in by itself is compared only where it was asked for.
    With `closely`, what the server does not mention counts as not in force, and objects are compared; without, it
    counts as unknown to this version, and objects as normalized by it.
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


def _is_set(config: Config, key: str) -> bool:
    value = (config.get("metadata") or {}).get(key, "")
    return str(value).lower() in ("true", "1", "yes", "on")


def _read(value: Mapping[str, Any] | None, written_at: int) -> Remembered | None:
    """Return what an entry of the registry says, None where it is none of our making."""
    if value is None or not isinstance(value.get("created"), str):
        return None
    since = parse_rfc3339(str(value.get("since", "")))
    since = since if isinstance(since, int) else written_at
    return Remembered(value["created"], value.get(TTL_FLAG) is True, since, value.get("deleted") is True)


def _key(stream: str) -> str:
    return f"stream.{stream}"


def _merged(before: StreamState, config: Config) -> Config:
    """Return what an update to `config` asks for: metadata that it does not name stay, and so do roll-ups in use."""
    if not config.get(FLAG):
        return config
    metadata = {**_own(before.config.get("metadata") or {}), **(config.get("metadata") or {})}
    # An empty object is not the same as none where a creation is repeated
    # (`test_a_repeated_creation_is_accepted_after_it_was_added`).
    merged = {**config, "metadata": metadata} if metadata else dict(config)
    if before.is_flagged and before.config.get(ROLL_UPS) and not config.get("deny_purge"):
        merged[ROLL_UPS] = True
    return merged


def _own(metadata: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in metadata.items() if not key.startswith(SERVER_METADATA_PREFIX)}


def _refuse(stream: str, rejection: Rejection | None) -> None:
    if rejection is not None:
        raise StreamRefusedError(stream, rejection)
