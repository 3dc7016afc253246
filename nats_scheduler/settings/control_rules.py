"""One rule of the setting `control_rules`: who may ask for which changes of schedules.

Rule: what a rule does not name is not allowed, but for the policies and operations, of which all are. A subject begins
with a token that is no wildcard and none of the server's or the sidecars', so no rule reaches these by a short pattern.
Whom a rule is for says its name, which is a token of the subjects of its requests (`service.rules`).
Cost: none after start. Limit: who may publish on these subjects is decided by the permissions of the server.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from nats_scheduler.message.subjects import is_valid_subject
from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.settings.duration_range import DurationRange

Operation = Literal["add", "edit", "pause", "resume", "fire", "backfill", "remove"]

MAX_RULES = 100
"""Most rules: each has subscriptions of its own, which discovery lists."""

_RESERVED = ("$", "_", "*", ">")
"""The beginnings of subjects that no rule names: buckets, the server's API, inboxes, and what could be any of these."""


def _of_a_team(subject: str) -> str:
    tokens = subject.split(".")
    is_whole = all(len(token) == 1 or not {"*", ">"} & set(token) for token in tokens)
    is_reserved = subject.startswith(_RESERVED) or tokens[0] == "nats_scheduler"
    if is_reserved or not is_whole or not is_valid_subject(subject):
        raise ValueError(
            "a subject such as 'billing.due.>': its first token is no wildcard, does not begin with '$' or '_' and is "
            "not 'nats_scheduler', and a token with '*' or '>' has nothing else"
        )
    return subject


StreamName = Annotated[str, StringConstraints(pattern=r"^[^\s.*>/\\]+$", min_length=1, max_length=255)]
Subject = Annotated[str, AfterValidator(_of_a_team)]
RuleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
PolicyName = Annotated[str, StringConstraints(pattern=r"^X-[A-Za-z-]+$")]


class ControlRule(BaseModel):
    """Whose requests may change which schedules, and how."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: RuleName = Field(
        description="Name of the rule, a token of the subjects of its requests: letters, digits, _ and -, at most 64."
    )
    streams: Annotated[tuple[StreamName, ...], Field(min_length=1)] = Field(
        description="Names of the streams with the schedules."
    )
    subjects: Annotated[tuple[Subject, ...], Field(min_length=1)] = Field(
        description="Subjects of the schedules; wildcards are allowed."
    )
    targets: tuple[Subject, ...] = Field(default=(), description="Subjects that their targets may be.")
    targets_elsewhere: tuple[Subject, ...] = Field(
        default=(),
        description="Subjects of other streams that X-Target may name, as far as allowed_targets_elsewhere does.",
    )
    sources: tuple[Subject, ...] = Field(default=(), description="Subjects that their sources may be.")
    policies: tuple[PolicyName, ...] | None = Field(
        default=None,
        description="Names of the policies that they may have, such as X-Missed, beside X-Anchor; null for all.",
    )
    may: tuple[Operation, ...] = Field(
        default=("add", "edit", "pause", "resume", "fire", "backfill", "remove"),
        description="What may be asked for: add, edit, pause, resume, fire, backfill and remove.",
    )
    shortest_interval: Annotated[int, DurationRange(SECOND, 24 * HOUR)] | None = Field(
        default=None,
        description="Shortest time between two fires of one schedule: a duration, 1s to 24h; null for any.",
    )
    changes_per_minute: int = Field(
        default=60,
        ge=1,
        le=60_000,
        description=(
            "Most requests to each sidecar, at once and on average in a minute, those refused too: 1 to 60000."
        ),
    )


def _with_each_name_once(rules: tuple[ControlRule, ...]) -> tuple[ControlRule, ...]:
    names = [rule.name for rule in rules]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PydanticCustomError("rules", "{expected}", {"expected": f"each name once, not two rules {twice[0]!r}"})
    return rules


ControlRules = Annotated[tuple[ControlRule, ...], Field(max_length=MAX_RULES), AfterValidator(_with_each_name_once)]
