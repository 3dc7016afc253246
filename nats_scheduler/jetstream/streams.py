"""Streams as users configure them: `allow_msg_schedules` added, adopted, remembered.

The rules are the server's (`message.stream_rules`); what differs is where the flag is kept.
A server that schedules natively keeps it itself and is sent it as it is.
An older one would drop it, so there it becomes a metadata entry of the stream and an entry of our registry, and what
the flag implies (roll-ups and purge allowed) is switched on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nats_scheduler.jetstream.api import Config, JetStreamApi
from nats_scheduler.jetstream.capabilities import Capabilities
from nats_scheduler.jetstream.errors import ApiError, JetStreamError, NotPermittedError
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.stream_rules import StreamRules, check_create, check_update, implied, takes_from_others

FLAG = "allow_msg_schedules"

METADATA_FLAG = "nats-scheduler.allow_msg_schedules"
"""The metadata key that stands for the flag; a user may set it by hand, to `true`."""

TTL_FLAG = "allow_msg_ttl"

METADATA_TTL_FLAG = "nats-scheduler.allow_msg_ttl"
"""The metadata key that stands for `allow_msg_ttl` where the server does not know it (2.10)."""

SERVER_METADATA = "_nats."
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


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream as the server describes it."""

    config: Config
    created: str
    first_sequence: int
    last_sequence: int

    @classmethod
    def from_info(cls, info: Mapping[str, Any]) -> "StreamState":
        """Read the answer to STREAM.INFO, CREATE or UPDATE."""
        state = info.get("state") or {}
        first, last = int(state.get("first_seq", 0)), int(state.get("last_seq", 0))
        return cls(dict(info["config"]), str(info.get("created", "")), first, last)

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
    def is_marked(self) -> bool:
        """Whether its metadata stand for the flag."""
        return _says(self.config, METADATA_FLAG)

    @property
    def excludes_schedules(self) -> bool:
        """Whether no schedule fires here, flag or not: it is sealed, or takes what fires in another stream."""
        return self.config.get("sealed") is True or takes_from_others(self.config)

    @property
    def rules(self) -> StreamRules:
        """What reading its messages depends on, with what its metadata stand for."""
        ttl = self.config.get(TTL_FLAG) is True or _says(self.config, METADATA_TTL_FLAG)
        return StreamRules.from_config({**self.config, TTL_FLAG: ttl})


class FlaggedStreams:
    """The streams of one account that carry the flag, in whatever form the server can keep it."""

    def __init__(self, api: JetStreamApi, registry: Registry, server: Capabilities) -> None:
        self._api = api
        self._registry = registry
        self._server = server

    async def add(self, config: Config) -> tuple[StreamState, bool]:
        """Create the stream, or update it, as `config` says; returns it and whether it was created.

        Raises `StreamRefusedError` where the server's rules forbid it, and `ApiError` where the server does;
        `NotGraduatedError` where it would hand stored schedules over to the server without a look at them.
        """
        info = await self._api.stream(config["name"])
        if info is None:
            _refuse(config["name"], check_create(config))
            state = StreamState.from_info(await self._api.create_stream(self._as_stored(config, {})))
        else:
            before = StreamState.from_info(info)
            old = await self._with_flag(before)
            if config.get(FLAG) and old[FLAG] and self._server.schedules_natively and before.waits_for_graduation:
                raise NotGraduatedError(before.name)
            _refuse(config["name"], check_update(old, config))
            metadata = old.get("metadata") or {}
            state = StreamState.from_info(await self._api.update_stream(self._as_stored(config, metadata)))
        if config.get(FLAG) is True and not self._server.schedules_natively:
            await self.remember(state)
        return state, info is None

    async def adopt(self, state: StreamState, asked: Config) -> tuple[StreamState, Rejection | None]:
        """Give a stream that somebody else flagged, by asking for the configuration `asked`, what the flag implies.

        Returns the stream, and why a native server would have refused what was asked for, or what is in force.
        A native server keeps a stream as it was then, and its schedules go on: so they do here, where the stream was
        adopted before and is no copy of others. Raises `StreamRefusedError` where it was not, or is one.
        Nothing is written where everything is as it should be.
        """
        known = await self._known(state)
        wanted = {**state.config, FLAG: True}
        if _says(asked, METADATA_TTL_FLAG):
            asked = {**asked, TTL_FLAG: True}
        if state.rules.allow_msg_ttl or StreamRules.from_config(asked).allow_msg_ttl or _has_ttl(known):
            wanted[TTL_FLAG] = True
        before = {**state.config, FLAG: known is not None, TTL_FLAG: state.rules.allow_msg_ttl or _has_ttl(known)}
        refusal = check_update(before, asked if asked.get(FLAG) is True else wanted) or check_update(before, wanted)
        if refusal is not None and (known is None or state.excludes_schedules):
            raise StreamRefusedError(state.name, refusal)
        stored = self._as_stored(wanted, {})
        if state.config.get("deny_purge"):
            stored |= {key: state.config.get(key, False) for key in implied(wanted)}
        # Known before it shows: whoever sees the mark may write the stream anew without it, and we may be gone by then.
        is_news = await self._remember(state, known, allow_msg_ttl=StreamRules.from_config(wanted).allow_msg_ttl)
        if all(state.config.get(key, False) == value for key, value in stored.items()):
            return state, refusal
        try:
            updated = StreamState.from_info(await self._api.update_stream(stored))
        except (ApiError, NotPermittedError):
            if is_news:
                await self._forget_again(state, known)
            raise
        if updated.created != state.created:
            if is_news:
                await self._forget_again(state, known)
            await self._take_back_from_another(updated)
        return updated, refusal

    async def _forget_again(self, state: StreamState, known: Any) -> None:
        """Make the registry say of a stream that did not get the flag what it said before."""
        if known is None:
            await self._registry.forget(_key(state))
        else:
            await self._registry.put(_key(state), known)

    async def _take_back_from_another(self, updated: StreamState) -> None:
        """Unmark a stream that was made, under the same name, between our reading of the one before and our update."""
        metadata = _of_the_user(updated.config)
        await self._api.update_stream({**updated.config, "metadata": metadata})
        raise JetStreamError(f"stream {updated.name} was deleted and made again at the same moment")

    async def update(self, config: Config) -> None:
        """Update a stream that carries the flag, whether or not `config` says so; raises as `add` does."""
        await self._api.update_stream(self._as_stored({**config, FLAG: True}, {}))

    async def remember(self, state: StreamState) -> None:
        """Write into the registry that the stream carries the flag, and what else its server cannot keep."""
        await self._remember(state, await self._known(state), allow_msg_ttl=state.rules.allow_msg_ttl)

    async def _remember(self, state: StreamState, known: Any, *, allow_msg_ttl: bool) -> bool:
        """Write it where it is not what is known, and return whether it was not."""
        value: dict[str, Any] = {"created": state.created}
        if allow_msg_ttl:
            value[TTL_FLAG] = True
        if known == value:
            return False
        await self._registry.put(_key(state), value)
        return True

    async def is_remembered(self, state: StreamState) -> bool:
        """Tell whether this very stream, and not an earlier one of its name, is known to carry the flag."""
        return await self._known(state) is not None

    async def _known(self, state: StreamState) -> Any:
        """Return what the registry says of this very stream, None where it knows another or none."""
        known = await self._registry.get(_key(state))
        return known if known is not None and known.get("created") == state.created else None

    async def remembered_since(self, state: StreamState) -> int | None:
        """Return when it was first known of this very stream that it carries the flag (ns since the Unix epoch)."""
        return await self._registry.written_at(_key(state)) if await self.is_remembered(state) else None

    async def _with_flag(self, state: StreamState) -> Config:
        known = await self._known(state)
        flagged = state.is_native or state.is_marked or known is not None
        return {**state.config, FLAG: flagged, TTL_FLAG: state.rules.allow_msg_ttl or _has_ttl(known)}

    def _as_stored(self, config: Config, metadata: Mapping[str, str]) -> Config:
        """Return the configuration in the form in which the server can keep it."""
        if not config.get(FLAG):
            return dict(config)
        if self._server.schedules_natively:
            return {**config, "metadata": {**_own(metadata), **(config.get("metadata") or {})}}
        stored = {**config, **implied(config)}
        del stored[FLAG]
        marks = {METADATA_FLAG: "true"}
        if not self._server.has_message_ttl and StreamRules.from_config(config).allow_msg_ttl:
            stored.pop(TTL_FLAG, None)
            marks[METADATA_TTL_FLAG] = "true"
        stored["metadata"] = {**_own(metadata), **(config.get("metadata") or {}), **marks}
        return stored


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


def _says(config: Config, key: str) -> bool:
    value = (config.get("metadata") or {}).get(key, "")
    return str(value).lower() in ("true", "1", "yes", "on")


def _has_ttl(known: Any) -> bool:
    """Tell whether the registry says of a stream that its messages may have a TTL."""
    return known is not None and known.get(TTL_FLAG) is True


def _key(state: StreamState) -> str:
    return f"stream.{state.name}"


def _own(metadata: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in metadata.items() if not key.startswith(SERVER_METADATA)}


def _refuse(stream: str, rejection: Rejection | None) -> None:
    if rejection is not None:
        raise StreamRefusedError(stream, rejection)
