"""What a Python program says of an edit, as the headers to set and to remove of one stored schedule.

The rules:

- What is not named stays as it is. A new `when` takes the place of the pattern, its time zone and its syntax; of the
  policies it changes those that it has.
- An edit is written in the spelling that the schedule has.
- Whether the schedule is valid then is decided where it is stored (`control.edits`).
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from nats_scheduler.client.policy_arguments import PolicyArguments, policy_texts
from nats_scheduler.client.schedule_block import Headers, headers_of, line_of, target_header, ttl_text
from nats_scheduler.client.values import Elsewhere, named_policies
from nats_scheduler.client.when import When
from nats_scheduler.control.current import Current
from nats_scheduler.control.words import is_same_pattern, named_header
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.policies import policy_header
from nats_scheduler.message.schedule_form import Edit


@dataclass(frozen=True, slots=True)
class Wish:
    """The changes that a program wants; what is None, or empty, stays."""

    when: When | None = None
    body: bytes | None = None
    target: str | Elsewhere | None = None
    source: str | None = None
    ttl: timedelta | Literal["never"] | None = None
    rollup: bool | None = None
    headers: Headers = ()
    policies: PolicyArguments = field(default_factory=PolicyArguments)
    unset: Collection[str] = ()

    def check(self) -> None:
        """Raise what is wrong whatever the schedule is: `ValueError` if nothing is to be changed, and `TypeError`."""
        if isinstance(self.unset, str) or not all(isinstance(name, str) for name in self.unset):
            raise TypeError(f"unset of {self.unset!r}: names of headers are expected, such as ['ttl', 'X-Jitter']")
        values = (self.when, self.body, self.target, self.source, self.ttl, self.rollup)
        if all(value is None for value in values) and not (self.headers or self.policies or self.unset):
            raise ValueError("nothing is to be changed: name it, such as when=every(…), body=b'…' or unset=['ttl']")
        headers_of(self.headers)
        ttl_text(self.ttl)


def edit_of(wish: Wish, found: Current, now: int) -> Edit:
    """Return the edit of a stored schedule that a wish is, now (ns)."""
    dialect = found.dialect
    changes: dict[bytes, str | None] = {
        dialect.source: wish.source,
        dialect.ttl: ttl_text(wish.ttl),
        dialect.rollup: "sub" if wish.rollup else None,
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    if wish.rollup is False:
        changes[dialect.rollup] = None
    changes |= _target(wish.target, dialect) | _when(wish, found, now)
    own = headers_of(wish.headers)
    ours = [(name, line_of(name.decode(), value)) for name, value in changes.items() if value is not None]
    removed = [name for name, value in changes.items() if value is None]
    removed += [named_header(dialect, name) for name in wish.unset]
    return Edit([*ours, *own], removed, wish.body)


def _target(target: str | Elsewhere | None, dialect: Dialect) -> dict[bytes, str | None]:
    """Return the headers of both kinds of targets, of which a schedule has one."""
    if target is None:
        return {}
    name, subject = target_header(target, dialect)
    return {dialect.target: None, policy_header("X-Target", dialect): None} | {name: subject}


def _when(wish: Wish, found: Current, now: int) -> dict[bytes, str | None]:
    """Return the headers of the pattern, if it is changed, and of the policies that are."""
    dialect, stored = found.dialect, dict(named_policies(found))
    changes: dict[bytes, str | None] = {}
    written: dict[str, str] = {}
    if wish.when is not None:
        pattern = wish.when.text(now)
        changes = {
            dialect.schedule: pattern,
            dialect.time_zone: wish.when.time_zone,
            policy_header("X-Syntax", dialect): wish.when.syntax,
        }
        if is_same_pattern(pattern.encode(), found.pattern.encode("utf-8", "surrogateescape")):
            del changes[dialect.schedule]  # it says the same already, perhaps as `1h` for `1h0m0s`
        written = dict(wish.when.written_policies)
    texts = dict(policy_texts(stored | written, wish.policies))
    named = {name for name in stored | texts if stored.get(name) != texts.get(name)} | written.keys()
    return changes | {policy_header(name, dialect): texts.get(name) for name in sorted(named)}
