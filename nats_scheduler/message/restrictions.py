"""What the operator allows schedules to do on a stream, beyond what the stream itself allows.

Rule: nothing is restricted unless the operator says so, and what goes beyond is rejected as the server would reject it,
so that a publisher has one kind of answer to understand.
Whoever may publish a schedule may otherwise write any subject of the stream through `Nats-Schedule-Target` and read any
through `Nats-Schedule-Source`, as on the server (behaviour 8.3).
Cost: one comparison a schedule where there are restrictions. Limit: a cancel may name any schedule, as on the server.
"""

from dataclasses import dataclass

from nats_scheduler.message import rejection
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.subjects import subject_matches


@dataclass(frozen=True, slots=True)
class Restrictions:
    """Hold what is allowed on one stream; None stands for everything."""

    targets: tuple[str, ...] | None = None
    """Subjects, wildcards too, that schedules may fire into."""
    sources: tuple[str, ...] | None = None
    """Subjects, wildcards too, that schedules may sample."""
    max_schedules: int | None = None
    """How many schedules are held at one time."""

    def target_fault(self, header: bytes, target: str) -> Rejection | None:
        """Reject a target that is not among those allowed (10190)."""
        if self.targets is None or _is_among(target, self.targets):
            return None
        return rejection.TARGET_INVALID.rejection(header.decode(), target, _not_allowed("targets", self.targets))

    def source_fault(self, header: bytes, source: str) -> Rejection | None:
        """Reject a source that is not among those allowed (10203); "" is no source."""
        if not source or self.sources is None or _is_among(source, self.sources):
            return None
        return rejection.SOURCE_INVALID.rejection(header.decode(), source, _not_allowed("sources", self.sources))

    def number_fault(self, header: bytes, pattern: str, held: int) -> Rejection | None:
        """Reject one more schedule where `held` are held already (10023)."""
        if self.max_schedules is None or held < self.max_schedules:
            return None
        reason = f"is one schedule more than the {self.max_schedules} that the operator allows on this stream"
        return rejection.TOO_MANY_SCHEDULES.rejection(header.decode(), pattern, reason)


UNRESTRICTED = Restrictions()


def _is_among(subject: str, allowed: tuple[str, ...]) -> bool:
    return any(subject_matches(subject, one) for one in allowed)


def _not_allowed(what: str, allowed: tuple[str, ...]) -> str:
    return f"is not among the {what} that the operator allows on this stream: {', '.join(allowed) or 'none'}"
