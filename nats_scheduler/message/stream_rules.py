"""The rules of a stream that carries schedules: how it may be configured, and what a definition needs of it.

Rule: the server's checks, in the server's order, with its codes (behaviour 1); only those that concern
schedules. A server up to 2.11 drops `allow_msg_schedules` without a word, so whoever tells the sidecar about
a stream gets the answer that a newer server would have given. Configurations are the JSON objects of the
JetStream API.
Limit: what every server checks by itself (names, limits, overlaps, mirrors with subjects) is left to it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from nats_scheduler.message import rejection
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.restrictions import UNRESTRICTED, Restrictions

FLAG = "allow_msg_schedules"


@dataclass(frozen=True, slots=True)
class StreamRules:
    """Hold what reading a message needs to know of its stream.

    `schedules_enabled` is True for every stream that is served: a server up to 2.11 does not echo the flag,
    so the caller, not the configuration, knows. With False every schedule is refused with 10188.
    """

    name: str
    subjects: tuple[str, ...]
    allow_msg_ttl: bool = False
    schedules_enabled: bool = True
    restrictions: Restrictions = UNRESTRICTED
    """What the operator allows beyond; no part of the stream's own configuration."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, schedules_enabled: bool = True) -> Self:
        """Take the rules out of a stream's JSON configuration.

        As the server does: `subject_delete_marker_ttl` switches `allow_msg_ttl` on, and a stream without
        subjects owns the subject that is its name (`test_a_stream_without_subjects_owns_its_own_name`).
        """
        name = str(config.get("name") or "")
        subjects = _listed(config, "subjects") or ([] if _copies(config) else [name])
        return cls(
            name=name,
            subjects=tuple(map(str, subjects)),
            allow_msg_ttl=_is_on(config, "allow_msg_ttl") or _has_delete_markers(config),
            schedules_enabled=schedules_enabled,
        )


def check_create(config: Mapping[str, Any]) -> Rejection | None:
    """Refuse to create a stream with schedules as the server would; None for a stream without the flag."""
    return next(_faults_at_create(config), None)


def check_update(old: Mapping[str, Any], new: Mapping[str, Any]) -> Rejection | None:
    """Refuse to change a stream from `old` to `new` as the server would.

    Both carry the flag as it is remembered, not as an old server echoes it. A flag that `new` does not
    mention counts as switched off, as on the server; whoever wants to be lenient adds it first.
    """
    return next(_faults_at_update(old, new), None)


def implied(config: Mapping[str, Any]) -> dict[str, bool]:
    """Return the settings that the flag brings along: roll-ups allowed, purging not denied.

    The server sets both in silence. Empty without the flag, and for a sealed stream, where sealing wins.
    """
    if not _is_on(config, FLAG) or _is_on(config, "sealed"):
        return {}
    return {"allow_rollup_hdrs": True, "deny_purge": False}


def _faults_at_create(config: Mapping[str, Any]) -> Iterator[Rejection]:
    if _is_on(config, FLAG) and _is_on(config, "sealed"):
        yield rejection.SEALED_AT_CREATE.rejection(
            "sealed", "true", "is not possible for a new stream: seal it with an update"
        )
    yield from _faults_of_config(config)


def _faults_at_update(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Rejection]:
    yield from _faults_of_config(new)
    flagged = _is_on(new, FLAG)
    if flagged and _is_on(old, "deny_purge"):
        yield rejection.DENY_PURGE_STAYS.rejection(
            "deny_purge", "true", "cannot be taken back, and schedules need purging: use another stream"
        )
    if flagged and _is_on(old, "allow_msg_counter"):
        yield rejection.COUNTER_STAYS.rejection(
            "allow_msg_counter", "false", "is not possible for a stream that counts"
        )
    if _is_on(old, FLAG) and not flagged:
        yield rejection.SCHEDULES_STAY.rejection(
            FLAG, "false", "is not possible for a stream that has schedules: the flag stays on"
        )


def _faults_of_config(config: Mapping[str, Any]) -> Iterator[Rejection]:
    """Yield what is wrong with a configuration that has the flag, in the server's order."""
    if not _is_on(config, FLAG):
        return
    yield from _faults_of_settings(config)
    if config.get("mirror") is not None:
        yield rejection.MIRROR.rejection(
            "mirror", _origin(config["mirror"]), "is not possible for a stream with schedules"
        )
    if sources := _listed(config, "sources"):
        origins = ", ".join(map(_origin, sources))
        yield rejection.SOURCES.rejection("sources", origins, "is not possible for a stream with schedules")


def _faults_of_settings(config: Mapping[str, Any]) -> Iterator[Rejection]:
    rollup = _is_on(config, "allow_rollup_hdrs")
    if _is_on(config, "deny_purge") and rollup:
        yield rejection.ROLLUP_NEEDS_PURGE.rejection("deny_purge", "true", "excludes allow_rollup_hdrs")
    if _is_on(config, "allow_msg_counter"):
        yield rejection.COUNTER_STREAM.rejection("allow_msg_counter", "true", f"excludes {FLAG}")
    if config.get("discard") == "new":
        yield rejection.DISCARD_NEW.rejection("discard", "new", f"excludes {FLAG}: discard must be 'old'")
    if _is_on(config, "pedantic") and not rollup:
        yield rejection.ROLLUP_DISABLED.rejection(
            "allow_rollup_hdrs", "false", "is not what schedules need: a pedantic request must say true"
        )


def _is_on(config: Mapping[str, Any], key: str) -> bool:
    return config.get(key) is True


def _listed(config: Mapping[str, Any], key: str) -> Sequence[Any]:
    """Return a list of the configuration; what is no list is refused by the server itself (10025)."""
    value = config.get(key)
    return value if isinstance(value, list | tuple) else []


def _copies(config: Mapping[str, Any]) -> bool:
    """Tell whether the stream takes its messages from others, and so may have no subjects of its own."""
    return config.get("mirror") is not None or bool(_listed(config, "sources"))


def _has_delete_markers(config: Mapping[str, Any]) -> bool:
    """Tell whether the stream leaves delete markers, given in nanoseconds."""
    ttl = config.get("subject_delete_marker_ttl")
    return isinstance(ttl, int) and ttl > 0


def _origin(source: Any) -> str:
    """Name the stream that a mirror or source takes from, for a message."""
    return str(source.get("name", "")) if isinstance(source, Mapping) else str(source)
