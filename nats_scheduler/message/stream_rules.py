"""The rules of a stream with schedules: which configurations are valid, and what reading a definition needs of them.

Rule: the server's checks, in the server's order, with its codes (`docs/reference/headers.md`, "Streams"), and only
those that concern schedules.
A server up to 2.11 drops `allow_msg_schedules` without an error, so the sidecar gives the answer that a newer server
would have given. Configurations are the JSON objects of the JetStream API.
Limit: what every server checks itself (names, limits, overlaps) is not checked here, except for a fault that a newer
server would report first if there are two.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from nats_scheduler.message import rejection
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.subjects import subject_matches
from nats_scheduler.schedule.instants import SECOND

# The operator's restrictions on schedules of a stream, in addition to the stream's own configuration.
#
# Rule: nothing is restricted unless the operator configures it. A schedule that violates a restriction is rejected as
# the server would reject it, so that a publisher gets one kind of answer. Without restrictions, every client that may
# publish a schedule can write to any subject of the stream through `Nats-Schedule-Target` and read any through
# `Nats-Schedule-Source`, as on the server (`docs/operating/security.md`). A target in another stream
# (`message.definition`) is the exception: the settings allow none unless the operator names it. Cost: one comparison
# per schedule if there are restrictions. Limit: a cancel may name any schedule, as on the server.


@dataclass(frozen=True, slots=True)
class Restrictions:
    """What is allowed on one stream; None means everything."""

    targets: tuple[str, ...] | None = None
    """Subjects, with or without wildcards, that schedules may have as targets."""
    sources: tuple[str, ...] | None = None
    """Subjects, with or without wildcards, that schedules may have as sources."""
    max_schedules: int | None = None
    """How many schedules may be held at the same time."""
    elsewhere: tuple[str, ...] | None = None
    """Subjects of other streams, with or without wildcards, that schedules may name in `X-Target`."""

    def target_fault(self, header: bytes, target: str) -> Rejection | None:
        """Reject a target that is not allowed (10190)."""
        if self.targets is None or _is_among(target, self.targets):
            return None
        return rejection.TARGET_INVALID.rejection(header.decode(), target, _not_allowed("targets", self.targets))

    def source_fault(self, header: bytes, source: str) -> Rejection | None:
        """Reject a source that is not allowed (10203); "" means no source."""
        if not source or self.sources is None or _is_among(source, self.sources):
            return None
        return rejection.SOURCE_INVALID.rejection(header.decode(), source, _not_allowed("sources", self.sources))

    def elsewhere_fault(self, target: str) -> str:
        """Return the reason why a target in another stream is not allowed; "" if it is.

        A wildcard as the first token of what is allowed does not stand for subjects that begin with `$`, which belong
        to buckets and to the server.
        """
        if self.elsewhere is None:
            return ""
        is_special = target.startswith("$")
        allowed = tuple(one for one in self.elsewhere if not is_special or one.startswith("$"))
        return "" if _is_among(target, allowed) else _not_allowed("targets in other streams", self.elsewhere)

    def number_fault(self, header: bytes, pattern: str, held: int) -> Rejection | None:
        """Reject a further schedule if `held` schedules are already the maximum (10023)."""
        if self.max_schedules is None or held < self.max_schedules:
            return None
        reason = f"is one schedule more than the {self.max_schedules} that the operator allows on this stream"
        return rejection.TOO_MANY_SCHEDULES.rejection(header.decode(), pattern, reason)


UNRESTRICTED = Restrictions()


def _is_among(subject: str, allowed: tuple[str, ...]) -> bool:
    return any(subject_matches(subject, one) for one in allowed)


def _not_allowed(what: str, allowed: tuple[str, ...]) -> str:
    return f"is not among the {what} that the operator allows on this stream: {', '.join(allowed) or 'none'}"


FLAG = "allow_msg_schedules"
DEFAULT_DUPLICATE_WINDOW_NS = 120 * SECOND
"""The duplicate window of a stream whose configuration names none; no longer than its `max_age`."""
_TTL_FLAG = "allow_msg_ttl"
_MARKER_TTL = "subject_delete_marker_ttl"


@dataclass(frozen=True, slots=True)
class StreamRules:
    """What reading a message needs from the configuration of its stream.

    `schedules_enabled` is True for every stream that is served; it comes from the caller, because a server up to 2.11
    does not return the flag in the configuration. If it is False, every schedule is rejected with 10188.
    """

    name: str
    subjects: tuple[str, ...]
    allow_msg_ttl: bool = False
    schedules_enabled: bool = True
    moves_subjects: bool = False
    """Whether a message may be stored on another subject than it was published to (`subject_transform`)."""
    rolls_up_by_purge: bool = False
    """Whether a fire cannot say that it rolls up its target, because the stream does not allow it (10111).

    Not in a stream that moves subjects: what to purge is not known there, so such a fire says it, and is refused.
    """
    has_policies: bool = True
    """Whether policies count; not if the server itself fires, which knows none."""
    is_any: bool = False
    """Whether they stand for a stream that is not known: it has every subject, and none is known to be another's."""
    keeps_acknowledged: bool = False
    """Whether a message stays stored after it was acknowledged (limits retention); False too if that is not known."""
    restrictions: Restrictions = UNRESTRICTED
    """The operator's restrictions; they are not part of the stream's own configuration."""
    max_age: int = field(default=0, compare=False)
    """How long the stream keeps a message (ns), 0 for ever. It does not change how a message is read."""
    evicts: bool = field(default=False, compare=False)
    """Whether the stream deletes its oldest messages when it has too many messages or bytes."""
    duplicate_window: int = field(default=DEFAULT_DUPLICATE_WINDOW_NS, compare=False)
    """How long (ns) the stream keeps the identity of a message."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, schedules_enabled: bool = True) -> Self:
        """Read the rules from a stream's JSON configuration.

        As the server does: `subject_delete_marker_ttl` switches `allow_msg_ttl` on, and a stream without subjects has
        its name as its subject (`test_a_stream_without_subjects_owns_its_own_name`).
        """
        name = str(config.get("name") or "")
        subjects = _listed(config, "subjects") or ([] if takes_from_others(config) else [name])
        max_age = _limit(config, "max_age")
        shortest = min(DEFAULT_DUPLICATE_WINDOW_NS, max_age or DEFAULT_DUPLICATE_WINDOW_NS)
        return cls(
            name=name,
            subjects=tuple(map(str, subjects)),
            allow_msg_ttl=_has_ttls(config),
            schedules_enabled=schedules_enabled,
            moves_subjects=bool(config.get("subject_transform")),
            rolls_up_by_purge=not (_is_on(config, "allow_rollup_hdrs") or config.get("subject_transform")),
            keeps_acknowledged=config.get("retention", "limits") == "limits",
            max_age=max_age,
            evicts=_limit(config, "max_msgs") > 0 or _limit(config, "max_bytes") > 0,
            duplicate_window=_limit(config, "duplicate_window") or shortest,
        )


def check_create(config: Mapping[str, Any]) -> Rejection | None:
    """Return why the server would not create this stream with schedules; None if it would, or without the flag."""
    return next(_faults_at_create(config), None)


def check_update(old: Mapping[str, Any], new: Mapping[str, Any]) -> Rejection | None:
    """Return why the server would not change a stream from `old` to `new`; None if it would.

    Both contain the flag as the registry has it, not as an old server returns it. If `new` has no flag, it is switched
    off, as on the server; a caller that wants to keep it adds it first.
    """
    return next(_faults_at_update(old, new), None)


def implied(config: Mapping[str, Any]) -> dict[str, bool]:
    """Return the settings that the flag implies: roll-ups allowed, purging not denied.

    The server sets both without a notice. Empty without the flag, and for a sealed stream, since sealing has priority.
    """
    if not _is_on(config, FLAG) or _is_on(config, "sealed"):
        return {}
    return {"allow_rollup_hdrs": True, "deny_purge": False}


def check_flag(config: Mapping[str, Any]) -> Rejection | None:
    """Reject a flag that is neither true nor false, with Go's error text: the server cannot parse such a request."""
    value = config.get(FLAG)
    if value is None or isinstance(value, bool):
        return None
    kind = "string" if isinstance(value, str) else "array" if isinstance(value, list) else "number"
    kind = "object" if isinstance(value, dict) else kind
    description = rejection.FLAG_NOT_BOOL.format(kind)
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
            "deny_purge", "true", "cannot be switched off, and schedules need purging: use another stream"
        )
    if _has_ttls(old) and not _has_ttls(new):
        yield rejection.TTLS_STAY.rejection(_TTL_FLAG, "false", "is not possible for a stream that has message TTLs")
    if flagged and _is_on(old, "allow_msg_counter"):
        yield rejection.COUNTER_STAYS.rejection(
            "allow_msg_counter", "false", "is not possible for a stream that counts"
        )
    if _is_on(old, FLAG) and not flagged:
        yield rejection.SCHEDULES_STAY.rejection(
            FLAG, "false", "is not possible for a stream that has schedules: the flag stays on"
        )


def _faults_of_config(config: Mapping[str, Any]) -> Iterator[Rejection]:
    """Yield the faults of a configuration that has the flag, in the server's order."""
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
            "allow_rollup_hdrs", "false", "is not what schedules need: a pedantic request must set it to true"
        )


def _faults_of_counter(config: Mapping[str, Any]) -> Iterator[Rejection]:
    """Yield the settings that a stream with counters cannot have; schedules are always one of them."""
    if config.get("discard") == "new":
        yield rejection.COUNTER_DISCARDS.rejection("discard", "new", "excludes allow_msg_counter")
    if _is_on(config, _TTL_FLAG):
        yield rejection.COUNTER_HAS_TTLS.rejection(_TTL_FLAG, "true", "excludes allow_msg_counter")
    yield rejection.COUNTER_STREAM.rejection("allow_msg_counter", "true", f"excludes {FLAG}")


def _faults_of_markers(config: Mapping[str, Any]) -> Iterator[Rejection]:
    """Yield the missing settings that delete markers need; only a pedantic request must set them itself."""
    markers = str(config[_MARKER_TTL])
    if config[_MARKER_TTL] < SECOND:
        yield rejection.MARKER_TOO_SHORT.rejection(_MARKER_TTL, markers, "is given in nanoseconds: expected 1s or more")
    if not _is_on(config, "pedantic"):
        return
    if not _is_on(config, _TTL_FLAG):
        yield rejection.MARKER_NEEDS_TTLS.rejection(_MARKER_TTL, markers, f"needs {_TTL_FLAG}")
    if not _is_on(config, "allow_rollup_hdrs"):
        yield rejection.MARKER_NEEDS_ROLLUP.rejection(_MARKER_TTL, markers, "needs allow_rollup_hdrs")


def _faults_of_mirror(config: Mapping[str, Any]) -> Iterator[Rejection]:
    """Yield the settings that a mirror cannot have, schedules last."""
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
    """Return a list of the configuration; the server itself rejects a value that is no list (10025)."""
    value = config.get(key)
    return value if isinstance(value, list | tuple) else []


def takes_from_others(config: Mapping[str, Any]) -> bool:
    """Return whether the stream takes messages from other streams; then it may have no subjects of its own.

    A schedule among these messages fires in the stream that it comes from.
    """
    return config.get("mirror") is not None or bool(_listed(config, "sources"))


def _has_ttls(config: Mapping[str, Any]) -> bool:
    """Return whether messages may have a TTL. As the server does: delete markers imply it."""
    return _is_on(config, _TTL_FLAG) or _has_delete_markers(config)


def _has_delete_markers(config: Mapping[str, Any]) -> bool:
    """Return whether the stream leaves delete markers; their TTL is in nanoseconds."""
    ttl = config.get(_MARKER_TTL)
    return isinstance(ttl, int) and ttl > 0


def _limit(config: Mapping[str, Any], key: str) -> int:
    """Return a limit of the stream, 0 if there is none; for some limits the server writes -1 then."""
    value = config.get(key)
    return max(value, 0) if isinstance(value, int) else 0


def _origin(source: Any) -> str:
    """Name the stream that a mirror or source takes from, for a message."""
    return str(source.get("name", "")) if isinstance(source, Mapping) else str(source)
