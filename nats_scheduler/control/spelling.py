"""In which spelling a new schedule is written: with the headers of ADR-51, or with the portable ones.

The rules:

- The headers of ADR-51 wherever what fires them does what the schedule says: then the stored schedules survive an
  upgrade of the server.
- Portable headers, which a sidecar fires on every server, for a target in another stream and a pattern in another
  syntax. Where the server itself fires, also for a policy with an effect, and for what that server cannot do.
- Portable headers for a pattern that the server gets a little wrong, if a sidecar fires them there; if none does, the
  headers of ADR-51, and a finding about the schedule says what the server gets wrong.
- If the schedule needs portable headers and nothing fires them, that is an error, and nothing is stored.

Cost: none. Limit: `Served` says which spellings fire; whether a sidecar runs at the moment is found out by the caller.
"""

from collections.abc import Iterable, Mapping, Sequence

from nats_scheduler.control.errors import NotPossibleError, NotServedError
from nats_scheduler.control.store_port import Served
from nats_scheduler.message.dialect import ADR51, PORTABLE, Dialect
from nats_scheduler.message.headers import Header, header_value, one_line
from nats_scheduler.message.policies import LABELS, extension_prefix, policy_header
from nats_scheduler.message.schedule_form import Edit
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.native import Quirk, quirk_of
from nats_scheduler.schedule.patterns import Pattern, parse_pattern

ASKED_FOR = "portable headers are asked for"
NOT_FIRED = "nothing fires portable headers (X-Nats-Schedule) there"


def spelling_of(
    served: Served,
    headers: Sequence[Header],
    now: int,
    *,
    portable: bool = False,
    has_sidecar: bool = True,
    missing: str = NOT_FIRED,
) -> Dialect:
    """Return the spelling of a schedule that is stored now (ns) with these headers.

    The headers are given in the names of ADR-51.

    `portable` asks for the portable one. Without `has_sidecar` none runs at the moment: then what the server can fire
    is left to it, even if it gets it a little wrong.
    Raises `NotServedError`, which says why the schedule needs what nothing fires; `missing` says why nothing fires
    portable headers, if the caller knows.
    """
    fields = _fields(headers)
    why = ASKED_FOR if portable else _only_a_sidecar(fields) or _beyond_server(served, fields, now)
    if why and PORTABLE not in served.dialects:
        raise NotServedError(f"nothing would fire this schedule on stream {served.name}: {why}, and {missing}")
    if why or (has_sidecar and PORTABLE in served.dialects and _is_inexact(served, fields, now)):
        return PORTABLE
    return served.dialects[0]


def check_edit(served: Served, block: bytes, edit: Edit, now: int) -> None:
    """Raise `NotPossibleError` if the server that fires a schedule would not do what an edit sets.

    `block` is the schedule after the edit, in the headers of ADR-51. What the edit leaves as it is does not count.
    """
    changed = {*dict(edit.set), *edit.unset}
    fields = _fields(edit.set)
    if changed & {ADR51.schedule, ADR51.time_zone}:
        whole = ((name, header_value(block, name)) for name in (ADR51.schedule, ADR51.time_zone))
        fields |= _fields((name, value) for name, value in whole if value is not None)
    if reason := _only_a_sidecar(fields) or _beyond_server(served, fields, now):
        hint = "replace the schedule by one with portable headers (X-Nats-Schedule)"
        raise NotPossibleError(f"the server fires this schedule, and {reason}: {hint}")


def _is_inexact(served: Served, fields: Mapping[bytes, str], now: int) -> bool:
    """Return whether the server gets the fire times a little wrong; False if it does not fire.

    A time that is `Quirk.FAR` it gets so wrong that it counts as not possible.
    """
    pattern = _pattern(fields) if served.is_native else None
    return pattern is not None and quirk_of(pattern, now) is not None


def _only_a_sidecar(fields: Mapping[bytes, str]) -> str:
    """Return what no server does, on no stream; "" if there is nothing."""
    if policy_header("X-Target", ADR51) in fields:
        return "only a sidecar fires into another stream"
    syntax = fields.get(policy_header("X-Syntax", ADR51))
    return "" if syntax is None else f"only a sidecar reads a pattern of {syntax}"


def _beyond_server(served: Served, fields: Mapping[bytes, str], now: int) -> str:
    """Return what the server that fires on this stream does not do; "" if it does all, or does not fire."""
    if not served.is_native:
        return ""
    short = len(ADR51.schedule) + 1
    policies = [one[short:].decode("utf-8", "replace") for one in fields if one.startswith(extension_prefix(ADR51))]
    if effective := sorted(set(policies) - LABELS):
        return f"only a sidecar heeds {', '.join(effective)}"
    server, pattern = served.server, _pattern(fields)
    if pattern is not None and not server.reads(pattern):
        return "a server of 2.12 fires @at only"
    if not server.schedules_all and (fields.get(ADR51.source) or fields.get(ADR51.rollup)):
        return "a server of 2.12 ignores a source and a roll-up"
    if pattern is not None and quirk_of(pattern, now) is Quirk.FAR:
        return "a server fires a time after 2262 at once"
    return ""


def _fields(headers: Iterable[Header]) -> dict[bytes, str]:
    return {name: one_line(value).decode("utf-8", "surrogateescape") for name, value in headers}


def _pattern(fields: Mapping[bytes, str]) -> Pattern | None:
    """Return the pattern; None if there is none, or if it is invalid, which is found when the schedule is checked."""
    pattern = parse_pattern(fields.get(ADR51.schedule, ""), fields.get(ADR51.time_zone))
    return None if isinstance(pattern, Invalid) else pattern
