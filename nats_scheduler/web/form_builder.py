"""The part of a form in which a pattern or a policy is chosen, to be written into the fields of the form.

The rules:

- A button of it answers the form again with the fields filled; nothing is stored by it, and the fields stay editable.
- What is wrong leaves the fields as they are, and all that was chosen comes back with what was expected.
- The choices of a form that begins are those of its pattern, none if no choices stand for that; until others are
  chosen, they follow what is typed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from nats_scheduler.message.policies import syntax_of
from nats_scheduler.schedule.patterns import Syntax
from nats_scheduler.web.change_pages import Form, policies_of
from nats_scheduler.web.pattern_builder import (
    KINDS,
    MONTH_NAMES,
    NONE_CHOSEN,
    UNITS,
    WEEKDAY_NAMES,
    Built,
    Choices,
    Wrong,
    build,
    choices_of,
)
from nats_scheduler.web.policy_choices import POLICY_CHOICES, write_policy

Fields = Mapping[str, str]

OFFERED = {
    "kinds": KINDS,
    "units": UNITS,
    "weekdays": WEEKDAY_NAMES,
    "months": MONTH_NAMES,
    "policies": POLICY_CHOICES,
}
"""What may be chosen."""

PATTERN, POLICY = "pattern", "policy"
"""The steps of a form that write something into its fields."""

_TEXTS = ("kind", "date", "number", "unit", "day", "month", "time", "zone")


@dataclass(frozen=True, slots=True)
class Builder:
    """What is chosen in a form, and what was made of it."""

    choices: Choices = NONE_CHOSEN
    policy: str = ""
    value: str = ""
    """Of the policy."""
    built: Built | None = None
    """The pattern that was written."""
    line: str = ""
    """The policy that was written."""
    wrong: Mapping[str, str] | None = None
    """What is wrong, by what was chosen."""
    is_open: bool = False
    """True if the form is answered because of it, or something is chosen that the fields do not say."""

    def written(self, step: str, typed: Fields, was: Fields, spelling: str) -> tuple["Builder", Fields]:
        """Return it and the fields after a button, of which only its own two change the fields.

        If nothing was chosen since the form began with the fields `was`, it has the choices of what is typed now.
        """
        if step == PATTERN:
            built = build(self.choices, syntax_in(typed, spelling))
            if isinstance(built, Wrong):
                return replace(self, wrong=built.faults, is_open=True), typed
            fields = {**typed, "pattern": built.pattern, "time_zone": built.time_zone}
            return replace(self, built=built, is_open=True), fields
        if step == POLICY:
            lines, wrong = write_policy(typed["policies"], self.policy, self.value)
            if wrong:
                return replace(self, wrong=wrong, is_open=True), typed
            line = f"{self.policy}: {self.value}"
            return replace(self, policy="", value="", line=line, is_open=True), {**typed, "policies": lines}
        of_typed = builder_of(typed, spelling)
        is_chosen = self not in (of_typed, builder_of(was, spelling))
        return (replace(self, is_open=True) if is_chosen else of_typed), typed


def builder_of(typed: Fields, spelling: str) -> Builder:
    """Return the builder of a form that begins with these fields."""
    return Builder(choices_of(typed["pattern"], typed["time_zone"], syntax_in(typed, spelling)))


def builder_in(form: Form) -> Builder:
    """Return what is chosen in a form."""
    texts = {name: form.text(f"build_{name}") for name in _TEXTS}
    choices = Choices(weekdays=tuple(form.values.get("build_weekday", ())), **texts)
    return Builder(choices, form.text("build_policy"), form.text("build_value"))


def syntax_in(typed: Fields, spelling: str) -> Syntax | None:
    """Return the syntax that the policies of a form name; None for the server's, and if a line is no policy."""
    if spelling != "portable":
        return None
    try:
        return syntax_of(dict(policies_of(typed["policies"])))
    except ValueError:
        return None
