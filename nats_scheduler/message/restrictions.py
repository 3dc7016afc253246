"""The operator's restrictions on schedules of a stream, in addition to the stream's own configuration.

The rules:

- Nothing is restricted unless the operator configures it. Then every client that may publish a schedule can write to
  any subject of the stream through `Nats-Schedule-Target` and read any through `Nats-Schedule-Source`, as on the server
  (`docs/operating/security.md`). A target in another stream (`X-Target`) is the exception: the settings allow none
  unless the operator names it.
- A schedule that violates a restriction is rejected as the server would reject it, so that a publisher gets one kind of
  answer. A cancel may name any schedule, as on the server.
- A target is no request, whatever the operator allows. A stream may store what is published on `$JS.API.>`. The native
  scheduler stores a generated message there, and nothing else happens; a fire that the sidecar publishes there would be
  executed, with the permissions of the sidecar.

Limit: which subjects are requests depends on the connection, which may reach JetStream under another prefix. Other
imports of its account are not known.
"""

from dataclasses import dataclass

from nats_scheduler.message import rejection
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.subjects import REQUEST_BEGINNINGS, subject_matches


@dataclass(frozen=True, slots=True)
class Restrictions:
    """The restrictions of one stream; None means that everything is allowed."""

    targets: tuple[str, ...] | None = None
    """Subjects, with or without wildcards, that schedules may have as targets."""
    sources: tuple[str, ...] | None = None
    """Subjects, with or without wildcards, that schedules may have as sources."""
    max_schedules: int | None = None
    """The largest number of schedules that may be held at the same time."""
    elsewhere: tuple[str, ...] | None = None
    """Subjects of other streams, with or without wildcards, that schedules may name in `X-Target`."""
    requests: tuple[str, ...] = REQUEST_BEGINNINGS
    """How the subjects begin on which a message is a request (`message.subjects.request_beginnings`)."""

    def is_request(self, subject: str) -> bool:
        """Return whether a message that is published on `subject` does more than to be stored."""
        return subject.startswith(self.requests)

    def reads_requests(self, source: str | None) -> bool:
        """Return whether a schedule samples requests of others; what servers announce is not meant."""
        return source is not None and self.is_request(source) and not source.startswith(ANNOUNCED)

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


ANNOUNCED = "$JS.EVENT."
"""What servers announce begins so: no request, and of use as a source."""

UNRESTRICTED = Restrictions()


def _is_among(subject: str, allowed: tuple[str, ...]) -> bool:
    return any(subject_matches(subject, one) for one in allowed)


def _not_allowed(what: str, allowed: tuple[str, ...]) -> str:
    return f"is not among the {what} that the operator allows on this stream: {', '.join(allowed) or 'none'}"
