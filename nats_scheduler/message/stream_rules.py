"""The rules of a stream with schedules: which configurations are valid, and what reading a definition needs of them.

The rules:

- The checks are the server's, in the server's order, with its codes (`docs/reference/headers.md`, "Streams"), and only
  those that concern schedules.
- A server up to 2.11 drops `allow_msg_schedules` without an error, so the sidecar gives the answer that a newer server
  would have given. Configurations are the JSON objects of the JetStream API.
- What every server checks itself (names, limits, overlaps) is not checked here, except for a fault that a newer server
  would report first if there are two.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from nats_scheduler.message import rejection
from nats_scheduler.message.foreign_json import inner
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.restrictions import UNRESTRICTED, Restrictions
from nats_scheduler.schedule.instants import SECOND

FLAG = "allow_msg_schedules"
DEFAULT_DUPLICATE_WINDOW_NS = 120 * SECOND
"""The duplicate window of a stream whose configuration names none; no longer than its `max_age`."""
METADATA_DEBOUNCE = "nats-scheduler.debounce"
"""The metadata key that says that schedules of a stream are meant to be replaced before they fire, to `true`."""
_TTL_FLAG = "allow_msg_ttl"
_MARKER_TTL = "subject_delete_marker_ttl"


@dataclass(frozen=True, slots=True)
class StreamRules:
    """The part of the configuration of a stream that is needed to read its messages.

    `schedules_enabled` is True for every stream that is served; it comes from the caller, because a server up to 2.11
    does not return the flag in the configuration. If it is False, every schedule is rejected with 10188.
    """

    name: str
    subjects: tuple[str, ...]
    allow_msg_ttl: bool = False
    schedules_enabled: bool = True
    moves_subjects: bool = False
    """True if a message may be stored on another subject than it was published to (`subject_transform`)."""
    rolls_up_by_purge: bool = False
    """True if a fire cannot say that it rolls up its target, because the stream does not allow it (10111).

    Not in a stream that moves subjects: what to purge is not known there, so such a fire says it, and is refused.
    """
    has_policies: bool = True
    """True if policies count; they do not if the server itself fires, which knows none."""
    is_any: bool = False
    """True if they stand for a stream that is not known: it has every subject, and none is known to be another's."""
    keeps_acknowledged: bool = False
    """True if a message stays stored after it was acknowledged (limits retention); False too if that is not known."""
    debounces: bool = False
    """True if schedules are meant to be replaced before they fire (`METADATA_DEBOUNCE`)."""
    restrictions: Restrictions = UNRESTRICTED
    """The operator's restrictions; they are not part of the stream's own configuration."""
    max_age: int = field(default=0, compare=False)
    """The time (ns) for which the stream keeps a message, 0 for ever. It does not change how a message is read."""
    evicts: bool = field(default=False, compare=False)
    """True if the stream deletes its oldest messages when it has too many messages or bytes."""
    keeps_one: bool = field(default=False, compare=False)
    """True if the stream keeps one message for each subject: a schedule that was replaced is gone."""
    duplicate_window: int = field(default=DEFAULT_DUPLICATE_WINDOW_NS, compare=False)
    """The time (ns) for which the stream keeps the identity of a message."""

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
            debounces=has_metadata(config, METADATA_DEBOUNCE),
            max_age=max_age,
            evicts=_limit(config, "max_msgs") > 0 or _limit(config, "max_bytes") > 0,
            keeps_one=_limit(config, "max_msgs_per_subject") == 1,
            duplicate_window=_limit(config, "duplicate_window") or shortest,
        )


Config = Mapping[str, Any]


class _Rule(NamedTuple):
    """One check of a configuration: the server's description of what is wrong, the key that is, and why."""

    description: str
    key: str
    reason: str
    is_broken: Callable[[Config, Config], bool]
    """Is called with the configuration, and with that of the stream before, which is empty for a new one."""
    code: int = 10052
    status: int = 500


def _on(*keys: str, off: str = "") -> Callable[[Config, Config], bool]:
    """Return what finds whether all these keys are true, and the key `off` is not."""
    return lambda config, _before: all(_is_on(config, key) for key in keys) and not _is_on(config, off)


def _marks(*, off: str) -> Callable[[Config, Config], bool]:
    """Return what finds whether a pedantic configuration has delete markers, and a key is off that they need."""
    return lambda config, before: _has_delete_markers(config) and _on("pedantic", off=off)(config, before)


def _mirror(description: str, code: int, key: str) -> _Rule:
    """Return the rule that a mirror excludes a key."""
    return _Rule(
        description,
        "mirror",
        f"excludes {key}",
        lambda config, _before: config.get("mirror") is not None and bool(config.get(key)),
        code,
        400,
    )


_AT_CREATE = _Rule(
    "stream configuration for create can not be sealed",
    "sealed",
    "is not possible for a new stream: seal it with an update",
    _on("sealed"),
)
_OF_A_STREAM = (
    _Rule(
        "roll-ups require the purge permission",
        "deny_purge",
        "excludes allow_rollup_hdrs",
        _on("deny_purge", "allow_rollup_hdrs"),
    ),
    _Rule(
        "counter stream cannot use discard new",
        "discard",
        "excludes allow_msg_counter",
        lambda config, _before: _is_on(config, "allow_msg_counter") and config.get("discard") == "new",
    ),
    _Rule(
        "counter stream cannot use message TTLs",
        _TTL_FLAG,
        "excludes allow_msg_counter",
        _on("allow_msg_counter", _TTL_FLAG),
    ),
    _Rule(
        "counter stream cannot use message schedules",
        "allow_msg_counter",
        f"excludes {FLAG}",
        _on("allow_msg_counter"),
    ),
    _Rule(
        "subject delete marker TTL must be at least 1 second",
        _MARKER_TTL,
        "is given in nanoseconds: expected 1s or more",
        lambda config, _before: _has_delete_markers(config) and config[_MARKER_TTL] < SECOND,
    ),
    _Rule(
        "subject delete marker cannot be set if message TTLs are disabled",
        _MARKER_TTL,
        f"needs {_TTL_FLAG}",
        _marks(off=_TTL_FLAG),
    ),
    _Rule(
        "subject delete marker cannot be set if roll-ups are disabled",
        _MARKER_TTL,
        "needs allow_rollup_hdrs",
        _marks(off="allow_rollup_hdrs"),
    ),
    _Rule(
        "message scheduling cannot use discard new",
        "discard",
        f"excludes {FLAG}: discard must be 'old'",
        lambda config, _before: config.get("discard") == "new",
    ),
    _Rule(
        "message scheduling cannot be set if roll-ups are disabled",
        "allow_rollup_hdrs",
        "is not what schedules need: a pedantic request must set it to true",
        _on("pedantic", off="allow_rollup_hdrs"),
    ),
    _mirror("stream mirrors can not have first sequence configured", 10143, "first_seq"),
    _mirror("stream mirrors can not contain subjects", 10034, "subjects"),
    _mirror("stream mirrors can not also contain other sources", 10031, "sources"),
    _mirror("stream mirrors can not also calculate counters", 10173, "allow_msg_counter"),
    _mirror("stream mirrors can not also use atomic publishing", 10198, "allow_atomic"),
    _mirror("stream mirrors can not also use batch publishing", 10209, "allow_batched"),
    _Rule(
        "stream mirrors can not also schedule messages",
        "mirror",
        "is not possible for a stream with schedules",
        lambda config, _before: config.get("mirror") is not None,
        10186,
        400,
    ),
    _Rule(
        "stream source can not also schedule messages",
        "sources",
        "is not possible for a stream with schedules",
        lambda config, _before: bool(_listed(config, "sources")),
        10187,
        400,
    ),
)
"""The checks of every configuration that has the flag, in the server's order."""

_AT_UPDATE = (
    _Rule(
        "stream configuration update can not cancel deny purge",
        "deny_purge",
        "cannot be switched off, and schedules need purging: use another stream",
        lambda config, before: _is_on(config, FLAG) and _is_on(before, "deny_purge"),
    ),
    _Rule(
        "message TTL status can not be disabled",
        _TTL_FLAG,
        "is not possible for a stream that has message TTLs",
        lambda config, before: _has_ttls(before) and not _has_ttls(config),
    ),
    _Rule(
        "stream configuration update can not change message counter setting",
        "allow_msg_counter",
        "is not possible for a stream that counts",
        lambda config, before: _is_on(config, FLAG) and _is_on(before, "allow_msg_counter"),
    ),
    _Rule(
        rejection.SCHEDULES_STAY.description,
        FLAG,
        "is not possible for a stream that has schedules: the flag stays on",
        lambda config, before: _is_on(before, FLAG) and not _is_on(config, FLAG),
    ),
)


def check_create(config: Config) -> Rejection | None:
    """Return why the server would not create this stream with schedules; None if it would, or without the flag."""
    rules = (_AT_CREATE, *_OF_A_STREAM) if _is_on(config, FLAG) else ()
    return check_flag(config) or _first_fault(rules, config, {})


def check_update(old: Config, new: Config) -> Rejection | None:
    """Return why the server would not change a stream from `old` to `new`; None if it would.

    Both contain the flag as the registry has it, not as an old server returns it. If `new` has no flag, it is switched
    off, as on the server; a caller that wants to keep it adds it first.
    """
    rules = (*_OF_A_STREAM, *_AT_UPDATE) if _is_on(new, FLAG) else _AT_UPDATE
    return check_flag(new) or _first_fault(rules, new, old)


def _first_fault(rules: Sequence[_Rule], config: Config, before: Config) -> Rejection | None:
    broken = next((rule for rule in rules if rule.is_broken(config, before)), None)
    if broken is None:
        return None
    description, key, reason, _is_broken, code, status = broken
    shown = before if key == "deny_purge" and not _is_on(config, key) else config
    return Rejection(code, description, key, _shown(shown.get(key)), reason, status)


def _shown(value: Any) -> str:
    """Print a value of a configuration for a message: of other streams their names."""
    if value is None or isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return str(value.get("name", ""))
    return ", ".join(map(_shown, value)) if isinstance(value, list | tuple) else str(value)


def implied(config: Config) -> dict[str, bool]:
    """Return the settings that the flag implies: roll-ups allowed, purging not denied.

    The server sets both without a notice. Empty without the flag, and for a sealed stream, since sealing has priority.
    """
    if not _is_on(config, FLAG) or _is_on(config, "sealed"):
        return {}
    return {"allow_rollup_hdrs": True, "deny_purge": False}


def check_flag(config: Config) -> Rejection | None:
    """Reject a flag that is neither true nor false, with Go's error text: the server cannot parse such a request."""
    value = config.get(FLAG)
    if value is None or isinstance(value, bool):
        return None
    kind = "string" if isinstance(value, str) else "array" if isinstance(value, list) else "number"
    kind = "object" if isinstance(value, dict) else kind
    field = f"Go struct field StreamConfigRequest.{FLAG} of type bool"
    description = f"invalid JSON: json: cannot unmarshal {kind} into {field}"
    return Rejection(rejection.INVALID_JSON, description, FLAG, str(value), "is neither true nor false")


def _is_on(config: Config, key: str) -> bool:
    return config.get(key) is True


def has_metadata(config: Config, key: str) -> bool:
    """Return whether a key of a stream's metadata says yes: `true`, `1`, `yes` or `on`, in any case."""
    value = inner(config.get("metadata")).get(key, "")
    return str(value).lower() in ("true", "1", "yes", "on")


def _listed(config: Config, key: str) -> Sequence[Any]:
    """Return a list of the configuration; the server itself rejects a value that is no list (10025)."""
    value = config.get(key)
    return value if isinstance(value, list | tuple) else []


def takes_from_others(config: Config) -> bool:
    """Return whether the stream takes messages from other streams; then it may have no subjects of its own.

    A schedule among these messages fires in the stream that it comes from.
    """
    return config.get("mirror") is not None or bool(_listed(config, "sources"))


def _has_ttls(config: Config) -> bool:
    """Return whether messages may have a TTL. As the server does: delete markers imply it."""
    return _is_on(config, _TTL_FLAG) or _has_delete_markers(config)


def _has_delete_markers(config: Config) -> bool:
    """Return whether the stream leaves delete markers; their TTL is in nanoseconds."""
    ttl = config.get(_MARKER_TTL)
    return isinstance(ttl, int) and ttl > 0


def _limit(config: Config, key: str) -> int:
    """Return a limit of the stream, 0 if there is none; for some limits the server writes -1 then."""
    value = config.get(key)
    return max(value, 0) if isinstance(value, int) else 0
