"""Which headers are served on a stream, and by whom.

    the stream carries the flag    the server schedules natively    headers of ADR-51            portable headers
    yes, and the server echoes it  yes                              NATIVE: the server fires     we fire
    yes, as we remember it         no                               EMULATED: we fire            we fire
    yes, as we remember it         yes                              DORMANT: none               we fire
    no, but the settings name it   either                           PORTABLE: none               we fire
    no                             either                           not served                   none

A sealed stream stores nothing any more, so it is not served in any mode.
The sidecar and the commands both ask `mode_of`, so that `ls` lists what the sidecar serves.

DORMANT is what an upgrade leaves: the stored schedules wait until the flag is switched on in the server.
"""

from dataclasses import dataclass
from enum import StrEnum

from nats_scheduler.engine.view import FiredBy
from nats_scheduler.message.dialect import ADR51, PORTABLE, Dialect


class Mode(StrEnum):
    """Who serves the headers of ADR-51 on a stream."""

    EMULATED = "emulated"
    NATIVE = "native"
    DORMANT = "dormant"
    PORTABLE = "portable"


BY_SIDECAR = frozenset({Mode.EMULATED, Mode.PORTABLE})
"""The modes in which nothing fires without a sidecar."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the mode of a stream depends on."""

    server_is_native: bool
    echoed: bool
    """The server returns the flag in the stream's configuration."""
    remembered: bool
    """The stream's metadata or our registry contains the flag."""
    named: bool
    """The settings name the stream for portable headers."""
    sealed: bool


def mode_of(facts: Facts) -> Mode | None:
    """Return the mode of a stream, None if it is not served."""
    if facts.sealed:
        return None
    if facts.echoed:
        return Mode.NATIVE
    if facts.remembered:
        return Mode.DORMANT if facts.server_is_native else Mode.EMULATED
    return Mode.PORTABLE if facts.named else None


def dialects_of(mode: Mode) -> tuple[Dialect, ...]:
    """Return the headers that we fire for; the first one found in a message decides."""
    return (ADR51, PORTABLE) if mode is Mode.EMULATED else (PORTABLE,)


FIRED_BY = {Mode.NATIVE: FiredBy.SERVER, Mode.DORMANT: FiredBy.NONE}
"""Who fires for the headers of ADR-51 on a flagged stream if it is not the sidecar."""


EXPLANATIONS = {
    Mode.EMULATED: "the sidecar fires for Nats-Schedule and X-Nats-Schedule",
    Mode.NATIVE: "the server fires for Nats-Schedule, the sidecar for X-Nats-Schedule",
    Mode.DORMANT: "the server is native but the stream's flag is not switched on: Nats-Schedule does not fire, "
    "the sidecar fires for X-Nats-Schedule only",
    Mode.PORTABLE: "the sidecar fires for X-Nats-Schedule",
}
