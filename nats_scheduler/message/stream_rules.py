"""The rules of a stream that carries schedules: how it may be configured, and what a definition needs of it.

Rule: the server's checks, in the server's order, with its codes (behaviour 1); only those that concern
schedules. A server up to 2.11 drops `allow_msg_schedules` without a word, so whoever tells the sidecar about
a stream gets the answer that a newer server would have given. Configurations are the JSON objects of the
JetStream API.
Limit: what every server checks by itself (names, limits, overlaps) is left to it, but for what would be named first
where there are two faults.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from nats_scheduler.message import rejection
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.restrictions import UNRESTRICTED, Restrictions

FLAG = "allow_msg_schedules"
_TTLS = "allow_msg_ttl"
_MARKERS = "subject_delete_marker_ttl"
_SECOND = 1_000_000_000


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
    moves_subjects: bool = False
    """What is published to one subject may be stored on another (`subject_transform`)."""
    restrictions: Restrictions = UNRESTRICTED
    """What the operator allows beyond; no part of the stream's own configuration."""
    max_age: int = field(default=0, compare=False)
    """How long the stream keeps a message (ns), 0 for ever. No message reads differently because of it."""
    evicts: bool = field(default=False, compare=False)
    """Whether the stream removes its oldest messages for others, where there are too many or too large ones."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, schedules_enabled: bool = True) -> Self:
        """Take the rules out of a stream's JSON configuration.

        As the server does: `subject_delete_marker_ttl` switches `allow_msg_ttl` on, and a stream without
        subjects owns the subject that is its name (`test_a_stream_without_subjects_owns_its_own_name`).
        """
        name = str(config.get("name") or "")
        subjects = _listed(config, "subjects") or ([] if takes_from_others(config) else [name])
        return cls(
            name=name,
            subjects=tuple(map(str, subjects)),
            allow_msg_ttl=_has_ttls(config),
            schedules_enabled=schedules_enabled,
            moves_subjects=bool(config.get("subject_transform")),
            max_age=_limit(config, "max_age"),
            evicts=_limit(config, "max_msgs") > 0 or _limit(config, "max_bytes") > 0,
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


def check_flag(config: Mapping[str, Any]) -> Rejection | None:
    """Refuse a flag that is neither true nor false, in Go's words: the server fails to read the request at all."""
    value = config.get(FLAG)
    if value is None or isinstance(value, bool):
        return None
    kind = "string" if isinstance(value, str) else "array" if isinstance(value, list) else "number"
    kind = "object" if isinstance(value, dict) else kind
    description = rejection.FLAG_IS_NO_BOOL.format(kind)
    return Rejection(rejection.INVALID_JSON, description, FLAG, str(value), "is neither true nor false")


def _faults_at_create(config: Mapping[str, Any]) -> Iterator[Rejection]:
    if fault := check_flag(config):
        yield fault
    if _is_on(config, FLAG) and _is_on(config, "sealed"):
        yield rejection.SEALED_AT_CREATE.rejection(
            "sealed", "true", "is not possible for a new stream: seal it with an update"
        )
    yield from _faults_of_config(config)


def _faults_at_update(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Rejection]:
    if fault := check_flag(new):
        yield fault
    yield from _faults_of_config(new)
    flagged = _is_on(new, FLAG)
    if flagged and _is_on(old, "deny_purge"):
        yield rejection.DENY_PURGE_STAYS.rejection(
            "deny_purge", "true", "cannot be taken back, and schedules need purging: use another stream"
        )
    if _has_ttls(old) and not _has_ttls(new):
        yield rejection.TTLS_STAY.rejection(_TTLS, "false", "is not possible for a stream that has message TTLs")
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
        yield from _faults_of_mirror(config)
    if sources := _listed(config, "sources"):
        origins = ", ".join(map(_origin, sources))
        yield rejection.SOURCES.rejection("sources", origins, "is not possible for a stream with schedules")


def _faults_of_settings(config: Mapping[str, Any]) -> Iterator[Rejection]:
    rollup, pedantic = _is_on(config, "allow_rollup_hdrs"), _is_on(config, "pedantic")
    if _is_on(config, "deny_purge") and rollup:
        yield rejection.ROLLUP_NEEDS_PURGE.rejection("deny_purge", "true", "excludes allow_rollup_hdrs")
    if _is_on(config, "allow_msg_counter"):
        yield from _faults_of_counter(config)
    if _has_delete_markers(config):
        yield from _faults_of_markers(config)
    if config.get("discard") == "new":
        yield rejection.DISCARD_NEW.rejection("discard", "new", f"excludes {FLAG}: discard must be 'old'")
    if pedantic and not rollup:
        yield rejection.ROLLUP_DISABLED.rejection(
            "allow_rollup_hdrs", "false", "is not what schedules need: a pedantic request must say true"
        )


def _faults_of_counter(config: Mapping[str, Any]) -> Iterator[Rejection]:
    """Yield what a stream that counts cannot have; schedules in any case."""
    if config.get("discard") == "new":
        yield rejection.COUNTER_DISCARDS.rejection("discard", "new", "excludes allow_msg_counter")
    if _is_on(config, _TTLS):
        yield rejection.COUNTER_HAS_TTLS.rejection(_TTLS, "true", "excludes allow_msg_counter")
    yield rejection.COUNTER_STREAM.rejection("allow_msg_counter", "true", f"excludes {FLAG}")


def _faults_of_markers(config: Mapping[str, Any]) -> Iterator[Rejection]:
    """Yield what delete markers need; only a pedantic request must say so by itself."""
    markers = str(config[_MARKERS])
    if config[_MARKERS] < _SECOND:
        yield rejection.MARKER_TOO_SHORT.rejection(_MARKERS, markers, "is given in nanoseconds: expected 1s or more")
    if not _is_on(config, "pedantic"):
        return
    if not _is_on(config, _TTLS):
        yield rejection.MARKER_NEEDS_TTLS.rejection(_MARKERS, markers, f"needs {_TTLS}")
    if not _is_on(config, "allow_rollup_hdrs"):
        yield rejection.MARKER_NEEDS_ROLLUP.rejection(_MARKERS, markers, "needs allow_rollup_hdrs")


def _faults_of_mirror(config: Mapping[str, Any]) -> Iterator[Rejection]:
    """Yield what a mirror cannot have, schedules last."""
    origin = _origin(config["mirror"])
    with_others = {
        "first_seq": rejection.MIRROR_WITH_FIRST_SEQUENCE,
        "subjects": rejection.MIRROR_WITH_SUBJECTS,
        "sources": rejection.MIRROR_WITH_SOURCES,
        "allow_msg_counter": rejection.MIRROR_WITH_COUNTER,
        "allow_atomic": rejection.MIRROR_WITH_ATOMIC,
        "allow_batched": rejection.MIRROR_WITH_BATCH,
    }
    for key, error in with_others.items():
        if config.get(key):
            yield error.rejection("mirror", origin, f"excludes {key}")
    yield rejection.MIRROR.rejection("mirror", origin, "is not possible for a stream with schedules")


def _is_on(config: Mapping[str, Any], key: str) -> bool:
    return config.get(key) is True


def _listed(config: Mapping[str, Any], key: str) -> Sequence[Any]:
    """Return a list of the configuration; what is no list is refused by the server itself (10025)."""
    value = config.get(key)
    return value if isinstance(value, list | tuple) else []


def takes_from_others(config: Mapping[str, Any]) -> bool:
    """Return whether the stream takes messages from others, and so may have no subjects of its own.

    Schedules among them fire in the stream that they come from.
    """
    return config.get("mirror") is not None or bool(_listed(config, "sources"))


def _has_ttls(config: Mapping[str, Any]) -> bool:
    """Return whether messages may have a TTL; as the server does, delete markers bring that along."""
    return _is_on(config, _TTLS) or _has_delete_markers(config)


def _has_delete_markers(config: Mapping[str, Any]) -> bool:
    """Return whether the stream leaves delete markers, given in nanoseconds."""
    ttl = config.get(_MARKERS)
    return isinstance(ttl, int) and ttl > 0


def _limit(config: Mapping[str, Any], key: str) -> int:
    """Return a limit of the stream, 0 if there is none; the server writes -1 for that in some places."""
    value = config.get(key)
    return max(value, 0) if isinstance(value, int) else 0


def _origin(source: Any) -> str:
    """Name the stream that a mirror or source takes from, for a message."""
    return str(source.get("name", "")) if isinstance(source, Mapping) else str(source)
