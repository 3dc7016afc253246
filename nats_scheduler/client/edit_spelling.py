"""What a Python program says of an edit, as the headers to set and to remove of one stored schedule.

The rules:

- What is not named stays as it is. A new `when` takes the place of the pattern, its time zone and its syntax; of the
  policies it changes those that it has.
- An edit is written in the spelling that the schedule has.
- Whether the schedule is valid then is decided where it is stored (`control.edits`).
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from nats_scheduler.client.policy_arguments import PolicyArguments, policy_texts
from nats_scheduler.client.schedule_block import Headers, headers_of, line_of, texts_of, with_target
from nats_scheduler.client.values import Elsewhere
from nats_scheduler.client.when import When
from nats_scheduler.control.current import Current
from nats_scheduler.control.words import is_same_pattern, named_header
from nats_scheduler.message.headers import encoded
from nats_scheduler.message.schedule_form import Edit, FormArguments, ScheduleForm, diff


@dataclass(frozen=True, slots=True)
class Wish:
    """The changes that a program wants; what is None, or empty, stays."""

    when: When | None = None
    body: bytes | None = None
    target: str | Elsewhere | None = None
    given: FormArguments = field(default_factory=FormArguments)
    headers: Headers = ()
    policies: PolicyArguments = field(default_factory=PolicyArguments)
    unset: Collection[str] = ()

    def check(self) -> None:
        """Raise what is wrong whatever the schedule is: `ValueError` if nothing is to be changed, and `TypeError`."""
        if isinstance(self.unset, str) or not all(isinstance(name, str) for name in self.unset):
            raise TypeError(f"unset of {self.unset!r}: names of headers are expected, such as ['ttl', 'X-Jitter']")
        values = (self.when, self.body, self.target, *self.given.values())
        if all(value is None for value in values) and not (self.headers or self.policies or self.unset):
            raise ValueError("nothing is to be changed: name it, such as when=every(…), body=b'…' or unset=['ttl']")
        headers_of(self.headers)
        texts_of(self.given)


def edit_of(wish: Wish, found: Current, now: int) -> Edit:
    """Return the edit of a stored schedule that a wish is, now (ns)."""
    dialect = found.dialect
    # Other headers than those that are named stay: an edit does not compare them.
    stored = replace(ScheduleForm.from_block(found.active_block, dialect), headers=())
    form = replace(stored, headers=headers_of(wish.headers), body=wish.body, **texts_of(wish.given))
    form = _with_policies(wish, _with_pattern(wish.when, form, now))
    edit = diff(stored, form if wish.target is None else with_target(form, wish.target), dialect)
    return replace(edit, unset=[*edit.unset, *(named_header(dialect, name) for name in wish.unset)])


def _with_pattern(when: When | None, stored: ScheduleForm, now: int) -> ScheduleForm:
    """Return the form with another pattern, its time zone and its syntax."""
    if when is None:
        return stored
    others = [one for one in stored.policies if one[0] != "X-Syntax"]
    syntax = [] if when.syntax is None else [("X-Syntax", when.syntax)]
    pattern = when.text(now)
    if stored.pattern is not None and is_same_pattern(encoded(pattern), encoded(stored.pattern)):
        pattern = stored.pattern  # it says the same already, perhaps as `1h` for `1h0m0s`
    return replace(stored, pattern=pattern, time_zone=when.time_zone, policies=tuple(sorted([*others, *syntax])))


def _with_policies(wish: Wish, form: ScheduleForm) -> ScheduleForm:
    """Return the form with the policies of a new `when`, and those that are named beside it."""
    stored, written = dict(form.policies), {} if wish.when is None else dict(wish.when.written_policies)
    texts = dict(policy_texts(stored | written, wish.policies))
    new = {name: line_of(name, value) for name, value in texts.items() if value != stored.get(name)}
    return replace(form, policies=tuple((texts | new).items()))
