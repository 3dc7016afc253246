"""The error codes of nats-server, and the value that says why a message is rejected.

Rule: a rejection is a value, never an exception; it names the header, shows the value and says what was expected.
A server up to 2.11 stores any message, so a rejected schedule is found in the stream and listed; the publisher gets no
error. A tool that checks before it publishes gives the same code.
Codes and descriptions are those of nats-server's `server/errors.json`.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from nats_scheduler.schedule.invalid import MAX_SHOWN_CHARS

MAX_KEPT_CHARS = 400
"""Characters of a value, and of a reason, that are kept in memory as long as the message is stored."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """The reason why a message or a stream configuration is rejected.

    `code` and `description` are the server's (`err_code`, `description`), `status` is its HTTP-like code. The code is
    0 where the server has no such rule.
    `header` is the header, or the key of the configuration, whose value is `value`. `reason` follows both in a
    sentence.
    """

    code: int
    description: str
    header: str
    value: str
    reason: str
    status: int = 400

    def shortened(self) -> "Rejection":
        """Return it with short texts: a header may hold 64 KB, and a stream a million rejected schedules."""
        if max(len(self.value), len(self.reason)) <= MAX_KEPT_CHARS:
            return self
        return replace(self, value=self.value[:MAX_KEPT_CHARS], reason=self.reason[:MAX_KEPT_CHARS])

    def __str__(self) -> str:
        value = self.value if len(self.value) <= MAX_SHOWN_CHARS else self.value[:MAX_SHOWN_CHARS] + "…"
        if self.code == FAILED.code:
            code = "a mistake of nats-scheduler: please report it"
        else:
            code = f"server code {self.code}" if self.code else "a rule of nats-scheduler, not of the server"
        return f"{self.header} of {value!r} {self.reason} ({code})"


@dataclass(frozen=True, slots=True)
class ServerError:
    """One error of the server: its code, its description and its HTTP-like status."""

    code: int
    description: str
    status: int = 400

    def rejection(self, header: str, value: str, reason: str) -> Rejection:
        """Return a rejection with this error, from the wrong header, its value and what was expected."""
        return Rejection(self.code, self.description, header, value, reason, self.status)


# Messages: `docs/reference/headers.md`, "Order of checks".
STORAGE_TTL_INVALID = ServerError(10165, "invalid per-message TTL")
TTL_DISABLED = ServerError(10166, "per-message TTL is disabled")
SCHEDULES_DISABLED = ServerError(10188, "message schedules is disabled")
PATTERN_INVALID = ServerError(10189, "message schedules pattern is invalid")
TARGET_INVALID = ServerError(10190, "message schedules target is invalid")
TTL_INVALID = ServerError(10191, "message schedules invalid per-message TTL")
ROLLUP_INVALID = ServerError(10192, "message schedules invalid rollup")
SOURCE_INVALID = ServerError(10203, "message schedules source is invalid")
SCHEDULER_INVALID = ServerError(10212, "message schedules invalid scheduler")
TIME_ZONE_INVALID = ServerError(10223, "message schedules time zone is invalid")

# For policies (`message.policies`), which are headers of our own: servers know no such error.
POLICY_INVALID = ServerError(0, "schedule policy is invalid")

# For what is written (`message.schedule_form`): a server stores it, and reads something else.
HEADER_HIDDEN = ServerError(0, "a value hides a header of the schedule")
HEADER_UNREADABLE = ServerError(0, "a value is not read as it is written")
HEADER_MISNAMED = ServerError(0, "a header looks like one of a schedule and has no effect")

# For the operator's restrictions: the server has no such limit.
TOO_MANY_SCHEDULES = ServerError(10023, "insufficient resources", 503)

FAILED = ServerError(500, "schedule failed in nats-scheduler", 500)
"""Nothing is wrong with the schedule that the server, or a rule of ours, would reject: this program made a mistake."""

MESSAGE_CODES = tuple(
    error.code
    for error in (
        *(TOO_MANY_SCHEDULES, STORAGE_TTL_INVALID, TTL_DISABLED, SCHEDULES_DISABLED, PATTERN_INVALID, TARGET_INVALID),
        *(TTL_INVALID, ROLLUP_INVALID, SOURCE_INVALID, SCHEDULER_INVALID, TIME_ZONE_INVALID, POLICY_INVALID, FAILED),
    )
)
"""All codes with which a schedule may be rejected."""

# Stream configurations: all others are in `message.stream_rules`.
SCHEDULES_STAY = ServerError(10052, "message schedules can not be disabled", 500)
INVALID_JSON = 10025

# Fires: no server has a code that is so small.
NOT_PERMITTED = 403
"""The code if the account refuses a publish before JetStream receives it."""


class Failing(NamedTuple):
    """Why the server does not take the fires of a schedule, and since when (ns)."""

    code: int
    description: str
    since: int
