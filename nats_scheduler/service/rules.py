"""Hold a requester to its rule: the requests for `nats_scheduler.control.v1.for.<rule>.…` may do what the rule allows.

The rules:

- The subject of a request is the only proof of who asks. A header is none: a client of the same account can write any,
  the server's own `Nats-Request-Info` too. The permissions of the server, or a service import, say who may publish
  there (`docs/operating/security.md`).
- What a request names is checked before anything is looked up, so a refusal is the same whether it exists or not.
- The schedule is checked as it would be stored (`add`, `edit`, `resume`), and as it is stored before it fires on
  request (`fire`, `backfill`): in the very bytes that are published, so nothing can change in between.
- A schedule is checked by its headers as they are written: each once, in one spelling, and with none that a server
  finds in the value of another. So all servers and sidecars that may ever fire it read the same that is read here.

Cost: some microseconds for each request; with `shortest_interval` about a millisecond.
Limits: what was stored before a rule was narrowed goes on firing, and each sidecar counts requests by itself. Of a
pattern the next `MAX_FIRES_EXAMINED` fires are compared.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise

from nats_scheduler.control.changes import MAX_AUTHOR_CHARS
from nats_scheduler.control.current import Current
from nats_scheduler.control.errors import ForbiddenError
from nats_scheduler.control.words import publishable, publishable_again
from nats_scheduler.message.dialect import schedule_fields
from nats_scheduler.message.headers import MSG_ROLLUP, MSG_TTL, decoded, header_items
from nats_scheduler.message.policies import extension_prefix, policy_header
from nats_scheduler.message.schedule_form import FIELDS
from nats_scheduler.message.subjects import is_literal_subject, is_valid_subject, subject_matches
from nats_scheduler.schedule.durations import format_duration
from nats_scheduler.schedule.invalid import MAX_SHOWN_CHARS
from nats_scheduler.service.micro import TOO_MANY_REQUESTS, ServiceError
from nats_scheduler.settings.control_rules import ControlRule

MAX_FIRES_EXAMINED = 100
"""Fires of a pattern whose distances are compared with `shortest_interval`."""

MAX_BY_A_RULE, MAX_BY_A_RULE_OF_ONE, MAX_BY_A_RULE_WAITING = 4, 3, 64
"""Requests of one rule in work at once, those of one client of the team, and those that wait.

No team takes the places of the others.
"""

_OTHERWISE_DECIDED = ("X-Target", "X-Anchor")
"""The policies that a list of names does not concern: a target, and what pausing and editing write themselves."""

_ACTED_ON = re.compile(rb"nats-(?:schedule|ttl|rollup)", re.IGNORECASE)
"""What servers and sidecars search a block of headers for, wherever it is."""


@dataclass
class Rule:
    """One rule, and how many requests it has had of late."""

    allowed: ControlRule
    all_schedules: Sequence[str]
    """The subjects of schedules in all rules: nothing may fire there."""
    now: Callable[[], float]
    """Returns the time in seconds, by a clock that never goes back."""
    _used: float = field(default=0.0, init=False)
    _used_at: float = field(default=0.0, init=False)

    def take_a_turn(self) -> None:
        """Count a request; raises `ServiceError` if there were too many in the last minute."""
        most, now = self.allowed.changes_per_minute, self.now()
        self._used = max(0.0, self._used - (now - self._used_at) * most / 60)
        self._used_at = now
        if self._used + 1 > most:
            what = f"rule {self.allowed.name!r}, clause changes_per_minute: more than {most} requests in a minute"
            raise ServiceError(TOO_MANY_REQUESTS, f"{what}: ask later")
        self._used += 1

    def signed(self, author: str) -> str:
        """Return who is recorded for a change: the rule, which is certain, and whom the request names."""
        return f"{self.allowed.name}: {author}"[:MAX_AUTHOR_CHARS] if author else self.allowed.name

    def check_request(self, operation: str, stream: str, subject: str) -> None:
        """Raise `ForbiddenError` unless an operation on this subject may be asked for."""
        self._require("may", operation, operation in self.allowed.may, self.allowed.may)
        self.check_place(stream, subject)

    def check_place(self, stream: str, subjects: str) -> None:
        """Raise `ForbiddenError` unless all subjects that match, wildcards allowed, are those of its schedules."""
        self._require("streams", stream, stream in self.allowed.streams, self.allowed.streams)
        is_own = is_valid_subject(subjects) and _is_among(subjects, self.allowed.subjects)
        self._require("subjects", subjects, is_own, self.allowed.subjects)

    def within(self, wanted: str | None) -> str:
        """Return the filter of a request for a list: without one, all schedules of the rule if that is one."""
        all_of_them = self.allowed.subjects[0] if len(self.allowed.subjects) == 1 else ">"
        return all_of_them if wanted is None else wanted

    def check_schedule(self, found: Current) -> None:
        """Raise `ForbiddenError` unless a schedule, as it is while it is not paused, is one that the rule allows."""
        allowed, dialect = self.allowed, found.dialect
        block = (publishable_again if found.sequence else publishable)(found.active_block)
        policies = extension_prefix(dialect)
        own = {field.header(dialect) for field in FIELDS}
        names = Counter(name for name, _value in header_items(block) if b"nats-" in name.lower())
        for name, number in names.items():
            is_known = name in own or name in (MSG_TTL, MSG_ROLLUP) or name.startswith(policies)
            expected = ["the headers of one schedule, each once", decoded(MSG_TTL), decoded(MSG_ROLLUP)]
            self._require("headers", decoded(name), is_known and number == 1, expected)
        hidden = [decoded(one) for one in _ACTED_ON.findall(block)]
        self._require("headers", ", ".join(hidden), len(hidden) == len(names), ["these names in no value"])
        fields = schedule_fields(block, dialect)
        target, elsewhere = fields.get(dialect.target), fields.get(policy_header("X-Target", dialect))
        for clause, header, value, subjects in (
            ("targets", dialect.target, target, allowed.targets),
            ("targets_elsewhere", policies + b"Target", elsewhere, allowed.targets_elsewhere),
            ("sources", dialect.source, fields.get(dialect.source), allowed.sources),
        ):
            if value is not None:
                is_allowed = is_literal_subject(value) and _is_among(value, subjects)
                self._require(clause, f"{decoded(header)}: {value}", is_allowed, subjects)
        for value in filter(None, (target, elsewhere)):
            what = "a target on which no rule has schedules"
            self._require("targets", value, not _is_among(value, self.all_schedules), [what])
        for name in fields:
            short = decoded(name.removeprefix(dialect.schedule + b"-"))
            if name.startswith(policies) and short not in _OTHERWISE_DECIDED and allowed.policies is not None:
                self._require("policies", short, short in allowed.policies, allowed.policies)
        if allowed.shortest_interval is not None and found.definition is not None:
            limit = allowed.shortest_interval
            times = islice(found.timetable().each(found.message.stored_at), MAX_FIRES_EXAMINED)
            is_slow = all(later - earlier >= limit for earlier, later in pairwise(times))
            self._require("shortest_interval", found.pattern, is_slow, [f"{format_duration(limit)} between two fires"])

    def _require(self, clause: str, value: str, is_allowed: bool, expected: Sequence[str]) -> None:
        if not is_allowed:
            shown = value if len(value) <= MAX_SHOWN_CHARS else f"{value[:MAX_SHOWN_CHARS]}…"
            what = f"rule {self.allowed.name!r}, clause {clause}: {shown!r} is not allowed"
            raise ForbiddenError(f"{what}: expected {', '.join(expected) or 'none'}")


def _is_among(subject: str, patterns: Sequence[str]) -> bool:
    return any(subject_matches(subject, pattern) for pattern in patterns)
