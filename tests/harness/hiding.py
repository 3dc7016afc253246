"""Schedules of which a value hides a header from the server, in whatever order they are written.

Every writer refuses every one that it can be given; their tests take them from here.
"""

from nats_scheduler.message.schedule_form import ScheduleForm


def twice(header: str) -> str:
    """Return a value behind which no server finds a header."""
    return f"{header}{header}"


HIDING = {
    "subjects": ScheduleForm(
        "@daily", target=f"S.{twice('Nats-Schedule-Source')}", source=f"S.{twice('Nats-Schedule-Target')}"
    ),
    "ttl": ScheduleForm("@daily", target="S.out", ttl=twice("Nats-Schedule-Rollup"), rollup="sub"),
    "time_zone": ScheduleForm("@daily", time_zone=twice("Nats-Schedule-Target"), target="S.out"),
    "note": ScheduleForm(
        "@daily", target="S.out", policies=(("X-Note", twice("Nats-TTL")),), headers=(("Nats-TTL", "5m"),)
    ),
}
"""By what hides, with the headers of ADR-51."""

HIDES = r" of '.*' hides (X-)?Nats-.* from the server: expected a value without this name"
"""What each refusal says, behind the header whose value it is."""

TARGET_HIDING_TTL = f"S.{twice('Nats-Schedule-TTL')}"
"""A target that hides the TTL behind it."""
