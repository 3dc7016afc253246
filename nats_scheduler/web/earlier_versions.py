"""The earlier versions of schedules that the record of changes knows, so that the page can offer to restore one.

The rules:

- A version is known if the record has each change from it to the version that is there now: the sequence that one has
  stored is the one that the next has found. What was stored by another tool, and recorded by nobody, ends that.
- Known are the fields and policies. A version whose spelling was another one is not offered, since no edit makes it,
  nor is one with a value that is not recorded as it was written.
- Any client can write a record. So what it says is shown in a form, with a preview, and nothing is stored without it.

Cost: some microseconds for each change.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nats_scheduler.control.changed_parts import SPELLING
from nats_scheduler.service.past_answers import KeptChangeDocument


@dataclass(frozen=True, slots=True)
class EarlierVersion:
    """A schedule as it was before a change."""

    change: KeptChangeDocument
    values: Mapping[str, str | None]
    """Its fields and policies, of those that were changed since; None is one that it did not have."""
    has_other_content: bool
    """True if its body or headers of its publisher were others, which are not recorded."""


def earlier_versions(
    changes: Iterable[KeptChangeDocument], sequence: int | None = None
) -> Mapping[int, EarlierVersion]:
    """Return the versions that are known, each by the number of the change that ended it (`kept_as`).

    `changes` are the newest ones, newest first, of one schedule or of several. `sequence` is that of the schedule now,
    if they are those of one and it is known; else the newest change of each is taken to be its last one.
    """
    found: dict[int, EarlierVersion] = {}
    newer: dict[tuple[str, str], _Newer | None] = {}
    for change in changes:
        place = change["stream"], change["subject"]
        after = newer.get(place, _Newer(sequence, {}, False))
        newer[place] = before = None if after is None else after.before(change)
        if before is not None and change["parts"]["fields"]:
            found[change["kept_as"]] = EarlierVersion(change, before.values, before.has_other_content)
    return found


@dataclass(frozen=True, slots=True)
class _Newer:
    """A version as it is known from what has changed since."""

    sequence: int | None
    """Its sequence; None if any will do."""
    values: Mapping[str, str | None]
    has_other_content: bool

    def before(self, change: KeptChangeDocument) -> "_Newer | None":
        """Return the version before a change that made this one; None if that is not known."""
        parts, sequence = change["parts"], change["sequence"]
        is_ours = sequence is not None and self.sequence in (None, sequence)
        if not is_ours or change["sequence_before"] is None:
            return None
        if any(one["name"] == SPELLING or not one["exact"] for one in parts["fields"]):
            return None
        values = {**self.values, **{one["name"]: one["before"] for one in parts["fields"]}}
        has_other_content = self.has_other_content or parts["body"] or bool(parts["headers"])
        return _Newer(change["sequence_before"], values, has_other_content)
